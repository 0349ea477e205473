"""Counts the occurrences of all schedules in periods, by the times at which their messages will be due.

Schedules that occur at the same times are counted together: a million daily reminders have few times.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from delayq.broker.context import QueueContext
from delayq.broker.message.attributes import Attributes
from delayq.broker.message.jitter import draw
from delayq.broker.transport.operation import Operation, Wait
from delayq.errors import ConfigurationError
from delayq.schedules.calls import StoredSchedule, schedules_page_call
from delayq.schedules.definition import Definition, unpack
from delayq.schedules.messages import occurrence_id
from delayq.schedules.store import BATCH

MAX_TIMES = 100_000
"""Times that are computed, at most: about a second. What occurs later is not counted."""
TIMES_AT_ONCE = 500
"""Times that are computed before an event loop gets its turn."""


@dataclass(slots=True)
class _Alike:
    """Schedules that occur at the same times, and send messages with the same name."""

    definition: Definition
    name: str
    at: int | None
    fired: int
    schedules: list[str]


@dataclass(slots=True)
class OccurrenceCounts:
    """The occurrences in each period, by the name of their messages, and until when they were counted."""

    periods: list[int]
    names: Counter[str] = field(default_factory=Counter)
    complete_until: int | None = None
    """The time (ms) from which they were not counted, as there are too many; None if all were."""
    left_out: dict[str, str] = field(default_factory=dict)
    """The schedules whose times cannot be worked out here, and why."""


def count_occurrences(context: QueueContext, now: int, edges: Sequence[int]) -> Operation[OccurrenceCounts]:
    """Count the occurrences that are no messages yet, in the periods between edges (ms), from now on.

    Those that are late count as due now, as far as a consumer will fire them. Reads all schedules, page by page.
    """
    left_out: dict[str, str] = {}
    groups: dict[tuple[Any, ...], _Alike] = {}
    seen: set[str] = set()
    cursor = ""
    while cursor != "0":
        (page,) = yield [schedules_page_call(context.calls, cursor=cursor or "0", limit=BATCH)]
        cursor = page.cursor
        for stored in page.schedules:
            if stored.name not in seen and stored.next is not None and stored.next < edges[-1]:
                try:
                    _add(groups, stored)
                except ConfigurationError as error:
                    left_out[stored.name] = str(error)
            seen.add(stored.name)
    counts = yield from _count(list(groups.values()), now, edges)
    counts.left_out = left_out
    return counts


def _add(groups: dict[tuple[Any, ...], _Alike], stored: StoredSchedule) -> None:
    one, _ = unpack(stored.spec)
    name = Attributes.of(one.attributes.encode()).name
    count = () if one.count is None else (one.count, stored.fired)
    rule = (one.cron, one.tz, one.every, one.wall, one.rrule, one.except_, tuple(sorted(one.changes.items())))
    key = (name, stored.next, *rule, one.start, one.end, count, one.misfire, one.late_after, one.jitter)
    if key not in groups:
        one.timetable  # noqa: B018 - raises if it cannot be computed
        groups[key] = _Alike(one, name, stored.next, stored.fired, [])
    groups[key].schedules.append(stored.name)


def _count(groups: list[_Alike], now: int, edges: Sequence[int]) -> Operation[OccurrenceCounts]:
    counts = OccurrenceCounts([0] * (len(edges) - 1))
    spent = 0
    for alike in groups:
        if alike.at is not None and alike.at <= now:
            due = alike.definition.timetable.due(alike.at, now, alike.fired)
            for at in due.times:
                spent += _note(counts, alike, at, now, edges)
            alike.at, alike.fired = due.next, alike.fired + len(due.times)
    heap = [(alike.at, order, alike) for order, alike in enumerate(groups) if alike.at is not None]
    heapq.heapify(heap)
    pause_at = TIMES_AT_ONCE
    while heap and heap[0][0] < edges[-1]:
        at, order, alike = heap[0]
        if spent >= MAX_TIMES:
            counts.complete_until = at
            break
        if spent >= pause_at:
            pause_at = spent + TIMES_AT_ONCE
            yield Wait(0)
        spent += _note(counts, alike, at, now, edges)
        alike.fired += 1
        following = alike.definition.timetable.after(at, alike.fired)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following, order, alike))
    return counts


def _note(counts: OccurrenceCounts, alike: _Alike, at: int, now: int, edges: Sequence[int]) -> int:
    """Count the occurrences at a time; returns how many due times that took to compute."""
    origin = alike.definition.rule.origin(at)
    jitter = alike.definition.jitter if origin == at else 0  # one that was moved has none
    if not jitter:
        _note_due(counts, alike.name, len(alike.schedules), max(at, now), edges)
        return 1
    for schedule in alike.schedules:
        due = at + draw(occurrence_id(schedule, origin), jitter)
        _note_due(counts, alike.name, 1, max(due, now), edges)
    return len(alike.schedules)


def _note_due(counts: OccurrenceCounts, name: str, number: int, due: int, edges: Sequence[int]) -> None:
    if due < edges[-1]:
        counts.periods[bisect_right(edges, due) - 1] += number
        counts.names[name] += number
