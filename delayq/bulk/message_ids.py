"""The ids of messages that are made from the values of a row, so that a table sent twice has the same ids."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, date, datetime, timedelta

from delayq.errors import ConfigurationError, short_repr

SEPARATOR = "\x1f"
ESCAPED = "\x1f\x1e"
"""A separator within a text. After a real separator comes `=`, another separator or the end."""
BYTES = 16
LENGTH = 22
"""Characters of an id: 16 bytes in base 64, without the padding."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def id_of(*values: str | int | date | None) -> str:
    """Return the id that `delayq.spark.message_id` gives to a row with these values, to look up its message.

    Values may be texts, whole numbers, booleans, dates, aware datetimes (a TIMESTAMP) and None (a null); others raise
    `ConfigurationError`.
    """
    if not values:
        raise ConfigurationError("id_of needs at least one value")
    text = SEPARATOR.join("" if value is None else f"={_text(value)}" for value in values)
    digest = hashlib.sha256(text.encode()).digest()[:BYTES]
    return base64.b64encode(digest, altchars=b"._").decode()[:LENGTH]


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.replace(SEPARATOR, ESCAPED)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return str((value - _EPOCH) // timedelta(microseconds=1))
    if isinstance(value, int) or (isinstance(value, date) and not isinstance(value, datetime)):
        return str(value)
    raise ConfigurationError(
        f"id_of takes texts, whole numbers, booleans, dates and aware datetimes, not {short_repr(value)}"
    )
