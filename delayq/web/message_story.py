"""The story of one message: what the event log of its queue says of it, read in bounded time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.log_entries import MIN_TIME_OFFSET, EventEntry
from delayq.broker.transport.operation import Operation
from delayq.queue.event_log import MessageEvent, expand
from delayq.queue.inspector import sent_by
from delayq.queue.message_info import MessageInfo
from delayq.times import timestamp
from delayq.web.queue_source import QueueSource

PAGE = 100
"""Entries that are read at a time; each may contain a thousand messages."""
MAX_READ = 1_500
"""Entries of a log that is read as a whole."""
AROUND = 300
"""Entries that are read from a time on at which something has happened to the message."""
AHEAD = timedelta(seconds=1)
"""How long before such a time to begin: the id tells the clock of the sender."""


class Story(NamedTuple):
    """What the event log says of a message, the oldest first."""

    events: list[MessageEvent]
    is_whole: bool
    """Whether all of the log was read, not only around the times of the message."""
    is_empty: bool
    """Whether the queue has no event log."""


def read_story(source: QueueSource, queue: str, id: str, message: MessageInfo | None) -> Story:
    """Read what the event log says of a message; a long log only around its times, and at the end."""
    known = [sent_by(id)]
    if message is not None:
        known += [message.due, message.died, message.completed, message.deadline]
    times = sorted({timestamp(at - AHEAD) for at in known if at is not None})
    return source.executor.perform(_read(source.calls(queue), id, times))


def _read(calls: Calls, id: str, times: Iterable[int]) -> Operation[Story]:
    first, last = yield [calls.events(1, limit=1), calls.last_event()]
    if not first or not last:
        return Story([], is_whole=True, is_empty=True)
    start, end = first[0].offset, last[0].offset
    is_whole = end < MIN_TIME_OFFSET and end - start < MAX_READ
    found: dict[tuple[int, int], MessageEvent] = {}
    spans = [(start, MAX_READ)] if is_whole else [(max(start, end - AROUND + 1), AROUND)]
    if not is_whole and end < MIN_TIME_OFFSET:  # the offsets of older servers are times, which cannot be divided
        for at in times:
            if at <= last[0].at:
                begin = yield from _offset_at(calls, at, start, end)
                spans.append((begin, AROUND))
    for begin, number in spans:
        yield from _read_span(calls, id, begin, number, found)
    return Story([found[key] for key in sorted(found)], is_whole=is_whole, is_empty=False)


def _offset_at(calls: Calls, at: int, low: int, high: int) -> Operation[int]:
    """Return the offset of the first entry that is as old as `at` (ms)."""
    while low < high:
        middle = (low + high) // 2
        (entries,) = yield [calls.events(middle, limit=1)]
        if entries and entries[0].at < at:
            low = max(middle, entries[0].offset) + 1
        else:
            high = middle
    return low


def _read_span(
    calls: Calls, id: str, begin: int, number: int, found: dict[tuple[int, int], MessageEvent]
) -> Operation[None]:
    wanted = id.encode()
    while number > 0:
        entries: list[EventEntry]
        (entries,) = yield [calls.events(begin, limit=min(PAGE, number))]
        if not entries:
            return
        for entry in entries:
            if wanted in entry.columns.get("ids", b""):
                found |= {(one.offset, one.index): one for one in expand(entry) if one.id == id}
        begin, number = entries[-1].offset + 1, number - len(entries)
