"""Schedules: what a turn of a consumer costs where there are 100,000, and how late 1,000 occurrences a second are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from typing import Any, TypeVar

from delayq import DelayQueue, Schedule
from delayq.flows.recurring import AHEAD, AT_ONCE, ROOM
from delayq.schedules.definition import firing
from measure.figure import MILLISECONDS, NEVER, NUMBER, Figure, Measurement, Reading, at_most
from measure.stand import QUEUE, Stand

MANY = 100_000
TURNS = 40
PER_SECOND = 1000
SECONDS = 5
PATIENCE = 30

T = TypeVar("T")


def turn(stand: Stand) -> Iterator[Reading]:
    """Milliseconds that the scripts of a turn take: with nothing due, and with as many as it fires at a time."""
    stand.empty()
    due = TURNS * AT_ONCE
    with DelayQueue(QUEUE, url=stand.url) as queue:
        start = datetime.now(UTC) + timedelta(days=1)
        for first in range(0, stand.many(MANY), 10_000):
            queue.schedules.add_many(
                Schedule(f"s{n}", every="1d", start=start + timedelta(seconds=n), payload={"user": n})
                for n in range(first, first + 10_000)
            )
    raw, calls = stand.raw, stand.calls
    idle = median(_timed(lambda: raw.call(calls.pending_to_ready()))[0] for _ in range(TURNS))
    # As if the time of some had come.
    names = stand.client.zrange(calls.keys.schedules, 0, due - 1)
    stand.client.zadd(calls.keys.schedules, {name: 1000 * (int(time.time()) - 1) for name in names})
    reading, fired = [], []
    while True:
        took, found = _timed(lambda: raw.call(calls.schedules_due(ahead=AHEAD, offset=0, limit=AT_ONCE, room=ROOM)))
        if not found.schedules:
            break
        reading.append(took)
        rows = [firing(standing, found.now, ahead=AHEAD)[0] for standing in found.schedules]
        took, answer = _timed(partial(raw.call, calls.fire(rows)))
        if answer.count("1") != len(rows):
            raise AssertionError(f"{answer.count('1')} of {len(rows)} were fired")
        fired.append(took)
    note = f"reading {AT_ONCE} {median(reading):.1f}, at most {max(reading):.1f}; firing them {max(fired):.1f} at most"
    yield Reading("schedules_idle", idle)
    yield Reading("schedules_turn", max(median(reading), median(fired)), note=note)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    answer = work()
    return 1000 * (time.perf_counter() - began), answer


def lateness(kind: str, stand: Stand) -> Iterator[Reading]:
    """Milliseconds late: the median, one of a hundred, the latest; spread evenly, or all at the same second."""
    stand.empty()
    late: list[float] = []

    def note(message: Any) -> None:
        late.append(1000 * (time.time() - message.due.timestamp()))

    apart = timedelta(milliseconds=1 if kind == "spread" else 0)
    with DelayQueue(QUEUE, url=stand.url, concurrency=10, callback=note) as queue:
        start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
        queue.schedules.add_many(
            Schedule(f"s{n}", every="1s", start=start + n * apart, count=SECONDS) for n in range(PER_SECOND)
        )
        queue.start_consume()
        end = time.monotonic() + SECONDS + PATIENCE
        while len(late) < PER_SECOND * SECONDS and time.monotonic() < end:
            time.sleep(0.05)
    late.sort()
    if len(late) != PER_SECOND * SECONDS:
        raise AssertionError(f"{len(late)} of {PER_SECOND * SECONDS} occurrences were delivered")
    yield Reading(f"schedules_{kind}_p50", late[len(late) // 2])
    yield Reading(f"schedules_{kind}_p99", late[int(len(late) * 0.99)])
    yield Reading(f"schedules_{kind}_max", late[-1])
    yield Reading(f"schedules_{kind}_early", sum(value < 0 for value in late))


def _lateness(kind: str, title: str) -> Measurement:
    name = f"schedules_{kind}"
    figures = [
        Figure(f"{name}_p50", f"lateness p50, {title}", None, MILLISECONDS),
        Figure(f"{name}_p99", f"lateness p99, {title}", None, MILLISECONDS),
        Figure(f"{name}_max", f"lateness max, {title}", at_most(50, MILLISECONDS), MILLISECONDS),
        Figure(f"{name}_early", f"delivered early, {title}", NEVER, NUMBER),
    ]
    return Measurement(name, partial(lateness, kind), figures)


def measurements() -> list[Measurement]:
    """Return what is measured here."""
    tick = at_most(5, MILLISECONDS)
    turns = [
        Figure("schedules_idle", "a turn with 100 k schedules, none due", tick, MILLISECONDS),
        Figure("schedules_turn", f"a turn with 100 k schedules that fires {AT_ONCE}", tick, MILLISECONDS),
    ]
    return [
        Measurement("schedules_turn", turn, turns, once=True),
        _lateness("spread", "1,000 occurrences/s of schedules"),
        _lateness("together", "1,000 schedules at the same second"),
    ]
