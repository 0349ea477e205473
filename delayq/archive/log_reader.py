"""Reads an event log in ranges of offsets: its extent, its entries as Arrow batches, and which of them are lost.

On Redis 7 and later the log entries are numbered without gaps. So loss is detected by counting: a range must contain as
many entries as it has numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from delayq.archive.log_gaps import gaps_between, told
from delayq.archive.log_marks import LogBounds
from delayq.broker.event_log import MIN_TIME_OFFSET, EventEntry, offset_of, read_events
from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.bulk.connection import TargetQueue, calls_of, check_queue, connect, partitions_of
from delayq.bulk.files.schemas import BATCH_ROWS, EVENTS, arrow_schema, record_batch
from delayq.errors import ConfigurationError, ServerError
from delayq.queue.inspecting.event_log import EventColumns
from delayq.queue.placing.layout import refuse_partitions

PAGE = 100
"""Entries per call: a millisecond of the server's time, although one entry may describe a thousand messages."""

SCHEMA = arrow_schema(EVENTS)


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


def events_of(entry: EventEntry) -> int:
    """Return how many events an entry has."""
    return entry.columns.get("ids", b"").count(b" ") + 1


def pages(target: TargetQueue, low: int, high: int) -> Iterator[list[EventEntry]]:
    """Read the entries that there are between two offsets, both inclusive."""
    executor, calls = connect(target), calls_of(target)
    while low <= high:
        entries = executor.call(read_events(calls, low, high, limit=PAGE))
        if not entries:
            return
        yield entries
        low = entries[-1].offset + 1


def batches_of(entries: Iterable[EventEntry]) -> Iterator[pa.RecordBatch]:
    """Return the events of log entries as batches of some ten thousand rows."""
    waiting, events = list[EventEntry](), 0
    for entry in entries:
        waiting.append(entry)
        events += events_of(entry)
        if events >= BATCH_ROWS:
            yield batch_of(waiting)
            waiting, events = [], 0
    if waiting:
        yield batch_of(waiting)


def loss_between(target: TargetQueue, low: int, high: int) -> str:
    """Return in words which entries between two offsets are gone."""
    name = f"the event log of queue {target.queue!r}"
    if high >= MIN_TIME_OFFSET:
        return f"entries of {name} may have been deleted before being read, between offsets {low} and {high}"
    gaps = gaps_between((entry.offset for page in pages(target, low, high) for entry in page), low, high)
    return f"{name} has lost {told(gaps)}: deleted before being read"
