"""Expiry: a message that has not started by then is not started any more."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from delayq.broker.message.attributes import Attributes
from delayq.errors import ConfigurationError, InvalidValueError, short_repr
from delayq.values.times import Duration, timestamp, to_millis

Missed = Literal["dead", "drop"]
"""What becomes of a message that is missed: it goes to the dead letter, or is discarded."""


def check_expiry(expires: Duration | datetime | None, missed: Missed, due: str | int) -> tuple[str, str]:
    """Return the attributes `expires` and `missed` of a message with this due time, as they are stored."""
    if missed not in ("dead", "drop"):
        raise ConfigurationError(f"missed must be 'dead' or 'drop', not {short_repr(missed)}")
    kept = "" if missed == "dead" else missed
    if expires is None:
        if kept:
            raise ConfigurationError("missed goes with expires: say when the message is missed")
        return "", ""
    if not isinstance(expires, datetime):
        return f"+{to_millis(expires, 'expires', min=1)}", kept
    at = timestamp(expires, "expires")
    if isinstance(due, str) and at <= int(due[1:]):
        raise InvalidValueError(f"expires {expires.isoformat()} is not after the due time: it would never start")
    return str(at), kept


def expiry_of(attributes: Attributes, due: int) -> int | None:
    """Return when a message that is due then expires (ms); None for never."""
    text = attributes.expires
    if not text.lstrip("+").isdecimal():
        return None
    return due + int(text[1:]) if text[0] == "+" else int(text)
