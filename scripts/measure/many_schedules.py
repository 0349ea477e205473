"""A million schedules: adding them, their memory, a page of them, and 5,000 due in one second beside the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from delayq import DelayQueue, Schedule
from measure.bench_server import QUEUE, BenchServer, rate_of
from measure.figure import BYTES, MILLISECONDS, NEVER, NUMBER, RATE, Figure, Goal, Measurement, Reading, at_most

MANY = 1_000_000
AT_ONCE = 50_000
"""Schedules of one call of `add_many`."""
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "UTC", "Asia/Kolkata", "Australia/Sydney")
PAGES = 50
DUE = 5000
TIMES = 3
TIMEOUT = 30
MIN_RATE = 20_000


def many(server: BenchServer) -> Iterator[Reading]:
    """A schedule for each user, at a local time of their own; then schedules that are due together."""
    server.empty()
    before = server.used_memory()
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    number = max(AT_ONCE, server.many(MANY))
    with DelayQueue(QUEUE, url=server.url) as queue:

        def add() -> None:
            for first in range(0, number, AT_ONCE):
                queue.schedules.add_many(_of_user(n, tomorrow) for n in range(first, first + AT_ONCE))

        yield Reading("schedules_add", rate_of(number, add))
        yield Reading("schedules_memory", (server.used_memory() - before) / number, note=f"{number:,} schedules")
        reading, cursor = [], None
        for _ in range(PAGES):
            began = time.perf_counter()
            page = queue.schedules.page(limit=100, cursor=cursor)
            reading.append(1000 * (time.perf_counter() - began))
            cursor = page.cursor
        yield Reading("schedules_list", max(reading), note=f"median {median(reading):.1f}")
    late = [_due_together(server, turn) for turn in range(TIMES)]
    yield Reading("schedules_burst_p50", median(one[len(one) // 2] for one in late))
    yield Reading("schedules_burst_max", median(one[-1] for one in late))
    yield Reading("schedules_burst_early", sum(value < 0 for one in late for value in one))


def _of_user(n: int, start: datetime) -> Schedule:
    return Schedule(
        f"user-{n}", cron=f"{n % 60} {n // 60 % 24} * * *", tz=ZONES[n % 6], start=start, payload={"user": n}
    )


def _due_together(server: BenchServer, turn: int) -> list[float]:
    """Return the lateness in milliseconds of occurrences in the same second, for one worker with default options."""
    late: list[float] = []

    def note(message: Any) -> None:
        late.append(1000 * (time.time() - message.due.timestamp()))

    with DelayQueue(QUEUE, url=server.url, callback=note) as queue:
        start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
        queue.schedules.add_many(
            Schedule(f"due-{turn}-{n}", every="1d", start=start, payload={"user": n}) for n in range(DUE)
        )
        queue.start_consume()
        end = time.monotonic() + TIMEOUT
        while len(late) < DUE and time.monotonic() < end:
            time.sleep(0.05)
    if len(late) != DUE:
        raise AssertionError(f"{len(late)} of {DUE} occurrences were delivered")
    return sorted(late)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    fast = Goal(f"≥ {MIN_RATE:,}/s", lambda figure: figure.median >= MIN_RATE)
    figures = [
        Figure("schedules_add", "add 1 M schedules with `add_many`", fast, RATE),
        Figure("schedules_memory", "memory of a schedule", at_most(400, BYTES), BYTES),
        Figure("schedules_list", "a page of 100 of 1 M schedules, at most", at_most(20, MILLISECONDS), MILLISECONDS),
        Figure("schedules_burst_p50", "lateness p50, 5,000 of 1 M schedules in one second", None, MILLISECONDS),
        Figure(
            "schedules_burst_max",
            "lateness max, 5,000 of 1 M schedules in one second",
            at_most(100, MILLISECONDS),
            MILLISECONDS,
        ),
        Figure("schedules_burst_early", "delivered early, 5,000 of 1 M schedules in one second", NEVER, NUMBER),
    ]
    return [Measurement("many_schedules", many, figures, once=True)]
