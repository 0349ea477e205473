"""The story of one message: what the event log of its queue says of it, read in bounded time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.event_log import MIN_TIME_OFFSET, EventEntry, read_events, read_events_back, read_last_event
from delayq.broker.transport.operation import Operation
from delayq.queue.inspecting.event_log import BEGINNINGS, MessageEvent, expand
from delayq.queue.inspecting.inspector import sent_by
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.values.times import from_millis, timestamp
from delayq.web.queue_source import QueueSource

PAGE = 50
"""Entries that are read at a time; each may contain a thousand messages."""
MAX_READ = 2_000
"""Entries of a log that is read as a whole, and of each part of a longer one."""
PART_BYTES = 4_000_000
"""Bytes after which a part ends: a fraction of a second."""
MAX_PARTS = 5
"""Parts that one request reads until it has found something: who looks need not ask for each that says nothing."""
MAX_KEPT = 200
"""Entries found in earlier parts that a page shows again, so that the story grows as it is read."""
AROUND = 500
"""Entries that are read from a time on at which something has happened to the message."""
MAX_BYTES = 500_000
"""Bytes that are read from one such time on: entries of bulk sends are large."""
AHEAD = timedelta(milliseconds=5)
"""How long before such a time to begin."""
SKEW = timedelta(seconds=1)
"""The same for the time of an id: it tells the clock of the sender."""


class Story(NamedTuple):
    """What the event log says of a message, the oldest first."""

    events: list[MessageEvent]
    is_whole: bool
    """Whether all of the log was read, not only around the times of the message, or a part."""
    is_empty: bool
    """Whether the queue has no event log."""
    begins: datetime | None = None
    """When the log begins, if what was before has been trimmed, and this may have had more of the story."""
    read_until: datetime | None = None
    """Up to when the log was read, if a part was asked for."""
    next_after: int | None = None
    """The offset after which the next part begins; None at the end of the log."""

    @property
    def found(self) -> list[int]:
        """The offsets of the entries in which the events are, for the request of the next part."""
        return sorted({event.offset for event in self.events})

    @property
    def is_too_long(self) -> bool:
        """Whether the next page cannot show again all that was found."""
        return len(self.found) > MAX_KEPT


def read_story(
    source: QueueSource,
    queue: str,
    id: str,
    message: MessageInfo | None,
    *,
    after: int | None = None,
    found: Sequence[int] = (),
) -> Story:
    """Read what the event log says of a message; a long log only around its times, and at the end.

    With `after`, read what the log says from this offset on, until a part says something, and again the entries at
    the offsets that earlier parts have `found`.
    """
    sent = sent_by(id)
    known = [] if sent is None else [sent - SKEW, sent]
    if message is not None:
        known += [at for at in (message.due, message.died, message.completed) if at is not None]
    times = sorted({timestamp(at - AHEAD) for at in known})
    return source.executor.perform(_read(source.calls_at(queue, id), id, times, after, found))


def _read(calls: Calls, id: str, times: Iterable[int], after: int | None, found: Sequence[int]) -> Operation[Story]:
    first, last = yield [read_events(calls, 1, limit=1), read_last_event(calls)]
    if not first or not last:
        return Story([], is_whole=True, is_empty=True)
    start, end = first[0].offset, last[0].offset
    reader = _StoryReader(calls, id)
    counted = end < MIN_TIME_OFFSET  # the offsets of older servers are times, which cannot be divided
    begins = from_millis(first[0].at) if start > 1 and counted else None
    if after is not None:
        yield from reader.read_again(found[-MAX_KEPT:])
        known, at = len(reader.events), max(after, start - 1)
        for _ in range(MAX_PARTS):
            at = yield from reader.read(at + 1, MAX_READ, PART_BYTES)
            if at >= end or len(reader.events) > known:
                break
        until = from_millis(reader.until or last[0].at)
        rest = at if at < end else None
        return Story(reader.events, is_whole=False, is_empty=False, begins=begins, read_until=until, next_after=rest)
    if counted and end - start < MAX_READ and (yield from reader.read(start, MAX_READ)) >= end:
        known = bool(reader.events) and reader.events[0].kind in BEGINNINGS
        return Story(reader.events, is_whole=True, is_empty=False, begins=None if known else begins)
    for at in times:
        if counted and at <= last[0].at:
            yield from reader.read((yield from _offset_at(calls, at, start, end)), AROUND)
    yield from reader.read_back(AROUND)
    return Story(reader.events, is_whole=False, is_empty=False, begins=begins)


def _offset_at(calls: Calls, at: int, low: int, high: int) -> Operation[int]:
    """Return the offset of the first entry that is as old as `at` (ms)."""
    while low < high:
        middle = (low + high) // 2
        (entries,) = yield [read_events(calls, middle, limit=1)]
        if entries and entries[0].at < at:
            low = max(middle, entries[0].offset) + 1
        else:
            high = middle
    return low


class _StoryReader:
    """Reads parts of a log, and collects the events of one message."""

    def __init__(self, calls: Calls, id: str) -> None:
        self._calls = calls
        self._id = id
        self._wanted = id.encode()
        self._found: dict[tuple[int, int], MessageEvent] = {}
        self.until = 0
        """The time of the last entry that `read` has read (ms)."""

    @property
    def events(self) -> list[MessageEvent]:
        """What was found, the oldest first."""
        return [self._found[key] for key in sorted(self._found)]

    def read(self, begin: int, number: int, max_bytes: int = MAX_BYTES) -> Operation[int]:
        """Read some entries from an offset on; returns the offset of the last one."""
        size = 0
        while number > 0 and size < max_bytes:
            (entries,) = yield [read_events(self._calls, begin, limit=min(PAGE, number))]
            if not entries:
                break
            size += self._take(entries)
            self.until = entries[-1].at
            begin, number = entries[-1].offset + 1, number - len(entries)
        return begin - 1

    def read_again(self, offsets: Sequence[int]) -> Operation[None]:
        """Read the entries at some offsets, in one round trip; those that were trimmed meanwhile are missing."""
        if offsets:
            for entries in (yield [read_events(self._calls, offset, limit=1) for offset in offsets]):
                self._take(entries)

    def read_back(self, number: int) -> Operation[None]:
        """Read some entries from the end of the log."""
        size, last = 0, None
        while number > 0 and size < MAX_BYTES:
            (entries,) = yield [read_events_back(self._calls, last, limit=min(PAGE, number))]
            if not entries:
                break
            size += self._take(entries)
            last, number = entries[-1].offset - 1, number - len(entries)

    def _take(self, entries: Sequence[EventEntry]) -> int:
        """Keep the events of the message; returns about how many bytes the entries have."""
        for entry in entries:
            if self._wanted in entry.columns.get("ids", b""):
                self._found |= {(one.offset, one.index): one for one in expand(entry) if one.id == self._id}
        return sum(len(entry.columns.get("ids", b"")) * len(entry.columns) for entry in entries)
