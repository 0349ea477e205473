"""Schedules: the cost of a consumer's turn with 100,000 schedules, and how late 1,000 occurrences per second are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from typing import Any, TypeVar

from delayq import DelayQueue, Schedule
from delayq.options import read_settings
from delayq.schedules.calls import fire_call, schedules_due_call
from delayq.schedules.messages import firing
from delayq.worker.parts.schedule_firing import FIRE_AHEAD, MAX_BYTES, MAX_SCHEDULES
from measure.bench_server import QUEUE, BenchServer
from measure.figure import MILLISECONDS, NEVER, NUMBER, Figure, Measurement, Reading, at_most

MANY = 100_000
TURNS = 40
PER_SECOND = 1000
SECONDS = 5
TIMEOUT = 30

T = TypeVar("T")


def turn(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds of the scripts of a turn: with nothing due, and with the maximum that it fires at a time."""
    server.empty()
    due = TURNS * MAX_SCHEDULES
    with DelayQueue(QUEUE, url=server.url) as queue:
        start = datetime.now(UTC) + timedelta(days=1)
        for first in range(0, server.many(MANY), 10_000):
            queue.schedules.add_many(
                Schedule(f"s{n}", every="1d", start=start + timedelta(seconds=n), payload={"user": n})
                for n in range(first, first + 10_000)
            )
    raw, calls, settings = server.raw, server.calls, read_settings({})
    idle = median(_timed(lambda: raw.call(calls.pending_to_ready()))[0] for _ in range(TURNS))
    # Make some of them due.
    names: Any = server.client.zrange(calls.keys.schedules, 0, due - 1)
    server.client.zadd(calls.keys.schedules, {name: 1000 * (int(time.time()) - 1) for name in names})
    reading, fired = [], []
    while True:
        took, found = _timed(
            lambda: raw.call(
                schedules_due_call(calls, ahead=FIRE_AHEAD, offset=0, limit=MAX_SCHEDULES, byte_limit=MAX_BYTES)
            )
        )
        if not found.schedules:
            break
        reading.append(took)
        rows = [firing(standing, found.now, settings, ahead=FIRE_AHEAD)[0] for standing in found.schedules]
        took, reply = _timed(partial(raw.call, fire_call(calls, rows)))
        if reply.count("1") != len(rows):
            raise AssertionError(f"{reply.count('1')} of {len(rows)} were fired")
        fired.append(took)
    read = f"reading {MAX_SCHEDULES} {median(reading):.1f}, at most {max(reading):.1f}"
    note = f"{read}; firing them {max(fired):.1f} at most"
    yield Reading("schedules_idle", idle)
    yield Reading("schedules_turn", max(median(reading), median(fired)), note=note)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    reply = work()
    return 1000 * (time.perf_counter() - began), reply


def lateness(kind: str, server: BenchServer) -> Iterator[Reading]:
    """Lateness in milliseconds: p50, p99 and max; spread evenly, or all in the same second."""
    server.empty()
    late: list[float] = []

    def note(message: Any) -> None:
        late.append(1000 * (time.time() - message.due.timestamp()))

    apart = timedelta(milliseconds=1 if kind == "spread" else 0)
    with DelayQueue(QUEUE, url=server.url, concurrency=10, callback=note) as queue:
        start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
        queue.schedules.add_many(
            Schedule(f"s{n}", every="1s", start=start + n * apart, count=SECONDS) for n in range(PER_SECOND)
        )
        queue.start_consume()
        end = time.monotonic() + SECONDS + TIMEOUT
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
    """Return the measurements of this module."""
    tick = at_most(5, MILLISECONDS)
    turns = [
        Figure("schedules_idle", "a turn with 100 k schedules, none due", tick, MILLISECONDS),
        Figure("schedules_turn", f"a turn with 100 k schedules that fires {MAX_SCHEDULES}", tick, MILLISECONDS),
    ]
    return [
        Measurement("schedules_turn", turn, turns, once=True),
        _lateness("spread", "1,000 occurrences/s of schedules"),
        _lateness("together", "1,000 schedules at the same second"),
    ]
