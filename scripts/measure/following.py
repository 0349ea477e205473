"""An archive after half a day of following, and the same events in one file."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import compute, parquet

from delayq.archive import compact_archive
from delayq.bulk.files.schemas import EVENTS, arrow_schema

BATCHES = 4320
"""Batches of half a day, one every ten seconds."""
HOUR = 360
BEGIN = datetime(2026, 11, 22, 6, tzinfo=UTC)
RANGE = BEGIN + timedelta(hours=5), BEGIN + timedelta(hours=5, minutes=10)
"""The ten minutes that are read of the half day."""
QUERY = "00000000-0000-4000-8000-000000000000"
DAY = f"day={BEGIN:%Y-%m-%d}"


def follow_half_a_day(events: pa.Table, followed: Path, single: Path) -> None:
    """Write events as a follower does, batch by batch, compacted every hour, and also as one file."""
    table = _spread(events.cast(arrow_schema(EVENTS)).sort_by("log_offset"))
    place = single / DAY
    place.mkdir(parents=True)
    parquet.write_table(table, place / f"{QUERY}-0-{BATCHES - 1}.parquet", row_group_size=200_000)
    ends = [table.num_rows * number // BATCHES for number in range(BATCHES + 1)]
    for number in range(BATCHES):
        place = followed / "_recent" / f"part={QUERY}-{number}" / DAY
        place.mkdir(parents=True)
        batch = table.slice(ends[number], ends[number + 1] - ends[number])
        parquet.write_table(batch, place / "part-00000.parquet")
        if number % HOUR == HOUR - 1:
            compact_archive(str(followed))
            _age(followed)
    for folder in (followed, single):
        marker = folder / "_delayq"
        marker.mkdir()
        (marker / "part-00000.txt").write_text('{"schema": 2, "queue": "bench"}\n')


def _spread(table: pa.Table) -> pa.Table:
    """Return events with their times spread evenly over half a day."""
    step = 12 * 3600 * 1_000_000 // table.num_rows
    micros: Any = compute.add(compute.multiply(table["log_offset"], step), int(BEGIN.timestamp()) * 1_000_000)
    kind = pa.timestamp("us")
    at = micros.cast(kind).cast(pa.timestamp("us", tz="UTC"))
    due = compute.subtract(micros, 5_000_000).cast(kind).cast(pa.timestamp("us", tz="UTC"))
    has_due = compute.is_valid(table["due"])
    due = compute.if_else(has_due, due, pa.scalar(None, due.type))
    for name, column in (("event_at", at), ("due", due)):
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


def _age(folder: Path) -> None:
    """Make an archive look an hour older."""
    before = time.time() - 3700
    for path in folder.rglob("*"):
        os.utime(path, (before, before))
