"""Reads the event log of a queue on Spark, as a table or as a stream: one row per message and event.

Ranges of offsets are planned by arithmetic; see `delayq.archive.log_reader`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from delayq.archive.log_follower import LogFollower, Offset, begin_of
from delayq.archive.log_marks import LogBounds
from delayq.archive.log_reader import batches_of, check_log, read_bounds
from delayq.errors import ConfigurationError
from delayq.spark.datasource.compat import LIMITS_BATCHES, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from delayq.spark.datasource.source_options import EventOptions


@dataclass(frozen=True)
class EventRange(InputPartition):
    """Offsets that one task reads, and those of the whole batch; both ends are inclusive."""

    low: int
    high: int
    batch: tuple[int, int]


class _EventRangeReader:
    """Base of both readers: reads ranges of offsets, and reports lost entries."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options
        self._log = LogFollower(
            options.target,
            options.max_entries,
            options.max_events,
            options.fail_on_data_loss,
            options.fail_on_rollback,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range; raises `EventsLostError` if entries are missing, unless failOnDataLoss is false."""
        if isinstance(partition, EventRange):  # else Spark's stand-in for an empty list
            yield from batches_of(self._log.entries(partition.low, partition.high, partition.batch))

    def _start(self, bounds: LogBounds) -> int:
        start = self._options.start
        if isinstance(start, int):
            return start
        return bounds.first if start == "earliest" else bounds.last + 1

    def _split(self, low: int, high: int) -> list[EventRange]:
        parts = max(min(self._options.partitions, high - low + 1), 0)
        ends = [low - 1 + (high - low + 1) * part // parts for part in range(parts + 1)] if parts else []
        return [EventRange(before + 1, end, (low, high)) for before, end in pairwise(ends)]


class EventsReader(_EventRangeReader, DataSourceReader):
    """Reads the event log as a table with the columns of EVENTS, up to its end at planning time."""

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the requested range."""
        options, bounds = self._options, check_log(self._options.target)
        end = bounds.last if options.end is None else options.end
        if end > bounds.last:
            raise ConfigurationError(f"endingOffset {end} is beyond the event log, whose last offset is {bounds.last}")
        start = self._start(bounds)
        if start < min(bounds.first, end + 1):
            self._log.report_loss(start, min(bounds.first - 1, end))
            start = bounds.first
        return self._split(start, end)


class EventStreamReader(_EventRangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streams the event log with the columns of EVENTS, each entry once.

    A batch has at most `maxEntriesPerBatch` entries, and at most `maxEventsPerBatch` events unless its only entry has
    more. Before PySpark 4.2 it has all that there is. `Trigger.AvailableNow` reads up to the end that the log had at
    the start of the query. If the log was trimmed past the query's position, `EventsLostError` is raised unless
    failOnDataLoss is false.

    So it is if the log was deleted, or has lost its end and goes on with other entries: then failOnRollback decides.
    Without an error the stream goes back some seconds, so that it may repeat entries, and misses none.
    """

    def __init__(self, options: EventOptions) -> None:
        super().__init__(options)
        self._initial: Offset | None = None
        self._end: int | None = None

    def initialOffset(self) -> Offset:
        """Return where a query without a checkpoint starts; Spark calls it twice, so the result is kept."""
        if self._initial is None:
            bounds = check_log(self._options.target)
            start = self._start(bounds)
            if start > bounds.last + 1:
                raise ConfigurationError(
                    f"startingOffset {start} is beyond the event log, whose last offset is {bounds.last}"
                )
            self._initial = self._log.offset(max(start, 1) - 1)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the entry limit of a batch."""
        return ReadMaxRows(self._options.max_entries)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the current end of the log."""
        self._end = read_bounds(self._options.target).last

    def reportLatestOffset(self) -> Offset:
        """Return the end of the log, for the progress report."""
        return self._log.offset(read_bounds(self._options.target).last)

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the end of the next batch: the end of the log, or less if the limit is reached before."""
        if start is None:  # before PySpark 4.2
            return self._log.offset(read_bounds(self._options.target).last)
        if isinstance(limit, ReadMaxRows):
            return replace(self._log, max_entries=limit.max_rows).next_end(start, self._end)
        return replace(self._log, max_entries=sys.maxsize, max_events=None).next_end(start, self._end)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Divide a batch."""
        if LIMITS_BATCHES:
            return self._split(begin_of(start, end) + 1, end["offset"])
        # The start was not known when the end was asked for, so it was not checked.
        return self._split(self._log.resume(start, read_bounds(self._options.target)) + 1, end["offset"])
