"""Cuts an archive back to what it has in common with a log that was rolled back.

A server that loses its last second (a crash with `appendfsync everysec`, a failover) uses the offsets of lost entries
again. What the archive has of them never happened for the queue: it is moved to `_undone`, file by file, and a new
query goes on after the last entry that both have. All steps can be repeated, and a kill between them loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import parquet
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from delayq.broker.event_log import MIN_TIME_OFFSET
from delayq.bulk.connection import TargetQueue
from delayq.errors import EventsLostError
from delayq.spark.datasource.event_reader import read_bounds
from delayq.spark.datasource.log_marks import LogBounds
from delayq.spark.datasource.source_options import as_options
from delayq.spark.pipelines.archiving.archive_files import FORMER_NAMES, ArchiveFile
from delayq.spark.pipelines.archiving.archive_folder import Folder, MergedFile
from delayq.spark.pipelines.archiving.archive_reader import archive_facts, event_files, read_archive
from delayq.values.text import pluralize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNDONE = "_undone"
"""The folder in an archive with the events of lost entries, by the number of the roll-back."""


class Undone(NamedTuple):
    """What the server lost after it was archived, in one roll-back."""

    first: int
    """The first offset; the log goes on here with other entries."""
    last: int
    events: int
    """Archived events that were moved to `_undone`."""

    def told(self) -> str:
        """Return it as a sentence."""
        events = pluralize(self.events, "archived event")
        return f"the log was rolled back: {events}, offsets {self.first} to {self.last}, moved to {UNDONE}"


def undone_of(facts: Mapping[str, Any]) -> list[Undone]:
    """Return the roll-backs of an archive, the first one first, by its facts."""
    return [Undone(*one) for one in facts.get("undone", ())]


def undone(spark: SparkSession, path: str) -> list[Undone]:
    """Return the roll-backs that an archive has seen, the first one first: events that a crash of Redis has undone."""
    return undone_of(archive_facts(spark, path.rstrip("/") or path))


def cut_back(spark: SparkSession, target: TargetQueue, path: str) -> Undone | None:
    """Move what is not in the log any more aside, and return it; None if the log has all that it should have.

    Raises `EventsLostError` if the log has nothing in common with the archive, or this process does not reach it.
    """
    events, bounds = read_archive(spark, path), read_bounds(target)
    archived = events.where(f"log_offset BETWEEN {bounds.first} AND {MIN_TIME_OFFSET - 1}").persist()
    try:
        first = _first_other(spark, archived, target, bounds)
        if first is None:
            return None
        last = int(archived.agg(F.max("log_offset")).collect()[0][0])
    finally:
        archived.unpersist()
    folder = None if is_remote() else Folder.open(path)
    if folder is None:
        raise EventsLostError(
            f"the event log of queue {target.queue!r} was rolled back to offset {first - 1}, and the archive at {path}"
            " cannot be cut back: this process does not reach the folder; run it where it does"
        )
    files = event_files(spark, path, archive_facts(spark, path))
    with folder.locked(wait=True):
        return _move_aside(folder, first, last, sorted({file.query for file in files if file.query}))


def _first_other(spark: SparkSession, archived: DataFrame, target: TargetQueue, bounds: LogBounds) -> int | None:
    """Return the first archived offset that is beyond the log, or at which the log has another entry; None for none."""
    options = as_options(
        queue=target.queue,
        url=target.url,
        prefix=target.prefix,
        read="events",
        startingOffset=bounds.first,
        endingOffset=max(bounds.last, bounds.first - 1),
        failOnDataLoss=False,  # what `forget` has deleted since is no roll-back
    )
    beyond = archived.where(f"log_offset > {bounds.last}").agg(F.min("log_offset")).collect()[0][0]
    if bounds.last < bounds.first:  # nothing to compare with
        other, common = beyond, 0 if bounds.first == 1 else 1
    else:
        log = spark.read.format("delayq").options(**options).load()
        there = log.select("log_offset").distinct()
        differing = archived.subtract(log).select("log_offset").distinct().join(there, "log_offset", "left_semi")
        found = differing.agg(F.min("log_offset")).collect()[0][0]
        other = min((one for one in (found, beyond) if one is not None), default=None)
        common = 0 if other is None else archived.where(f"log_offset < {other}").limit(1).count()
    if other is not None and not common:
        raise EventsLostError(
            f"the event log of queue {target.queue!r} was deleted and begins anew: it has no entry in common with the"
            " archive; archive it in a new folder, and keep this one"
        )
    return None if other is None else int(other)


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
