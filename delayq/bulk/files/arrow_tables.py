"""Tables from files, and from whatever gives an Arrow stream: DataFrames of pandas and Polars, results of DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute

from delayq.bulk.files.table_files import read_table
from delayq.errors import ConfigurationError, short_repr

pc: Any = pyarrow.compute
"""Untyped: its stubs lack some functions."""


class ArrowStream(Protocol):
    """An object of any library with the Arrow PyCapsule interface, such as a DataFrame."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule of an ArrowArrayStream."""


TableSource = pa.Table | ArrowStream | str | Path
"""A table in memory, or the path of one in a file."""


def table_of(source: TableSource, name: str, *, repeated: Sequence[str] = ()) -> pa.Table:
    """Return a table with the types of Arrow that files have; columns `repeated` may stay dictionaries.

    A stream is read to its end. Errors call it `name`. Raises `ConfigurationError` for anything else, for what cannot
    be read, and for numbers above 2**63 - 1.
    """
    if isinstance(source, str | Path):
        return _plain(read_table(source, repeated=repeated), repeated)
    if not hasattr(source, "__arrow_c_stream__"):
        raise ConfigurationError(
            f"{name} must be a table, such as a DataFrame (it gives an Arrow stream), or the path of a file, not"
            f" {short_repr(source)}"
        )
    try:
        table = source if isinstance(source, pa.Table) else pa.table(source)
    except Exception as error:  # each library has errors of its own
        told = str(error).partition(". Detail: ")[0]
        raise ConfigurationError(f"{name} cannot be read as a table: {told}") from error
    return _plain(table, repeated)


def _plain(table: pa.Table, repeated: Sequence[str]) -> pa.Table:
    for at, field in enumerate(table.schema):
        kind: Any = field.type
        as_it_is = kind.value_type if field.name in repeated and isinstance(kind, pa.DictionaryType) else kind
        if _kind(as_it_is) != as_it_is:
            chunks = [_plain_array(one, field) for one in table.column(at).chunks]
            table = table.set_column(at, field.name, pa.chunked_array(chunks, _kind(kind)))
    return table


def _plain_array(array: Any, field: Any) -> Any:
    if isinstance(array.type, pa.DictionaryType):
        return _plain_array(array.dictionary, field).take(array.indices)
    if pa.types.is_run_end_encoded(array.type):
        return _plain_array(pc.run_end_decode(array), field)
    try:
        return array.cast(_kind(array.type))
    except pa.ArrowInvalid as error:
        raise ConfigurationError(f"column {field.name} is {field.type}: {error}") from error


def _kind(kind: Any) -> Any:
    """Return the type that holds the same values and that files have."""
    if isinstance(kind, pa.DictionaryType) or pa.types.is_run_end_encoded(kind):
        return _kind(kind.value_type)
    if kind == pa.string_view():
        return pa.large_string()
    if kind == pa.binary_view():
        return pa.large_binary()
    return pa.int64() if pa.types.is_unsigned_integer(kind) else kind


def in_utc(table: pa.Table) -> pa.Table:
    """Label the times of a table as UTC; the instants stay."""
    zoned = [
        pa.field(column.name, pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(column.type) else column
        for column in table.schema
    ]
    return table.cast(pa.schema(zoned))
