"""Cuts an archive back to what it has in common with a log that was rolled back.

A server that loses its last second (a crash with `appendfsync everysec`, a failover) uses the offsets of lost entries
again. What the archive has of them never happened for the queue: it is moved to `_undone`, file by file, and a new
query goes on after the last entry that both have. All steps can be repeated, and a kill between them loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from math import inf

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet

from delayq.archive.archive_files import FORMER_NAMES, UNDONE, ArchiveFile, Undone, undone_of
from delayq.archive.archive_folder import SCHEMA, Folder, MergedFile
from delayq.archive.log_reader import batches_of, pages, read_bounds
from delayq.archive.sql_engine import DuckDB, rows_of
from delayq.archive.stored_events import open_archive
from delayq.broker.event_log import MIN_TIME_OFFSET
from delayq.bulk.connection import TargetQueue
from delayq.errors import EventsLostError


def cut_back(target: TargetQueue, path: str, folder: Folder) -> Undone | None:
    """Move what is not in the log any more aside, and return it; None if the log has all that it should have.

    Raises `EventsLostError` if the log has nothing in common with the archive.
    """
    engine, bounds = DuckDB(), read_bounds(target)
    stored = open_archive(path)
    there = f"log_offset BETWEEN {bounds.first} AND {MIN_TIME_OFFSET - 1}"
    archived = engine.query(f"SELECT * FROM {{events}} WHERE {there}", events=stored.table(engine))
    entries = (entry for page in pages(target, bounds.first, bounds.last) for entry in page)
    log = engine.table(pa.Table.from_batches(batches_of(entries), SCHEMA))
    # What `forget` has deleted from the log since is no roll-back.
    found = engine.query(
        f"""WITH differing AS (
            SELECT log_offset FROM (SELECT * FROM {{archived}} EXCEPT SELECT * FROM {{log}})
            WHERE log_offset > {bounds.last} OR log_offset IN (SELECT log_offset FROM {{log}})
        ), first AS (SELECT min(log_offset) AS other FROM differing)
        SELECT min(other) AS other, max(log_offset) AS last, count_if(log_offset < other) AS common
        FROM {{archived}} CROSS JOIN first""",
        archived=archived,
        log=log,
    )
    ((other, last, common),) = (row.values() for row in rows_of(engine, found))
    if other is None:
        return None
    # Without any entry in the log there is nothing to compare with.
    if not common and (bounds.first == 1 or bounds.last >= bounds.first):
        raise EventsLostError(
            f"the event log of queue {target.queue!r} was deleted and begins anew: it has no entry in common with the"
            " archive; archive it in a new folder, and keep this one"
        )
    with folder.locked(wait=True):
        return _move_aside(folder, other, last, sorted({file.query for file in stored.files if file.query}))


def _move_aside(folder: Folder, first: int, last: int, queries: Sequence[str]) -> Undone:
    """Move the events from an offset on out of each file, then note it in the facts."""
    counting = {file.path for file in folder.divided()[0]}
    number = len(undone_of(folder.facts()))
    aside = f"{folder.root}/{UNDONE}/{number}"
    for info in folder.files():
        _cut(folder, ArchiveFile.at(info.path), first, aside if info.path in counting else None)
    events = 0
    for info in folder.listed(aside):
        with parquet.ParquetFile(info.path, filesystem=folder.system) as moved:
            events += moved.metadata.num_rows
    done = Undone(first, last, events)
    folder.note_undone(done, queries)
    return done


def _cut(folder: Folder, file: ArchiveFile, first: int, aside: str | None) -> None:
    """Replace a file by one without the events from an offset on, which go to a file `aside` before."""
    if _last_offset(folder, file.path) < first:
        return
    name = file.path.removeprefix(f"{folder.root}/").replace("/", "-").lstrip("_")  # else readers would skip it
    with ExitStack() as stack:  # which finishes the last one first
        kept = stack.enter_context(MergedFile(folder.system, file.path))
        moved = stack.enter_context(MergedFile(folder.system, f"{aside}/{name}")) if aside else None
        for table in folder.tables([file]):
            is_other = pc.greater_equal(table["log_offset"], pa.scalar(first, pa.int64()))
            kept.add(table.filter(pc.invert(is_other)))
            if moved is not None:
                moved.add(table.filter(is_other))
        folder.delete_checksum(file.path)


def _last_offset(folder: Folder, path: str) -> float:
    """Return the last offset in a file, from its statistics; infinite if it has none."""
    with parquet.ParquetFile(path, filesystem=folder.system) as file:
        names = file.schema_arrow.names
        column = next(names.index(name) for name in ("log_offset", FORMER_NAMES["log_offset"]) if name in names)
        groups = [file.metadata.row_group(n).column(column).statistics for n in range(file.num_row_groups)]
    return max((inf if one is None or one.max is None else float(one.max) for one in groups), default=-inf)
