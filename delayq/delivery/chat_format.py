"""Bodies of requests to chats and notification services: a text from a template, in the form that each expects.

Values of a payload cannot mention a channel, and in Slack cannot make a link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from delayq.delivery.envelope import fields
from delayq.delivery.template import Template
from delayq.errors import ConfigurationError, short_repr
from delayq.worker.message import Message


class _Chat(NamedTuple):
    content_type: str
    escape: Callable[[str], str]
    body: Callable[[str], bytes]


def _escape_slack(value: str) -> str:
    """Escape the three characters that begin links and mentions in Slack's texts."""
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _escape_mattermost(value: str) -> str:
    """Put a space of no width behind each `@`, so that nobody is mentioned."""
    return value.replace("@", "@\u200b")


def _json(max_length: int) -> Callable[[str], bytes]:
    return lambda text: msgspec.json.encode({"text": text[:max_length]})


def _ntfy(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:4096].decode("utf-8", "ignore").encode()


_CHATS = {
    "slack": _Chat("application/json", _escape_slack, _json(40_000)),
    "mattermost": _Chat("application/json", _escape_mattermost, _json(16_383)),
    "ntfy": _Chat("text/plain; charset=utf-8", str, _ntfy),
}
"""Each with the length that its service accepts: of a longer text for ntfy an attachment would be made."""


class ChatFormat:
    """Makes the body of each request for one service."""

    def __init__(self, name: str, text: str | None) -> None:
        """Parse the template of the text; raises `ConfigurationError` for an unknown service."""
        if name not in _CHATS:
            raise ConfigurationError(f"service must be one of {', '.join(_CHATS)}, not {short_repr(name)}")
        self._chat = _CHATS[name]
        self._text = Template("{payload}" if text is None else text, "text")
        self.content_type = self._chat.content_type

    def body(self, message: Message[Any]) -> bytes:
        """Return the body for a message; raises `Reject` if the payload lacks a field."""
        return self._chat.body(self._text.fill(fields(message), self._chat.escape))
