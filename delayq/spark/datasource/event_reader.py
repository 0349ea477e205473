"""Reads the event log of a queue, as a table or as a stream: one row per message and event.

On Redis 7 and later the log entries are numbered without gaps. So ranges are planned by arithmetic, and loss is
detected by counting: a range must contain as many entries as it has numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from delayq.broker.event_log import MIN_TIME_OFFSET, EventEntry, offset_of, read_events
from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.broker.scripts import MAX_IDS
from delayq.bulk.connection import TargetQueue, calls_of, check_queue, connect, partitions_of
from delayq.errors import ConfigurationError, EventsLostError, ServerError
from delayq.queue.inspecting.event_log import EventColumns
from delayq.queue.placing.layout import refuse_partitions
from delayq.safe_log import SafeLog
from delayq.spark.datasource.compat import LIMITS_BATCHES, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from delayq.spark.datasource.log_gaps import gaps_between, told
from delayq.spark.datasource.log_marks import LogBounds, offset_before, read_mark
from delayq.spark.datasource.schemas import BATCH_ROWS, EVENTS, arrow_schema, record_batch
from delayq.spark.datasource.source_options import EventOptions

log = SafeLog("delayq.spark")

PAGE = 100
"""Entries per call: a millisecond of the server's time, although one entry may describe a thousand messages."""

SCHEMA = arrow_schema(EVENTS)

Offset = dict[str, Any]
"""A stream's progress, as Spark stores it: the queue, the offset of the last entry read, and what marks this entry.

The end of a batch has `after`, too, if the batch begins elsewhere than after the one before it.
"""


@dataclass(frozen=True)
class EventRange(InputPartition):
    """Offsets that one task reads, and those of the whole batch; both ends are inclusive."""

    low: int
    high: int
    batch: tuple[int, int]


def read_bounds(target: TargetQueue) -> LogBounds:
    """Return the extent of the event log; if nothing was ever written to it, the last offset is 0."""
    try:
        info = connect(target).call(RedisCommand(("XINFO", "STREAM", calls_of(target).keys.events), pairs))
    except ServerError as error:
        if "no such key" in str(error):
            return LogBounds(1, 0)
        raise
    first, last = info[b"first-entry"], offset_of(info[b"last-generated-id"])
    return LogBounds(offset_of(first[0]) if first else last + 1, last)


def check_log(target: TargetQueue) -> LogBounds:
    """Return the extent of the event log; raises `ConfigurationError` if there is no such queue, or it keeps no log.

    Raises `PartitionsError` if it has several.
    """
    check_queue(target)
    refuse_partitions(target.queue, [one.queue for one in partitions_of(target)], "read the event log of each")
    bounds = read_bounds(target)
    is_on = RedisCommand(("HEXISTS", calls_of(target).keys.meta, "events"), bool)
    if not bounds.last and not connect(target).call(is_on):
        queue = target.queue
        raise ConfigurationError(
            f"queue {queue!r} has no event log: switch it on with DelayQueue({queue!r}, events=True)"
        )
    return bounds


def batch_of(entries: Sequence[EventEntry]) -> pa.RecordBatch:
    """Return the events of some log entries as one batch, with a row per message and event."""
    cells: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for entry in entries:
        if not entry.kind:  # added by another program
            continue
        # Column by column; going through the messages one by one would be slow.
        columns = EventColumns.of(entry)
        ids: Sequence[str | None] = columns.ids or [None]  # a purge has no ids
        count = len(ids)
        shared = {"log_offset": entry.offset, "event_at": entry.at, "kind": entry.kind}
        for name, value in (*shared.items(), ("holder", columns.holder), ("run", columns.run)):
            cells[name] += [value] * count
        own: dict[str, Sequence[Any]] = {
            "id": ids,
            "entry_index": range(count),
            "due": columns.dues,
            "attempt": columns.attempts,
            "token": columns.tokens,
            "retries_left": columns.retries,
            "reason": [reason or None for reason in columns.reasons],
            "error": [error or None for error in columns.errors],
        }
        for name, column in own.items():
            cells[name] += column if len(column) == count else [*column[:count], *[None] * (count - len(column))]
    return record_batch(cells, SCHEMA)


def _events_of(entry: EventEntry) -> int:
    return entry.columns.get("ids", b"").count(b" ") + 1


