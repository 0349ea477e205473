"""Reads the event log of a queue, as a table or as a stream: a row for each message and event.

The entries of the log are numbered without gaps (on Redis 7 and later), so that what to read is planned by arithmetic,
and that nothing was lost is shown by counting: a range must hold as many entries as it has numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from delayq.answers import LEAST_TIME, Entry
from delayq.errors import ConfigurationError, DelayqError, EventsLostError, ServerError
from delayq.spark.commands import Log, log_setting
from delayq.spark.commands import log as reach
from delayq.spark.connection import calls_of, connect
from delayq.spark.event_rows import batch_of
from delayq.spark.options import EventOptions, Target
from delayq.spark.reading import ROWS, check_queue

log = logging.getLogger("delayq.spark")

PAGE = 100
"""Entries read in one call: a millisecond of the server's time, though each may tell of a thousand messages."""

Offset = dict[str, Any]
"""Where a stream has come to, as Spark keeps it: the queue, and the offset of the last entry read."""


@dataclass(frozen=True)
class EventRange(InputPartition):
    """Offsets that one task reads, both included."""

    low: int
    high: int


def log_of(target: Target) -> Log:
    """Return how far the event log of a queue reaches; offsets are 0 if nothing was ever written to it."""
    (answer,) = connect(target).run([reach(calls_of(target).keys)])
    if isinstance(answer, ServerError) and "no such key" in str(answer):
        return Log(0, 0)
    if isinstance(answer, DelayqError):
        raise answer
    return answer  # type: ignore[no-any-return]  # what a Command[Log] answers


def check_log(target: Target) -> Log:
    """Return how far the event log reaches; `ConfigurationError` if the queue is not there or keeps none."""
    check_queue(target)
    found = log_of(target)
    if not found.last and not connect(target).call(log_setting(calls_of(target).keys)):
        queue = target.queue
        raise ConfigurationError(
            f"queue {queue!r} keeps no event log: DelayQueue({queue!r}, events=True) switches it on"
        )
    return found


