"""Message ids made from the columns of a row: a table that is sent twice names the same messages."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from delayq.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from pyspark.sql import Column

_SEPARATOR = "\x1f"
_IN_TEXT = "\x1f\x1e"
"""A separator within a text: a null ends in the next separator, a value begins with `=`, and neither with this."""
_BYTES = 16
_LENGTH = 22
"""Characters of an id: those of 16 bytes in base 64, without the padding."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Their text in Spark depends on the time zone of the session wherever a time is in it; as JSON it does not.
_NESTED = "^(array|map|struct)"
_JSON = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}


def message_id(*cols: Column | str) -> Column:
    """Return the column of message ids that belong to some columns, given by name or as expressions.

    Equal values give equal ids: today and tomorrow, in every session, time zone and partition. It is the first half of
    the SHA-256 of the columns joined by U+001F, in 22 characters of base 64 with `.` and `_` for `+` and `/`, so that
    an id can stand in a URL and never looks like an option. 128 bits, as in a UUID: among a thousand million ids the
    chance that any two are equal is 10⁻²¹, and a message takes no more memory than under an id that delayq makes.

    A null is not an empty text, and where one column ends and the next begins is told apart whatever is in them.
    A TIMESTAMP goes in as its microseconds since 1970, anything else as its text: the number 7 and the text `"7"` are
    one id, which matters for a CSV file read with and without its types. `id_of` makes the same id outside of Spark.
    """
    if not cols:
        raise ConfigurationError("message_id needs at least one column")
    from pyspark.sql import functions as F

    encoded = [_encoded(F.col(each) if isinstance(each, str) else each) for each in cols]
    digest = F.unhex(F.substring(F.sha2(F.concat_ws(_SEPARATOR, *encoded), 256), 1, 2 * _BYTES))
    return F.substring(F.translate(F.base64(digest), "+/", "._"), 1, _LENGTH)


def id_of(*values: str | int | date | None) -> str:
    """Return the id that `message_id` gives to a row with these values: to look up the message of one.

    Takes texts, whole numbers, truth values, dates, aware datetimes (a TIMESTAMP) and None (a null);
    `ConfigurationError` for anything else.
    """
    if not values:
        raise ConfigurationError("id_of needs at least one value")
    text = _SEPARATOR.join("" if value is None else f"={_text(value)}" for value in values)
    digest = hashlib.sha256(text.encode()).digest()[:_BYTES]
    return base64.b64encode(digest, altchars=b"._").decode()[:_LENGTH]


def _encoded(column: Column) -> Column:
    from pyspark.sql import functions as F

    # A column does not know its type before the query is analysed. `typeof` does then, and one branch is left.
    json = F.to_json(F.struct(column.alias("v")), _JSON)
    micros = F.unix_micros(F.get_json_object(json, "$.v").cast("timestamp_ltz")).cast("string")
    kind = F.typeof(column)
    text = F.when(kind == "timestamp", micros).when(kind.rlike(_NESTED), json).otherwise(column.cast("string"))
    value = F.concat(F.lit("="), F.replace(text, F.lit(_SEPARATOR), F.lit(_IN_TEXT)))
    return F.when(column.isNull(), "").otherwise(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.replace(_SEPARATOR, _IN_TEXT)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime) and value.utcoffset() is not None:
        return str((value - _EPOCH) // timedelta(microseconds=1))
    if isinstance(value, int) or (isinstance(value, date) and not isinstance(value, datetime)):
        return str(value)
    raise ConfigurationError(
        f"an id is made of texts, whole numbers, truth values, dates and aware datetimes, not of {shown(value)}"
    )
