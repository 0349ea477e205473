"""Reads the current state of a queue: one row per message.

The queue stays in use, so the result is not of one instant; but a message that only moves forward is never missed.
Its parts are ranges of due times with equal shares of the pending messages. Each reads the pending messages of its
range first, then scans for those promoted meanwhile, then for those that died meanwhile. Each id is listed once, in the
state in which it was read first. Of a queue over partitions each is divided so; a message that moves to another
partition meanwhile, as the queue grows, may be missed or listed twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from delayq.broker.calls import Calls
from delayq.broker.foreign import record_fields
from delayq.broker.keys import Keys
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.transport.operation import together
from delayq.bulk.connection import TargetQueue, calls_of, check_queue, connect, partitions_of, target_of
from delayq.bulk.reading.snapshot_rows import SCHEMA, SnapshotRows
from delayq.queue.inspecting.deaths import read_death
from delayq.queue.inspecting.inspector import RECORDED_STATES
from delayq.queue.sweeps.stored_messages import MAX_DUE, UNPROMOTED, SnapshotReply, snapshot_call
from delayq.values.states import State
from delayq.values.times import timestamp

STATES = tuple(state for state in State if state is not State.COMPLETED)
"""The states that a snapshot reads: those of messages."""

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


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """Which messages of a queue to read."""

    target: TargetQueue
    states: tuple[State, ...] = STATES
    due_from: int | None = None
    """Milliseconds since 1970, inclusive."""
    due_to: int | None = None
    """Milliseconds since 1970, exclusive."""
    partitions: int = 1
    include_payload: bool = False
    pushdown: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """A part of a snapshot: a range of living messages, or the dead letter."""

    after: Position
    """Exclusive."""
    until: Position
    """Inclusive."""
    planned: int
    """When the read was planned (ms). Parts of living messages also read those of their range that died since."""
    queue: str
    """The queue, or the partition of it, that has them."""
    is_dead_letter: bool = False

    def contains(self, due: int, id: bytes) -> bool:
        """Return whether a message belongs to this part."""
        return self.after < (due, id) <= self.until


class QueueSnapshot:
    """The messages of a queue, with the columns of SNAPSHOT, to be read in parts.

    A message that is in the queue during the whole read is listed exactly once, in a state that it had meanwhile.
    Exceptions: one that is rescheduled, replaced or redriven during the read may be missed, or listed twice if its due
    time moves to another part; and a read of more than an hour gives no guarantee. Messages that arrive or leave
    meanwhile may or may not be listed.
    """

    def __init__(self, options: SnapshotOptions) -> None:
        self._options = options

    def ranges(self) -> list[SnapshotRange]:
        """Divide the queue, or each of its partitions; raises `ConfigurationError` if there is no such queue."""
        check_queue(self._options.target)
        targets = partitions_of(self._options.target)
        share = max(1, self._options.partitions // len(targets))
        return [one for target in targets for one in self._ranges(target, share)]

    def _ranges(self, target: TargetQueue, number: int) -> list[SnapshotRange]:
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
            whole = SnapshotRange(bounds[0], bounds[-1], MAX_DUE, name, is_dead_letter=True)
            return [whole] if options.states else []
        ranges = [SnapshotRange(*pair, now, name) for pair in pairwise(bounds) if pair[0] < pair[1]]
        if State.DEAD in options.states:
            ranges.append(SnapshotRange(bounds[0], bounds[-1], now, name, is_dead_letter=True))
        return ranges

    def read(self, partition: SnapshotRange) -> Iterator[pa.RecordBatch]:
        """Read one part."""
        rows = SnapshotRows()
        for _ in self._dead(partition, rows) if partition.is_dead_letter else self._living(partition, rows):
            if rows.is_full:
                yield rows.take()
        if rows.count:
            yield rows.take()

    def _living(self, partition: SnapshotRange, rows: SnapshotRows) -> Iterator[None]:
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

    def _promoted(self, partition: SnapshotRange, rows: SnapshotRows, seen: set[bytes]) -> Iterator[None]:
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

    def _pages(self, partition: SnapshotRange) -> Iterator[tuple[SnapshotReply, Position]]:
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

    def _scan(self, partition: SnapshotRange, words: str) -> Iterator[SnapshotReply]:
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

    def _dead(self, partition: SnapshotRange, rows: SnapshotRows, seen: set[bytes] | None = None) -> Iterator[None]:
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

    def _calls(self, partition: SnapshotRange) -> Calls:
        return calls_of(replace(self._options.target, queue=partition.queue))

    def _call(self, call: ScriptCall[Any]) -> Any:
        return connect(self._options.target).call(call)


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


def read_messages(
    queue: str, *, url: str | None = None, prefix: str = "delayq", include_payload: bool = False
) -> pa.RecordBatchReader:
    """Return the messages of a queue as an Arrow stream with the columns of SNAPSHOT, read as they are asked for.

    A message that stays in the queue meanwhile is in it once, with a state that it had during the read. Raises
    `ConfigurationError` if there is no such queue.
    """
    target = target_of(queue, url, prefix, None)
    snapshot = QueueSnapshot(SnapshotOptions(target, include_payload=include_payload))
    ranges = snapshot.ranges()
    return pa.RecordBatchReader.from_batches(SCHEMA, (batch for one in ranges for batch in snapshot.read(one)))
