"""Values of a table as JSON, in the very text that Spark's `to_json` gives: plans are compared by their payloads."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from delayq.errors import ConfigurationError

NULL = "null"
_START = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC
_ESCAPES: dict[int, str] = {
    **{code: f"\\u{code:04X}" for code in range(32)},
    **str.maketrans({'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}),
}
_NOT_A_NUMBER = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_FIXED = (-3, 7)
"""The decimal exponents for which Java writes a number without one: from the first, below the second."""


def json_text(text: str) -> str:
    """Return a text in quotes."""
    return f'"{text.translate(_ESCAPES)}"'


def instant_text(microseconds: int) -> str:
    """Return an instant, in microseconds since 1970, as ISO 8601 in UTC with six digits; without quotes."""
    return f"{(_START + timedelta(microseconds=microseconds)).isoformat(timespec='microseconds')}Z"


def json_column(name: str, column: Any) -> list[str]:
    """Return the values of a column as JSON; raises `ConfigurationError` for a type that only Spark can write."""
    kind = column.type
    for fits, casts, convert in _KINDS:
        if fits(kind):
            for cast in casts:
                column = column.cast(cast)
            return [NULL if value is None else convert(value) for value in column.to_pylist()]
    raise ConfigurationError(
        f"column {name!r} is {kind}, which only Spark can put into a payload: use `delayq spark plan`, or list the"
        " other columns as the payload of the rule"
    )


def _java_number(text: str) -> str:
    """Write the shortest digits of a floating-point number as Java does."""
    if text in _NOT_A_NUMBER:
        return _NOT_A_NUMBER[text]
    number = Decimal(text)
    exponent = number.adjusted() if number else 0
    if _FIXED[0] <= exponent < _FIXED[1]:
        fixed = f"{number:f}"
        return fixed if "." in fixed else f"{fixed}.0"
    sign, digits, _ = number.as_tuple()
    rest = "".join(map(str, digits[1:])).rstrip("0") or "0"
    return f"{'-' * sign}{digits[0]}.{rest}E{exponent}"


def _instant_in_quotes(microseconds: int) -> str:
    return f'"{instant_text(microseconds)}"'


def _wall_text(at: datetime) -> str:
    return f'"{at.isoformat(timespec="microseconds")}"'


def _boolean(value: bool) -> str:  # noqa: FBT001 - a value of a column
    return "true" if value else "false"


def _date_text(day: date) -> str:
    return f'"{day.isoformat()}"'


def _bytes_text(value: bytes) -> str:
    return f'"{base64.b64encode(value).decode()}"'


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _is_instant(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.TimestampType) and kind.tz is not None


_KINDS: list[tuple[Callable[[pa.DataType], bool], list[pa.DataType], Callable[[Any], str]]] = [
    (_is_text, [], json_text),
    (pa.types.is_boolean, [], _boolean),
    (pa.types.is_integer, [], str),
    (pa.types.is_floating, [pa.string()], _java_number),
    (pa.types.is_decimal, [], str),
    (_is_instant, [pa.timestamp("us", tz="UTC"), pa.int64()], _instant_in_quotes),
    (pa.types.is_timestamp, [pa.timestamp("us")], _wall_text),
    (pa.types.is_date, [pa.date32()], _date_text),
    (_is_binary, [], _bytes_text),
    (pa.types.is_null, [], str),
]
"""Types of columns: what they are cast to, one after the other, and how their values are written."""
