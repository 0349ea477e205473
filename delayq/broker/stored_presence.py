"""What a consumer reports every few seconds: its presence and what it has done, and how others read it.

Its presence is one line of JSON. Times in it are relative to the report, in milliseconds: a reader counts them back
from the server's time of it, so the clocks of the workers do not matter. Ids of messages are told, not their payloads.

What it has done is added to the record of the hour and to a total, which is never deleted: numbers, separated by
spaces, in the order of `HourCounts`. A number that a later version adds goes to the end, so that versions can be mixed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple

import msgspec

from delayq.broker.calls import Calls
from delayq.broker.replies import integers
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.values.lateness import LATENESS_BOUNDS
from delayq.values.times import LATEST

MAX_NAMED = 100
"""Messages that an entry names, those that have run for longest: it stays below 16 KiB."""
MAX_QUEUES = 10
"""Queues that an entry names."""
REPORTS = 3
"""An entry counts for so many times the interval of its reports: a worker that has missed as many is silent."""


_Count = Annotated[int, msgspec.Meta(ge=0, le=LATEST)]
_Some = Annotated[int, msgspec.Meta(ge=1, le=LATEST)]


class WorkerEntry(msgspec.Struct):
    """The presence of a consumer, as it is stored."""

    host: str
    pid: _Count
    version: str
    queues: list[str]
    """The names of the queues that the worker serves, at most `MAX_QUEUES`."""
    served: _Count
    """How many queues the worker serves."""
    concurrency: _Count
    every: _Some
    """Milliseconds between two reports."""
    up: _Count
    """Milliseconds since the consumer has started."""
    held: _Count
    """Messages that it has claimed and not completed."""
    running: list[tuple[str, _Count]]
    """Ids of messages in its callbacks, with the milliseconds since these have started, at most `MAX_NAMED`."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerEntry).decode


def write_entry(entry: WorkerEntry) -> bytes:
    """Return an entry as it is stored."""
    return _encode(entry)


def read_entry(text: bytes) -> WorkerEntry | None:
    """Return a stored entry; None for one that another program has written."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None


BUCKETS = len(LATENESS_BOUNDS) + 1
"""Buckets in which lateness is counted."""
HOUR = 3_600_000
KEPT_HOURS = 90 * 24
"""Hours that are kept."""
RECENT = 2
"""Hours of which `stats` tells how late messages started: this one has just begun, perhaps."""

_NUMBERS = re.compile(rb"[0-9]{1,16}(?: [0-9]{1,16})*")


class HourCounts(NamedTuple):
    """What the consumers of a queue have done in an hour."""

    delivered: int = 0
    """Messages claimed."""
    acked: int = 0
    discarded: int = 0
    nacked: int = 0
    rejected: int = 0
    released: int = 0
    callbacks: int = 0
    """Calls of callbacks that have ended."""
    busy: int = 0
    """Microseconds that these took."""
    lateness: tuple[int, ...] = (0,) * BUCKETS
    """How many messages started how late, for each of `LATENESS_BOUNDS` and what is later."""


_SINGLE = len(HourCounts._fields) - 1


def write_counts(counts: HourCounts) -> str:
    """Return counts as they are stored."""
    return " ".join(map(str, (*counts[:_SINGLE], *counts.lateness)))


def read_counts(text: bytes) -> HourCounts | None:
    """Return stored counts, None for what another program has written."""
    if not _NUMBERS.fullmatch(text):
        return None
    numbers = [min(int(number), LATEST) for number in text.split()]
    numbers += [0] * (_SINGLE + BUCKETS - len(numbers))
    return HourCounts._make([*numbers[:_SINGLE], tuple(numbers[_SINGLE : _SINGLE + BUCKETS])])


def sum_of(some: Iterable[HourCounts]) -> HourCounts:
    """Return the sum of the counts of some hours."""
    *numbers, lateness = zip(HourCounts(), *some, strict=True)
    return HourCounts._make([*map(sum, numbers), tuple(map(sum, zip(*lateness, strict=True)))])


SILENT_KEPT = 3_600_000
"""Milliseconds for which the entry of a silent worker is kept: who it was, and what it held."""


class StoredWorker(NamedTuple):
    """The presence of a consumer, and until when it counts (ms)."""

    consumer_id: str
    ends: int
    entry: WorkerEntry


class WorkersPage(NamedTuple):
    """A page of consumers, the server's time (ms), and the cursor of the next page ('0' at the end)."""

    now: int
    cursor: str
    workers: list[StoredWorker]


class HoursReply(NamedTuple):
    """What was counted in some hours, the latest first, None for nothing, and the server's time (ms)."""

    now: int
    hours: list[HourCounts | None]
    total: HourCounts
    """What was ever counted, also in hours that are not kept any more."""


class PresenceReply(NamedTuple):
    """How many entries were removed, and the place of a consumer among those that have told, at most a hundred."""

    removed: int
    before: int
    """How many of the others come before it."""
    workers: int
    """How many there are, with itself."""
    now: int
    """The server's time (ms)."""


def presence_call(
    calls: Calls, consumer_id: str, entry: WorkerEntry | None, counted: HourCounts | None = None
) -> ScriptCall[PresenceReply]:
    """Store the presence of a consumer, None when it stops.

    What it has counted is added to the record of the hour and to the total.
    """
    told = (0, SILENT_KEPT, "") if entry is None else (REPORTS * entry.every, SILENT_KEPT, write_entry(entry))
    counts = "" if counted is None else write_counts(counted)
    args = [calls.now, consumer_id, *told, KEPT_HOURS, counts]
    return calls.script("presence", args, _read_presence)


def keep_presence_call(calls: Calls, consumer_id: str, entry: WorkerEntry) -> ScriptCall[PresenceReply]:
    """Store the presence of a consumer that has counted nothing; removes none that have been silent for long."""
    args = [calls.now, consumer_id, REPORTS * entry.every, write_entry(entry)]
    return calls.script("keep_presence", args, _read_presence)


def _read_presence(reply: bytes) -> PresenceReply:
    return PresenceReply(*integers(reply))


def history_call(calls: Calls, *, limit: int, last: int | None = None) -> ScriptCall[HoursReply]:
    """Read what was counted in up to a thousand hours up to `last` (hours since 1970), None for the current one."""
    return calls.script("history", [calls.now, "" if last is None else last, limit], _read_hours)


def read_counted(calls: Calls) -> RedisCommand[HourCounts]:
    """Read what was ever counted, at the cost of one plain command."""
    return RedisCommand(("HGET", calls.keys.history, "total"), _read_total)


def workers_page_call(calls: Calls, cursor: str, *, limit: int) -> ScriptCall[WorkersPage]:
    """Read a page of the consumers."""
    return calls.script("workers_page", [calls.now, cursor, limit], _read_page)


def _read_page(reply: list[Any]) -> WorkersPage:
    now, cursor, *cells = reply
    rows = zip(cells[::3], map(float, cells[1::3]), map(read_entry, cells[2::3]), strict=True)
    found = [
        StoredWorker(id.decode(errors="replace"), int(ends), entry)
        for id, ends, entry in rows
        if entry is not None and 0 <= ends <= LATEST
    ]
    return WorkersPage(now, cursor.decode(), found)


def _read_hours(reply: list[Any]) -> HoursReply:
    now, texts = reply
    total, *hours = texts
    return HoursReply(now, [read_counts(text) if text else None for text in hours], _read_total(total))


def _read_total(text: bytes | None) -> HourCounts:
    return (read_counts(text) if text else None) or HourCounts()
