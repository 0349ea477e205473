"""After an outage: of the due messages with one id prefix, only the latest is delivered."""

from __future__ import annotations

from typing import Any, Literal

from delayq.broker.message.same_id import Debounce
from delayq.errors import ConfigurationError, short_repr

AfterOutage = Literal["latest"]
"""Which of the due messages with one id prefix are delivered: the latest. The others are missed."""


def check_after_outage(after_outage: AfterOutage | None, *, replace: Any = False) -> int:
    """Return the attribute `latest` as it is stored; raise `ConfigurationError` for what cannot be."""
    if after_outage is None:
        return 0
    if after_outage != "latest":
        raise ConfigurationError(f"after_outage must be 'latest', not {short_repr(after_outage)}")
    if isinstance(replace, Debounce):
        raise ConfigurationError("give after_outage or debounce, but not both: a burst has one id and one message")
    if replace == "after":
        raise ConfigurationError("after_outage does not go with replace='after': send the later one with its own id")
    return 1


def check_prefix(id: str | None) -> None:
    """Raise `ConfigurationError` unless this is an id with a prefix, which `after_outage` needs."""
    if id is None or ":" not in id:
        shown = "" if id is None else f", not {short_repr(id)}"
        raise ConfigurationError(f"after_outage needs an id with a prefix, such as 'report:2026-11-25T01'{shown}")
