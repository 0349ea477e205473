"""Rows of the event log on their way into Arrow: an entry gives its columns whole, not message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from delayq.answers import Entry
from delayq.events import Columns
from delayq.spark.reading import INSTANT, instants

_COLUMNS: dict[str, pa.DataType] = {
    "offset": pa.int64(),
    "index": pa.int32(),
    "at": INSTANT,
    "kind": pa.string(),
    "id": pa.string(),
    "due": INSTANT,
    "attempt": pa.int32(),
    "token": pa.int64(),
    "retries_left": pa.int32(),
    "holder": pa.string(),
    "run": pa.string(),
    "reason": pa.string(),
    "error": pa.string(),
}
SCHEMA = pa.schema(_COLUMNS)
"""EVENTS, in Arrow's words."""


def batch_of(entries: Sequence[Entry]) -> pa.RecordBatch:
    """Return what entries of the log tell, a row for each message and event."""
    cells: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for entry in entries:
        _add(cells, entry)
    arrays: list[pa.Array[Any]] = []
    for field in SCHEMA:
        column = cells[field.name]
        arrays.append(instants(column) if field.type == INSTANT else pa.array(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _add(cells: dict[str, list[Any]], entry: Entry) -> None:
    columns = Columns.of(entry)
    ids: Sequence[str | None] = columns.ids or [None]  # a purge names no message
    count = len(ids)
    cells["id"] += ids
    cells["index"] += range(count)
    for name, value in (
        ("offset", entry.offset),
        ("at", entry.at),
        ("kind", entry.kind),
        ("holder", columns.holder),
        ("run", columns.run),
    ):
        cells[name] += [value] * count
    for name, column in (
        ("due", columns.dues),
        ("attempt", columns.attempts),
        ("token", columns.tokens),
        ("retries_left", columns.retries),
        ("reason", [reason or None for reason in columns.reasons]),
        ("error", [error or None for error in columns.errors]),
    ):
        cells[name] += column if len(column) == count else [*column[:count], *[None] * (count - len(column))]
