"""Reads the current state of a queue: one row per message.

The queue stays in use, so the result is not of one instant; but a message that only moves forward is never missed.
Partitions are ranges of due times with equal shares of the pending messages. A task reads the pending messages of its
range first, then scans for those promoted meanwhile, then for those that died meanwhile. Each id is listed once, in the
state in which it was read first. Of a queue over partitions each is divided so; a message that moves to another
partition meanwhile, as the queue grows, may be missed or listed twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delayq.broker.calls import Calls
from delayq.broker.foreign import record_fields
from delayq.broker.keys import Keys
from delayq.broker.replies import MessageRow
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.transport.operation import together
from delayq.bulk.connection import TargetQueue, calls_of, check_queue, connect, partitions_of
from delayq.errors import ConfigurationError
from delayq.queue.inspecting.deaths import Death, read_death
from delayq.queue.inspecting.inspector import RECORDED_STATES
from delayq.queue.sweeps.stored_messages import MAX_DUE, UNPROMOTED, SnapshotReply, snapshot_call
from delayq.spark.datasource.compat import Filter
from delayq.spark.datasource.schemas import BATCH_ROWS, SNAPSHOT, arrow_schema, record_batch
from delayq.spark.datasource.source_options import SnapshotOptions
from delayq.values.codec import decode_headers
from delayq.values.states import State, state_at
from delayq.values.times import timestamp

BATCH_BYTES = 8 << 20
"""Approximate bytes of payloads in one Arrow batch."""
SCHEMA = arrow_schema(SNAPSHOT)


class SnapshotRows:
    """Rows collected for the next Arrow batch."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.count = self._bytes = 0
        self._cells: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}

    @property
    def is_full(self) -> bool:
        """Whether there are enough rows for a batch."""
        return self.count >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add_pending(self, page: SnapshotReply, dues: list[int], selected: range) -> None:
        """Add the selected rows of a page of pending messages."""
        count = len(selected)
        part = slice(selected.start, selected.stop)
        states = [state_at(State.PENDING, due, page.now) for due in dues[part]]
        self._add_page(page, part, state=states, due=dues[part], attempt=[0] * count)
        # A message that was delivered before and then rescheduled has a record.
        for index, record in enumerate(page.records[part]):
            if record:
                _, _, attempt, _, token, holder = record_fields(record.decode("utf-8", "replace"))
                at = index - count
                self._cells["attempt"][at], self._cells["token"][at] = int(attempt), int(token) or None
                self._cells["holder"][at] = None if holder == "-" else holder

    def add_promoted(self, page: SnapshotReply, index: int, record: list[str]) -> None:
        """Add one row of a page of promoted messages; `record` is its record, split."""
        word, due, attempt, _, token, holder = record
        self._add_page(
            page,
            slice(index, index + 1),
            state=[RECORDED_STATES[word]],
            due=[int(due)],
            deadline=[int(page.times[index]) if page.times[index] else None],
            attempt=[int(attempt)],
            token=[int(token) or None],
            holder=[None if holder == "-" else holder],
        )

    def add_dead(self, row: MessageRow, death: Death, *, with_payload: bool) -> None:
        """Add a message of the dead letter."""
        id, _, token = row.id.rpartition(":")
        self._add(
            1,
            id=[id.encode()],
            state=[State.DEAD],
            due=[timestamp(death.due)],
            retries_left=[0],
            attempt=[death.attempts],
            token=[int(token)],
            reason=[death.reason],
            error=[death.error.encode() or None],
            died=[timestamp(death.died)],
            payload_size=[row.size - len(row.payload) + len(death.payload)],
            payload=[death.payload] if with_payload else [],
            headers=_headers([death.headers]),
        )

    def _add_page(self, page: SnapshotReply, part: slice, **columns: list[Any]) -> None:
        """Add a part of a page; `columns` are those that depend on the state."""
        ids = page.ids[part]
        self._add(
            len(ids),
            id=ids,
            retries_left=[int(left or 0) for left in page.retries[part]],
            error=page.errors[part],
            payload_size=page.sizes[part],
            payload=page.payloads[part],
            headers=_headers(page.headers[part]),
            **columns,
        )

    def _add(self, count: int, **columns: list[Any]) -> None:
        """Add rows by columns; a missing or empty column is null in all of them."""
        for name in self._cells:
            self._cells[name] += columns.get(name) or [None] * count
        self.count += count
        self._bytes += sum(map(len, filter(None, columns["payload"])))

    def take(self) -> pa.RecordBatch:
        """Return all rows as a batch, and start a new one."""
        batch = record_batch(self._cells, SCHEMA)
        self._reset()
        return batch


