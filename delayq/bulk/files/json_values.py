"""Writes the values of columns as JSON, in the same text with Spark and without: plans are compared by payloads.

Floating-point numbers have the shortest digits, as Java 19 writes them. Times have microseconds, without what is
finer.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from delayq.bulk.message_batches import spark_name
from delayq.errors import ConfigurationError

NULL = "null"
_START = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC, or a wall clock
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
    """Return the values of a column as JSON.

    Raises `ConfigurationError` for a type that only Spark can write, and for a value that JSON cannot have here.
    """
    kind = column.type
    for fits, casts, convert in _KINDS:
        if fits(kind):
            try:
                for cast in casts:
                    column = column.cast(cast, safe=False)
                return [NULL if value is None else convert(value) for value in column.to_pylist()]
            except (OverflowError, ValueError) as error:
                raise ConfigurationError(f"column {name!r} has a time outside of the years 1 to 9999") from error
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


_KINDS: list[tuple[Callable[[pa.DataType], bool], list[pa.DataType], Callable[[Any], str]]] = [
    (lambda kind: spark_name(kind) == "string", [], json_text),
    (pa.types.is_boolean, [], lambda value: "true" if value else "false"),
    (pa.types.is_integer, [], str),
    (pa.types.is_floating, [pa.string()], _java_number),
    (pa.types.is_decimal, [], str),
    (
        lambda kind: spark_name(kind) == "timestamp",
        [pa.timestamp("us", tz="UTC"), pa.int64()],
        lambda microseconds: f'"{instant_text(microseconds)}"',
    ),
    (pa.types.is_timestamp, [pa.timestamp("us")], lambda at: f'"{at.isoformat(timespec="microseconds")}"'),
    (pa.types.is_date, [pa.date32()], lambda day: f'"{day.isoformat()}"'),
    (lambda kind: spark_name(kind) == "binary", [], lambda value: f'"{base64.b64encode(value).decode()}"'),
    (pa.types.is_null, [], str),
]
"""Types of columns: what they are cast to, one after the other, and how their values are written."""
