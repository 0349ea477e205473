"""Reads the columns of messages from a table whose due times, retries and headers may be texts, as in CSV and JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute

from delayq.bulk.files.arrow_types import spark_name, value_type
from delayq.bulk.loading.message_batches import check_columns
from delayq.errors import ConfigurationError, short_repr
from delayq.values.codec import decode_headers

pc: Any = pyarrow.compute
"""Untyped: its stubs lack plain values as arguments."""

_INSTANT = pa.timestamp("us", tz="UTC")
_HEADERS = pa.map_(pa.string(), pa.string())
_EXAMPLE = "2027-01-31T09:00:00+01:00"
_ADVICE = {"id": "write it as a text", "payload": "write it as a text, such as JSON"}
_TEXTS = ("id", "payload")


def message_table(table: pa.Table) -> pa.Table:
    """Return a table of messages with texts read as times, numbers and headers; raises `ConfigurationError`."""
    for at, field in enumerate(table.schema):
        if field.name in _TEXTS and pa.types.is_null(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.string()))
    for name, read in _READERS.items():
        if name in table.column_names and _is_read(name, table.schema.field(name).type):
            column = read(table.column(name))
            table = table.set_column(table.column_names.index(name), name, column)
    kinds = [(field.name, value_type(field.type) if field.name == "payload" else field.type) for field in table.schema]
    columns = [(name, spark_name(kind), str(kind).upper()) for name, kind in kinds]
    check_columns(columns, _ADVICE, f"a text with its zone, such as {_EXAMPLE}")
    if "due" not in table.column_names:
        return table
    instants = pc.ceil_temporal(table.column("due"), 1, "microsecond").cast(_INSTANT)
    return table.set_column(table.column_names.index("due"), "due", instants)


def _is_read(name: str, kind: pa.DataType) -> bool:
    return spark_name(kind) == "string" or pa.types.is_null(kind) or (name == "headers" and pa.types.is_struct(kind))


def _read_due(column: Any) -> Any:
    return _cast(column.cast(pa.string()), _INSTANT, "due", f"a time with its zone, such as {_EXAMPLE}")


def _read_retries(column: Any) -> Any:
    return _cast(column.cast(pa.string()), pa.int64(), "retries", "a whole number")


def _cast(column: Any, kind: pa.DataType, name: str, wanted: str) -> Any:
    """Return texts as values of another type; an error names the first row that cannot be one."""
    try:
        return pc.cast(column, kind)
    except pa.ArrowInvalid:
        return _each(column, lambda text: pc.cast(pa.scalar(text), kind).as_py(), kind, name, wanted)


def _read_headers(column: Any) -> Any:
    return _each(column, _pairs, _HEADERS, "headers", "an object of texts")


def _pairs(headers: Any) -> list[tuple[str, str]]:
    if isinstance(headers, str):
        headers = decode_headers(headers)
    # Arrow gives each row the names of all rows, with nulls.
    return [(name, value) for name, value in headers.items() if value is not None]


def _each(column: Any, read: Callable[[Any], Any], kind: pa.DataType, name: str, wanted: str) -> Any:
    values = []
    for row, value in enumerate(column.to_pylist(), 1):
        try:
            values.append(None if value is None else read(value))
        except (ValueError, msgspec.DecodeError):
            raise ConfigurationError(f"row {row}: {name} must be {wanted}, not {short_repr(value)}") from None
    try:
        return pa.chunked_array([pa.array(values, kind)])
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise ConfigurationError(f"{name} must be {wanted} in each row") from None


_READERS = {"due": _read_due, "retries": _read_retries, "headers": _read_headers}