class _EventRangeReader:
    """Base of both readers: reads ranges of offsets, and reports lost entries."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range; raises `EventsLostError` if entries are missing, unless failOnDataLoss is false."""
        if not isinstance(partition, EventRange):  # Spark's stand-in for an empty list
            return
        entries, messages, count = list[EventEntry](), 0, 0
        for page in self._pages(partition.low, partition.high):
            count += len(page)
            for entry in page:
                entries.append(entry)
                messages += _events_of(entry)
                if messages >= BATCH_ROWS:
                    yield batch_of(entries)
                    entries, messages = [], 0
        if entries:
            yield batch_of(entries)
        if count <= partition.high - partition.low and partition.high < MIN_TIME_OFFSET:
            # The error of the first task ends the query, so it tells what is lost for all of them.
            self._report_loss(
                *(partition.batch if self._options.fail_on_data_loss else (partition.low, partition.high))
            )

    def _pages(self, low: int, high: int) -> Iterator[list[EventEntry]]:
        executor, calls = connect(self._options.target), calls_of(self._options.target)
        while low <= high:
            entries = executor.call(read_events(calls, low, high, limit=PAGE))
            if not entries:
                return
            yield entries
            low = entries[-1].offset + 1

    def _start(self, bounds: LogBounds) -> int:
        start = self._options.start
        if isinstance(start, int):
            return start
        return bounds.first if start == "earliest" else bounds.last + 1

    def _split(self, low: int, high: int) -> list[EventRange]:
        parts = max(min(self._options.partitions, high - low + 1), 0)
        ends = [low - 1 + (high - low + 1) * part // parts for part in range(parts + 1)] if parts else []
        return [EventRange(before + 1, end, (low, high)) for before, end in pairwise(ends)]

    def _report_loss(self, low: int, high: int) -> None:
        """Raise or log which entries of a range are gone; all of what was trimmed since, even beyond the range."""
        log_name = f"the event log of queue {self._options.target.queue!r}"
        if high >= MIN_TIME_OFFSET:
            text = f"entries of {log_name} may have been deleted before being read, between offsets {low} and {high}"
        else:
            if self._options.fail_on_data_loss:
                high = max(high, read_bounds(self._options.target).first - 1)
            gaps = gaps_between((entry.offset for page in self._pages(low, high) for entry in page), low, high)
            text = f"{log_name} has lost {told(gaps)}: deleted before being read"
        if self._options.fail_on_data_loss:
            raise EventsLostError(
                f"{text}; continue without them with --allow-loss (in code: failOnDataLoss=false), and keep more with a"
                " larger events_max_len"
            )
        log.warning("%s; continuing without them", text)


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
            self._report_loss(start, min(bounds.first - 1, end))
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
            self._initial = self._offset(max(start, 1) - 1)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the entry limit of a batch."""
        return ReadMaxRows(self._options.max_entries)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the current end of the log."""
        self._end = read_bounds(self._options.target).last

    def reportLatestOffset(self) -> Offset:
        """Return the end of the log, for the progress report."""
        return self._offset(read_bounds(self._options.target).last)

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the end of the next batch: the end of the log, or less if the limit is reached before."""
        if start is None:  # before PySpark 4.2
            return self._offset(read_bounds(self._options.target).last)
        while True:
            bounds = read_bounds(self._options.target)
            after = self._resume(start, bounds)
            last = bounds.last if self._end is None else min(self._end, bounds.last)
            if last <= after:
                return start
            if isinstance(limit, ReadMaxRows):
                last = self._limited(after, last, limit.max_rows)
            end = self._offset(last)
            if after < start["offset"]:
                end["after"] = after
            # The end may be of a log that was rolled back after the check of the start.
            if after != start["offset"] or not self._is_other(start):
                return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Divide a batch."""
        if LIMITS_BATCHES:
            after = end["after"] if "after" in end else start["offset"]
        else:  # the start was not known when the end was asked for, so it was not checked
            after = self._resume(start, read_bounds(self._options.target))
        return self._split(after + 1, end["offset"])

    def _resume(self, start: Offset, bounds: LogBounds) -> int:
        """Return the offset after which to continue; it differs from `start` if entries there are lost."""
        queue, after = start["queue"], int(start["offset"])
        if queue != self._options.target.queue:
            raise ConfigurationError(
                f"the checkpoint belongs to queue {queue!r}, not to {self._options.target.queue!r}: give each its own"
            )
        if bounds.last < after:
            return self._restart(
                f"was deleted or rolled back: it ends at offset {bounds.last}, but the query has read up to {after}",
                start,
                bounds,
            )
        if self._is_other(start):
            return self._restart(f"was rolled back: offset {after} has another entry than was read", start, bounds)
        first = bounds.first
        if first > after + 1 and (after or bounds.last < MIN_TIME_OFFSET):
            self._report_loss(after + 1, first - 1)
            return first - 1
        return after

    def _is_other(self, start: Offset) -> bool:
        """Return whether the log has another entry at an offset than was read there; not if it was deleted since."""
        known = start.get("entry")
        mark = known and read_mark(self._options.target, int(start["offset"]))
        return bool(mark and mark != known)

    def _restart(self, what: str, start: Offset, bounds: LogBounds) -> int:
        """Return the offset before all that may be new in a log that is not the one that was read."""
        text = f"the event log of queue {self._options.target.queue!r} {what}"
        if self._options.fail_on_rollback:
            raise EventsLostError(
                f"{text}; go on in it with failOnRollback=false, which may repeat entries of the last seconds"
            )
        log.warning("%s; going back, so entries may be repeated", text)
        return offset_before(self._options.target, bounds, start.get("entry"))

    def _limited(self, after: int, last: int, max_entries: int) -> int:
        """Return where a batch after an offset ends, `last` at most: by its entries, and by the events they have."""
        max_events = self._options.max_events
        if last < MIN_TIME_OFFSET:
            last = min(last, after + max_entries)
            if max_events is None or (last - after) * MAX_IDS <= max_events:
                return last
        events = 0
        for number, entry in enumerate(chain.from_iterable(self._pages(after + 1, last))):
            events += _events_of(entry)
            if number == max_entries or (number and max_events is not None and events > max_events):
                return after
            after = entry.offset
        return last

    def _offset(self, offset: int) -> Offset:
        # Spark compares offsets as JSON text, so the order of the keys matters.
        mark = read_mark(self._options.target, offset)
        return {"queue": self._options.target.queue, "offset": offset} | ({"entry": mark} if mark else {})