def _headers(stored: list[bytes | None]) -> list[Any]:
    """Return headers as pairs, which Arrow takes as a map."""
    return [list(decode_headers(headers).items()) if headers else None for headers in stored]


Position = tuple[int, bytes]
"""Due time (ms) and id: the order by which messages are partitioned."""

PAGE = 1000
"""Messages per call: it occupies the server for a few milliseconds."""
PAGE_WITH_PAYLOADS = 50
"""The same with payloads, which may be a MiB each, for calls that have no byte limit."""
PAGE_BYTES = 1 << 20
"""Byte limit for the payloads of a page of pending messages."""
SOON = 3_600_000
"""Milliseconds: pending messages due within this time may be promoted before the task ends, so their ids are kept."""


@dataclass(frozen=True)
class SnapshotPartition(InputPartition):
    """What one task reads: a range of living messages, or the dead letter."""

    after: Position
    """Exclusive."""
    until: Position
    """Inclusive."""
    planned: int
    """When the read was planned (ms). Partitions of living messages also read those of their range that died since."""
    queue: str
    """The queue, or the partition of it, that has them."""
    is_dead_letter: bool = False

    def contains(self, due: int, id: bytes) -> bool:
        """Return whether a message belongs to this partition."""
        return self.after < (due, id) <= self.until


