"""Exported messages as Parquet: the fields of their lines as columns, with payloads as bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet

from delayq.bulk.message_lines import FIELDS, MessageLine, payload_bytes

MAX_ROWS = 10_000
"""Rows that are read at a time."""
_INSTANT = pa.timestamp("ms", tz="UTC")
_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("due", "expires", "died"), _INSTANT),
    **dict.fromkeys(("retries", "attempts", "priority", "snoozes"), pa.int64()),
    **dict.fromkeys(("expires_after", "timeout", "retention", "unique_for", "unique_after"), pa.float64()),
    "payload": pa.binary(),
    "headers": pa.map_(pa.string(), pa.string()),
}
"""The types of the columns that are no texts."""
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in FIELDS])
"""The columns: the fields of a line. `encoding` is null, as payloads are bytes, unless it is `redacted`."""
_parquet: Any = pyarrow.parquet
"""Untyped: its stubs lack some parameters."""


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


def read_parquet(path: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the rows of a Parquet file, many at a time, with the number of all: the fields of lines that are not null.

    Takes the memory of a row group. Raises `ValueError` for a file that is no Parquet.
    """
    with _parquet.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(batch_size=MAX_ROWS, row_groups=[group]):
                yield file.metadata.num_rows, list(map(_fields, batch.to_pylist()))


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in row.items() if value is not None}
    if isinstance(fields.get("headers"), list):  # a map, as pairs
        fields["headers"] = dict(fields["headers"])
    return fields
