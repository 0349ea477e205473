"""How the dashboard shows payloads, results and progress: the one place that reads what messages carry."""

from __future__ import annotations

from typing import Any, NamedTuple

from delayq.privacy.ciphertext import describe_encrypted
from delayq.privacy.preview import preview
from delayq.queue.inspecting.decoded_payload import decode_payload, payload_text
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.values.text import clean

MAX_SHOWN = 200_000
"""Characters of a payload on the page of its message."""


class PayloadView(NamedTuple):
    """A payload as text, and how it was encoded: json, text, base64, encrypted or redacted."""

    text: str
    encoding: str
    is_cut: bool


def payload_line(message: MessageInfo) -> str:
    """Return a payload as one line, for a table."""
    return preview(message.payload or b"", message.size)


def payload_view(message: MessageInfo) -> PayloadView:
    """Return the payload of a message in full, JSON with indents, as `delayq show` does."""
    return value_view(message.payload or b"", message.size)


def value_view(stored: Any, size: int | None = None) -> PayloadView:
    """Return stored bytes in full; `size` is more if they were cut."""
    size = len(stored) if size is None else size
    value, encoding, is_cut = decode_payload(stored, size)
    if encoding == "encrypted":
        return PayloadView(describe_encrypted(size), encoding, is_cut=False)
    text = payload_text(value, encoding)
    return PayloadView(clean(text[:MAX_SHOWN], lines=True), encoding, is_cut or len(text) > MAX_SHOWN)