class SnapshotReader(DataSourceReader):
    """Reads the messages of a queue with the columns of SNAPSHOT.

    A message that is in the queue during the whole read is listed exactly once, in a state that it had meanwhile.
    Exceptions: one that is rescheduled, replaced or redriven during the read may be missed, or listed twice if its due
    time moves to another partition; and a read of more than an hour gives no guarantee. Messages that arrive or leave
    meanwhile may or may not be listed.
    """

    def __new__(cls, options: SnapshotOptions | None = None) -> Self:
        """Create a reader with `pushFilters` only if requested: without its own setting, Spark refuses such readers."""
        pushes = options is not None and options.pushdown
        return super().__new__(_PushdownSnapshotReader if pushes else cls)  # type: ignore[return-value]  # a subclass

    def __init__(self, options: SnapshotOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the queue, or each of its partitions; raises `ConfigurationError` if there is no such queue."""
        check_queue(self._options.target)
        targets = partitions_of(self._options.target)
        share = max(1, self._options.partitions // len(targets))
        return [one for target in targets for one in self._ranges(target, share)]

    def _ranges(self, target: TargetQueue, number: int) -> list[SnapshotPartition]:
        options, calls, name = self._options, calls_of(target), target.queue
        low = 0 if options.due_from is None else max(options.due_from, 0)
        high = MAX_DUE if options.due_to is None else options.due_to
        counts = [RedisCommand(("ZCOUNT", calls.keys.pending, "-inf", f"({due}"), int) for due in (low, high)]
        now, before, through = connect(target).perform(together([calls.time(), *counts]))
        ends: list[Position] = []
        if not UNPROMOTED.isdisjoint(options.states):
            # The last message of each range; the last range ends with the period.
            ranks = {before + (through - before) * part // number for part in range(1, number)}
            lasts = [pending_at(calls.keys, rank - 1) for rank in sorted(ranks) if rank > before]
            found = connect(target).perform(together(lasts))
            ends = [end for end in found if end is not None and (low, b"") < end < (high, b"")]
        bounds = [(low, b""), *ends, (high, b"")]
        if set(options.states) <= {State.DEAD}:
            whole = SnapshotPartition(bounds[0], bounds[-1], MAX_DUE, name, is_dead_letter=True)
            return [whole] if options.states else []
        ranges = [SnapshotPartition(*pair, now, name) for pair in pairwise(bounds) if pair[0] < pair[1]]
        if State.DEAD in options.states:
            ranges.append(SnapshotPartition(bounds[0], bounds[-1], now, name, is_dead_letter=True))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        if not isinstance(partition, SnapshotPartition):  # Spark's stand-in for an empty list
            return
        rows = SnapshotRows()
        for _ in self._dead(partition, rows) if partition.is_dead_letter else self._living(partition, rows):
            if rows.is_full:
                yield rows.take()
        if rows.count:
            yield rows.take()

    def _living(self, partition: SnapshotPartition, rows: SnapshotRows) -> Iterator[None]:
        states, seen, now = self._options.states, set[bytes](), 0
        if not UNPROMOTED.isdisjoint(states):
            for page, after in self._pages(partition):
                now = page.now
                dues = list(map(int, page.times))
                ready = bisect_right(dues, now)
                selected = self._wanted(_between(after, partition.until, page.ids, dues), ready)
                rows.add_pending(page, dues, selected)
                seen.update(page.ids[selected.start : min(selected.stop, bisect_right(dues, now + SOON))])
                yield
            if partition.after[0] > now:
                return  # none of these can be promoted yet
        yield from self._promoted(partition, rows, seen)
        if State.DEAD in states:
            yield from self._dead(partition, rows, seen)

    def _promoted(self, partition: SnapshotPartition, rows: SnapshotRows, seen: set[bytes]) -> Iterator[None]:
        """Read what is promoted; a page of a scan may have more payloads than there is room for, so each may end."""
        states, calls = self._options.states, self._calls(partition)
        promoted = (word for word, state in RECORDED_STATES.items() if state in states and state != State.PENDING)
        words = " ".join(promoted)
        for scanned in self._scan(partition, words) if words else ():
            for index, id in enumerate(scanned.ids):
                record = record_fields((scanned.records[index] or b"").decode("utf-8", "replace"))
                if id in seen or not partition.contains(int(record[1]), id):
                    continue
                seen.add(id)
                if scanned.payloads and scanned.payloads[index] is None:  # beyond the byte limit
                    found = self._call(calls.get(id.decode()))
                    if found is None:  # settled since the scan
                        continue
                    scanned.payloads[index] = found.payload
                rows.add_promoted(scanned, index, record)
                if scanned.payloads:
                    scanned.payloads[index] = None
                yield

    def _wanted(self, rows: range, ready: int) -> range:
        """Return those of the rows of a page whose state is wanted: the first `ready` rows of the page are due."""
        first = rows.start if State.READY in self._options.states else max(rows.start, ready)
        last = rows.stop if State.PENDING in self._options.states else min(rows.stop, ready)
        return range(first, max(first, last))

    def _pages(self, partition: SnapshotPartition) -> Iterator[tuple[SnapshotReply, Position]]:
        """Read the pending messages in pages; yields each page with the position after which its rows are new.

        If the message at that position is gone, the page starts earlier: with the first of the same due time.
        """
        calls, byte_limit = self._calls(partition), PAGE_BYTES if self._options.include_payload else 0
        after = partition.after
        while True:
            page = self._call(
                snapshot_call(calls, "", limit=PAGE, cursor=after[1], score=str(after[0]), byte_limit=byte_limit)
            )
            yield page, after
            ends = State.PENDING not in self._options.states and int(page.score or 0) > page.now
            if not page.cursor or ends:  # what follows is not due, and what is pending is not wanted
                return
            after = max(after, (int(page.score), page.cursor))
            if after >= partition.until:
                return

    def _scan(self, partition: SnapshotPartition, words: str) -> Iterator[SnapshotReply]:
        """Scan the promoted messages; one that stays promoted throughout is returned at least once."""
        calls, payloads = self._calls(partition), self._options.include_payload
        limit, byte_limit = (PAGE_WITH_PAYLOADS, PAGE_BYTES) if payloads else (PAGE, 0)
        low, high, cursor = partition.after[0], partition.until[0], b"0"
        while cursor:
            page = self._call(
                snapshot_call(calls, words, limit=limit, cursor=cursor, low=low, high=high, byte_limit=byte_limit)
            )
            yield page
            cursor = page.cursor

    def _dead(self, partition: SnapshotPartition, rows: SnapshotRows, seen: set[bytes] | None = None) -> Iterator[None]:
        """Read what died before the planning; with `seen`, what died since then, except ids already seen alive."""
        calls, payloads = self._calls(partition), self._options.include_payload
        limit, preview = (PAGE_WITH_PAYLOADS, 1 << 40) if payloads else (PAGE, 0)
        cursor, score = ("", "") if seen is None else ("-", str(partition.planned))
        while True:
            page = self._call(calls.page(State.DEAD, limit=limit, cursor=cursor, score=score, preview=preview))
            for row in page.rows:
                if seen is None and int(row.score) >= partition.planned:
                    return
                death = read_death(row.payload)
                if death is None:
                    continue  # trimmed: only its time of death is left
                id = row.id.rpartition(":")[0].encode()
                if partition.contains(timestamp(death.due), id) and id not in (seen or ()):
                    rows.add_dead(row, death, with_payload=payloads)
            yield
            cursor, score = page.cursor, page.score
            if not cursor:
                return

    def _calls(self, partition: SnapshotPartition) -> Calls:
        return calls_of(replace(self._options.target, queue=partition.queue))

    def _call(self, call: ScriptCall[Any]) -> Any:
        return connect(self._options.target).call(call)


class _PushdownSnapshotReader(SnapshotReader):
    """Reads only what the query's filters on states and due times allow."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Narrow the read; Spark applies all filters again, so it need not be exact."""
        self._options = narrowed(self._options, filters)
        return filters


def _between(after: Position, until: Position, ids: list[bytes], dues: list[int]) -> range:
    """Return the rows of a page after one position, up to another."""
    start, stop = 0, len(ids)
    while start < stop and (dues[start], ids[start]) <= after:
        start += 1
    while stop > start and (dues[stop - 1], ids[stop - 1]) > until:
        stop -= 1
    return range(start, stop)


def pending_at(keys: Keys, rank: int) -> RedisCommand[Position | None]:
    """Read the position of the pending message at a rank."""
    return RedisCommand(("ZRANGE", keys.pending, rank, rank, "WITHSCORES"), _read_position)


def _read_position(reply: list[Any]) -> Position | None:
    if not reply:
        return None
    member, score = reply[0] if isinstance(reply[0], list) else reply
    return int(float(score)), member


def narrowed(options: SnapshotOptions, filters: Iterable[Filter]) -> SnapshotOptions:
    """Return options that exclude only what no filter can match; they may still include too much."""
    for one in filters:
        match one:
            case datasource.EqualTo(attribute=("state",), value=value):
                options = _with_states(options, [value])
            case datasource.In(attribute=("state",), value=values):
                options = _with_states(options, values)
            case datasource.EqualTo(attribute=("due",), value=value):
                options = _until(_since(options, value), value)
            case datasource.GreaterThan() | datasource.GreaterThanOrEqual() if one.attribute == ("due",):
                options = _since(options, one.value)
            case datasource.LessThan() | datasource.LessThanOrEqual() if one.attribute == ("due",):
                options = _until(options, one.value)
    return options


def _with_states(options: SnapshotOptions, allowed: Iterable[Any]) -> SnapshotOptions:
    allowed = set(allowed)
    return replace(options, states=tuple(state for state in options.states if state in allowed))


def _since(options: SnapshotOptions, value: Any) -> SnapshotOptions:
    at = _milliseconds(value)
    return options if at is None else replace(options, due_from=max(at - 1, options.due_from or 0))


def _until(options: SnapshotOptions, value: Any) -> SnapshotOptions:
    at = _milliseconds(value)
    if at is None:
        return options
    return replace(options, due_to=min(at + 1, at + 1 if options.due_to is None else options.due_to))


def _milliseconds(value: Any) -> int | None:
    """Return an instant, rounded up; None for other values and times that no message can be due at."""
    try:
        return timestamp(value) if isinstance(value, datetime) else None
    except ConfigurationError:
        return None
