"""Takes tables of other libraries by the Arrow PyCapsule interface, without importing these libraries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from delayq.bulk.files.table_files import read_table
from delayq.errors import ConfigurationError


class ArrowStream(Protocol):
    """A table of any library, such as pandas, Polars, DuckDB or PyArrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow."""


TableSource = ArrowStream | str | Path
"""A table, or the path of its file."""


def table_of(source: TableSource, name: str = "table", *, repeated: Sequence[str] = ()) -> pa.Table:
    """Return a table of any library, or that in a file, with the types that messages and plans have.

    Dictionaries become their values, except in the columns `repeated`; views of texts become texts, and unsigned
    numbers become signed ones. A stream that is read once, such as a reader of batches, is read to its end. Raises
    `ConfigurationError` for what is neither, and for what cannot be read; `name` is what errors call it.
    """
    if isinstance(source, str | Path):
        return with_plain_types(read_table(source, repeated=repeated), repeated)
    if not hasattr(source, "__arrow_c_stream__"):
        kind = type(source).__name__
        raise ConfigurationError(
            f"{name} must be a path or a table of Arrow, pandas, Polars or DuckDB (with __arrow_c_stream__), not {kind}"
        )
    table = source if isinstance(source, pa.Table) else _imported(source, name)
    return with_plain_types(table, repeated)


def _imported(source: ArrowStream, name: str) -> pa.Table:
    capsules: Any = source
    try:
        return pa.RecordBatchReader.from_stream(capsules).read_all()
    except Exception as error:  # each library has errors of its own
        raise ConfigurationError(f"cannot read {name}, a {type(source).__name__}: {error}") from error


def with_plain_types(table: pa.Table, repeated: Sequence[str] = ()) -> pa.Table:
    """Return a table whose columns have types that messages and plans can have."""
    for at, field in enumerate(table.schema):
        kind = _plain(field.type, keep=field.name in repeated)
        if kind != field.type:
            try:
                table = table.set_column(at, field.name, _as_plain(table.column(at), kind))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise ConfigurationError(f"column {field.name!r} is {field.type}: {error}") from error
    return table


def _as_plain(column: Any, kind: pa.DataType) -> Any:
    if not isinstance(column.type, pa.DictionaryType):
        return column.cast(kind)
    # Its values first: Arrow cannot take views of texts by their indices.
    chunks = [pa.DictionaryArray.from_arrays(one.indices, one.dictionary.cast(kind)) for one in column.chunks]
    made: Any = pa.chunked_array
    return made([one.dictionary_decode() for one in chunks], kind)


def _plain(kind: pa.DataType, *, keep: bool = False) -> pa.DataType:
    if isinstance(kind, pa.DictionaryType):
        value = _plain(kind.value_type)
        return kind if keep and value == kind.value_type else value
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_unsigned_integer(kind):
        return pa.int64()
    return kind
