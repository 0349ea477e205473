"""Marks of log entries: they tell whether an offset still has the entry that was read there.

A server that loses its last second (a crash with `appendfsync everysec`, a failover) uses the offsets of lost entries
again. A mark is the time of an entry and a digest of all that it says, so another entry has another mark.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from delayq.broker.event_log import MIN_TIME_OFFSET, EventEntry, read_events
from delayq.bulk.connection import TargetQueue, calls_of, connect
from delayq.queue.inspecting.event_log import REPEATED


class LogBounds(NamedTuple):
    """The extent of an event log: offset of the first entry still there (or the next to come), and of the last ever."""

    first: int
    last: int


def mark_of(entry: EventEntry) -> str:
    """Return the mark of an entry: `TIME-DIGEST`, with the time in ms."""
    digest = blake2b(repr((entry.kind, entry.at, sorted(entry.columns.items()))).encode(), digest_size=8)
    return f"{entry.at}-{digest.hexdigest()}"


def read_mark(target: TargetQueue, offset: int) -> str | None:
    """Return the mark of the entry at an offset; None if there is none, or the log is numbered by time.

    Offsets of the latter are never used again.
    """
    entry = _entry_from(target, offset) if 0 < offset < MIN_TIME_OFFSET else None
    return mark_of(entry) if entry is not None and entry.offset == offset else None


def offset_before(target: TargetQueue, bounds: LogBounds, mark: str | None) -> int:
    """Return the last offset whose entry is surely older than the marked one, 0 if there is none.

    Surely is by as much as clocks of servers differ. Without a mark the log is read from its beginning.
    """
    before = int(mark.partition("-")[0]) - REPEATED if mark else 0
    low, high = bounds.first - 1, bounds.last
    while low < high:
        middle = (low + high + 1) // 2
        entry = _entry_from(target, middle)
        low, high = (middle, high) if entry is not None and entry.at < before else (low, middle - 1)
    return low


def _entry_from(target: TargetQueue, offset: int) -> EventEntry | None:
    """Return the first entry from an offset on."""
    entries = connect(target).call(read_events(calls_of(target), offset, limit=1))
    return entries[0] if entries else None
