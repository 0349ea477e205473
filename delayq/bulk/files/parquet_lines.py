"""Exported messages as Parquet: the fields of their lines as columns, with payloads as bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from delayq.broker.batches import byte_slices
from delayq.bulk.files.message_lines import FIELDS, MessageLine, payload_bytes
from delayq.bulk.message_batches import text_lengths

MAX_ROWS = 10_000
"""Rows that are read at a time, at most."""
VALUE_BYTES = 16
"""Bytes that a value takes in memory besides those of its text, about."""
_TYPES: dict[Any, pa.DataType] = {
    datetime: pa.timestamp("ms", tz="UTC"),
    int: pa.int64(),
    float: pa.float64(),
    dict[str, str]: pa.map_(pa.string(), pa.string()),
    Any: pa.binary(),  # the payload
}
"""The types of the columns that are no texts, by those of the fields."""


def _column(kind: Any) -> pa.DataType:
    return next((_TYPES[one] for one in get_args(kind) or [kind] if one in _TYPES), pa.string())


_KINDS = get_type_hints(MessageLine)
SCHEMA = pa.schema([(name, _column(_KINDS[name])) for name in FIELDS])
"""The columns: the fields of a line. `encoding` is null, as payloads are bytes, unless it is `redacted`."""
_parquet: Any = pyarrow.parquet
pc: Any = pyarrow.compute
"""Untyped: their stubs lack some parameters."""


def write_parquet(batches: Iterable[Sequence[MessageLine]], path: Path) -> None:
    """Write batches of lines as the row groups of a Parquet file, which appears as a whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _parquet.ParquetWriter(part, SCHEMA) as writer:
            for batch in batches:
                writer.write_table(pa.Table.from_pylist(list(map(_row, batch)), SCHEMA))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _row(message: MessageLine) -> dict[str, Any]:
    row = {name: getattr(message, name) for name in SCHEMA.names}
    headers = None if message.headers is None else list(message.headers.items())
    redacted = message.encoding == "redacted"
    payload = msgspec.json.encode(message.payload) if redacted else payload_bytes(message)
    encoding = message.encoding if redacted else None
    return row | {"state": str(message.state), "payload": payload, "encoding": encoding, "headers": headers}


def read_parquet(path: Path, max_bytes: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the rows of a Parquet file, many at a time, with the number of all: the fields of lines that are not null.

    Rows have at most about `max_bytes`, or one row has them all. A text that a file stores once for many rows is in
    memory once, too, until its rows are yielded. Raises `ValueError` for a file that is no Parquet.
    """
    with _parquet.ParquetFile(path) as plain:
        leaves = [plain.schema.column(at) for at in range(len(plain.schema))]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    with _parquet.ParquetFile(path, read_dictionary=texts) as file:
        names = file.schema_arrow.names
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"column {name} is there {names.count(name)} times")
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            size = sum(_decoded_size(about.column(at), leaf) for at, leaf in enumerate(leaves))
            rows = max(1, min(MAX_ROWS, max_bytes * about.num_rows // max(1, size)))
            for batch in file.iter_batches(batch_size=rows, row_groups=[group]):
                for part in byte_slices(_sizes(batch), max_bytes):
                    some = batch.slice(part.start, part.stop - part.start)
                    yield file.metadata.num_rows, list(map(_fields, some.to_pylist()))


def _decoded_size(about: Any, leaf: Any) -> int:
    """Return about how many bytes the values of a column in a row group take: texts that repeat are there once."""
    repeated = about.num_values * leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
    return int(max(about.total_uncompressed_size, repeated) + VALUE_BYTES * about.num_values)


def _sizes(batch: pa.RecordBatch) -> list[int]:
    """Return how many bytes the texts of each row have."""
    return [sum(row) for row in zip(*map(_text_sizes, batch.columns), strict=True)]


def _text_sizes(column: Any) -> list[int]:
    """Return how many bytes the texts of each value of a column have, also those within a map or list."""
    if isinstance(column, pa.DictionaryArray):
        return list(pc.fill_null(text_lengths(column), 0).to_pylist())
    if isinstance(column, pa.StructArray):
        return [sum(row) for row in zip(*map(_text_sizes, column.flatten()), strict=True)] or [0] * len(column)
    if isinstance(column, pa.ListArray | pa.LargeListArray | pa.MapArray):
        ends = list(accumulate(_text_sizes(column.values), initial=0))
        offsets: list[Any] = column.offsets.to_pylist()
        return [ends[stop] - ends[start] for start, stop in pairwise(offsets)]
    return [getattr(column.type, "byte_width", 0)] * len(column)


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in row.items() if value is not None}
    if isinstance(fields.get("headers"), list):  # a map, as pairs
        fields["headers"] = dict(fields["headers"])
    return fields