class _Reader:
    """What the table and the stream have in common: reading a range."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range; `EventsLostError` if entries of it are gone, unless failOnDataLoss is false."""
        if not isinstance(partition, EventRange):  # what Spark makes of no range at all
            return
        entries, messages, count = list[Entry](), 0, 0
        for page in self._pages(partition):
            count += len(page)
            for entry in page:
                entries.append(entry)
                messages += entry.columns.get("ids", b"").count(b" ") + 1
                if messages >= ROWS:
                    yield batch_of(entries)
                    entries, messages = [], 0
        if entries:
            yield batch_of(entries)
        missing = partition.high - partition.low + 1 - count
        if missing and partition.high < LEAST_TIME:
            self._lose(missing, partition.low, partition.high)

    def _pages(self, wanted: EventRange) -> Iterator[list[Entry]]:
        executor, calls = connect(self._options.target), calls_of(self._options.target)
        low = wanted.low
        while low <= wanted.high:
            entries = executor.call(calls.events(low, wanted.high, limit=PAGE))
            if not entries:
                return
            yield entries
            low = entries[-1].offset + 1

    def _split(self, low: int, high: int) -> list[EventRange]:
        parts = max(min(self._options.partitions, high - low + 1), 0)
        ends = [low - 1 + (high - low + 1) * part // parts for part in range(parts + 1)] if parts else []
        return [EventRange(before + 1, end) for before, end in pairwise(ends)]

    def _lose(self, missing: int | None, low: int, high: int) -> None:
        """Say that entries of a range are gone; None if it is not known how many, or whether any."""
        queue = self._options.target.queue
        if missing is None:
            some, were = "entries", "may have been"
        else:
            some, were = ("1 entry", "was") if missing == 1 else (f"{missing} entries", "were")
        text = f"{some} of the event log of queue {queue!r} {were} deleted before they were read, from {low} to {high}"
        if self._options.fail_on_data_loss:
            raise EventsLostError(
                f"{text}; failOnDataLoss=false reads on without them, a greater events_max_len keeps more"
            )
        log.warning("%s; reading on without them", text, extra={"missing": missing})


class EventsReader(_Reader, DataSourceReader):
    """Reads the event log as a table with the columns of EVENTS, up to where it reached when the read was planned."""

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the range that was asked for."""
        options, found = self._options, check_log(self._options.target)
        end = found.last if options.end is None else options.end
        if end > found.last:
            raise ConfigurationError(f"endingOffset {end} is beyond the event log, whose last offset is {found.last}")
        kept = found.first or found.last + 1
        if options.start == "earliest":
            start = kept
        elif options.start == "latest":
            start = found.last + 1
        else:
            start = options.start
            if start < min(kept, end + 1):
                last_missing = min(kept - 1, end)
                self._lose(last_missing - start + 1 if end < LEAST_TIME else None, start, last_missing)
                start = kept
        return self._split(start, end)


class EventStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the event log as a stream with the columns of EVENTS, each entry once.

    A batch holds at most `maxEntriesPerBatch` entries. With `Trigger.AvailableNow` it ends where the log ended when the
    query began, in batches of that size. A log that was trimmed past the place of the query, or deleted and begun anew,
    raises `EventsLostError`, unless failOnDataLoss is false.
    """

    def __init__(self, options: EventOptions) -> None:
        super().__init__(options)
        self._initial: Offset | None = None
        self._goal: int | None = None

    def initialOffset(self) -> Offset:
        """Return where a query without a checkpoint begins; the same however often it is asked."""
        if self._initial is None:
            start, found = self._options.start, check_log(self._options.target)
            if start == "earliest":
                start = found.first or found.last + 1
            elif start == "latest":
                start = found.last + 1
            elif start > found.last + 1:
                raise ConfigurationError(
                    f"startingOffset {start} is beyond the event log, whose last offset is {found.last}"
                )
            self._initial = self._offset(max(start, 1) - 1)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how many entries a batch may hold."""
        return ReadMaxRows(self._options.max_entries)

    def prepareForTriggerAvailableNow(self) -> None:
        """End where the log ends now."""
        self._goal = log_of(self._options.target).last

    def reportLatestOffset(self) -> Offset:
        """Return where the log ends, for the progress report."""
        return self._offset(log_of(self._options.target).last)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return where the next batch ends: at the end of the log, or as far as the limit goes."""
        found = log_of(self._options.target)
        after = self._checked(start, found)
        last = found.last if self._goal is None else min(self._goal, found.last)
        if last <= after:
            return start
        if not isinstance(limit, ReadMaxRows):
            return self._offset(last)
        if last < LEAST_TIME:
            return self._offset(min(last, after + limit.max_rows))
        return self._offset(self._walked(after, last, limit.max_rows))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Divide a batch."""
        # A log that was begun anew is read from its beginning.
        after = start["offset"] if end["offset"] >= start["offset"] else 0
        return self._split(after + 1, end["offset"])

    def _checked(self, start: Offset, found: Log) -> int:
        """Return the offset behind which to read on, which is further on or 0 if what was there is lost."""
        queue, after = start["queue"], int(start["offset"])
        if queue != self._options.target.queue:
            raise ConfigurationError(
                f"the checkpoint is of queue {queue!r}, not of {self._options.target.queue!r}: give each its own"
            )
        if found.last < after:
            return self._begun_anew(after, found)
        kept = found.first or found.last + 1
        if kept > after + 1 and (after or found.last < LEAST_TIME):
            self._lose(kept - after - 1 if kept < LEAST_TIME else None, after + 1, kept - 1)
            return kept - 1
        return after

    def _begun_anew(self, after: int, found: Log) -> int:
        text = (
            f"the event log of queue {self._options.target.queue!r} was deleted: it reaches offset {found.last},"
            f" and {after} has been read before"
        )
        if self._options.fail_on_data_loss:
            raise EventsLostError(f"{text}; failOnDataLoss=false reads it from its beginning")
        log.warning("%s; reading it from its beginning", text)
        return 0

    def _walked(self, after: int, last: int, most: int) -> int:
        """Return the offset of the entry that is so many behind another; for ids that are times, as before Redis 7."""
        for entries in self._pages(EventRange(after + 1, last)):
            if len(entries) >= most:
                return entries[most - 1].offset
            most -= len(entries)
            after = entries[-1].offset
        return after

    def _offset(self, offset: int) -> Offset:
        # Spark compares offsets as the text of their JSON, so the order of the names counts.
        return {"queue": self._options.target.queue, "offset": offset}
