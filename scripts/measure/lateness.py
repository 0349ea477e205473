"""Lateness: milliseconds between the due time of a message and its callback, by the clock of this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from delayq import AsyncDelayQueue, DelayQueue, Message, NewMessage
from measure.bench_server import QUEUE, TEXT, BenchServer
from measure.figure import MILLISECONDS, NEVER, NUMBER, Figure, Goal, Measurement, Reading, at_most

SECONDS = 5
"""Seconds in which messages become due."""
AFTER = 2.0
"""Seconds from sending until the first is due: time to send them all."""
TIMEOUT = 30
LONG = 4.0
"""Seconds that the long callbacks take."""
BESIDE_LONG = "beside_long"
LONG_ONES = 3
"""How many callbacks are long, one after the other; the others are empty."""


class LatenessRecorder:
    """A callback that records how late it is called."""

    def __init__(self, expected: int) -> None:
        """Take the number of expected messages."""
        self._expected = expected
        self.late: list[float] = []

    def __call__(self, message: Any) -> None:
        """Record how late it is."""
        self.late.append(1000 * (time.time() - message.due.timestamp()))

    async def call(self, message: Any) -> None:
        """Record the same in a task."""
        self(message)

    @property
    def done(self) -> bool:
        """Whether all messages were delivered."""
        return len(self.late) >= self._expected


def spread(per_second: int, seconds: float, first: datetime | None = None, **options: Any) -> list[NewMessage[str]]:
    """Return messages that become due evenly from a time on, by default soon."""
    n = int(per_second * seconds)
    start = first or datetime.now(UTC) + timedelta(seconds=AFTER)
    return [NewMessage(TEXT, at=start + timedelta(seconds=number / per_second), **options) for number in range(n)]


def _in_threads(server: BenchServer, per_second: int, seconds: float) -> list[float]:
    with DelayQueue(QUEUE, url=server.url, concurrency=10) as queue:
        messages = spread(per_second, seconds)
        watch = LatenessRecorder(len(messages))
        queue.callback(watch)
        queue.start_consume()
        queue.send_many(messages)
        end = time.monotonic() + AFTER + seconds + TIMEOUT
        while not watch.done and time.monotonic() < end:
            time.sleep(0.05)
    return all_of(watch, len(messages))


def _in_tasks(server: BenchServer, per_second: int, seconds: float) -> list[float]:
    async def consume() -> list[float]:
        async with AsyncDelayQueue(QUEUE, url=server.url, concurrency=10) as queue:
            messages = spread(per_second, seconds)
            watch = LatenessRecorder(len(messages))
            queue.callback(watch.call)
            await queue.start_consume()
            await queue.send_many(messages)
            end = time.monotonic() + AFTER + seconds + TIMEOUT
            while not watch.done and time.monotonic() < end:  # noqa: ASYNC110 - an event would be one more thing to do
                await asyncio.sleep(0.05)
        return all_of(watch, len(messages))

    return asyncio.run(consume())


def _beside_long_callbacks(server: BenchServer, per_second: int, seconds: float) -> list[float]:
    """Consume with two workers and their default options, of which one at a time is busy with a long callback."""
    with DelayQueue(QUEUE, url=server.url) as queue, DelayQueue(QUEUE, url=server.url) as other:
        messages = spread(per_second, seconds)
        watch, started = LatenessRecorder(len(messages)), time.monotonic()

        def callback(message: Message[str]) -> None:
            watch(message)
            if message.id in long:
                time.sleep(LONG)

        for one in (queue, other):
            one.callback(callback)
        ids = queue.send_many(messages).ids
        apart = int((LONG + 1) * per_second)
        long = {*ids[per_second : per_second + LONG_ONES * apart : apart]}
        for one in (queue, other):
            one.start_consume()
        while not watch.done and time.monotonic() < started + AFTER + seconds + TIMEOUT:
            time.sleep(0.05)
    return all_of(watch, len(messages))


def all_of(watch: LatenessRecorder, sent: int) -> list[float]:
    """Return the lateness of each message, sorted; raises if some were not delivered."""
    if len(watch.late) != sent:
        raise AssertionError(f"{len(watch.late)} of {sent} messages were delivered")
    return sorted(watch.late)


def lateness(kind: str, per_second: int, server: BenchServer) -> Iterator[Reading]:
    """Lateness in milliseconds: p50, p99 and max, and how many messages were early."""
    server.empty()
    seconds = SECONDS if server.scale >= 1 else SECONDS / 2
    if kind == BESIDE_LONG:
        late = _beside_long_callbacks(server, per_second, LONG_ONES * (LONG + 1) + 1)
    else:
        late = (_in_threads if kind == "threads" else _in_tasks)(server, per_second, seconds)
    name = _name(kind, per_second)
    yield Reading(f"{name}_p50", late[len(late) // 2])
    yield Reading(f"{name}_p99", late[int(len(late) * 0.99)])
    yield Reading(f"{name}_max", late[-1])
    yield Reading(f"{name}_early", sum(value < 0 for value in late))


def _name(kind: str, per_second: int) -> str:
    return f"lateness_{per_second}" if kind == "threads" else f"lateness_{kind}_{per_second}"


def _measurement(
    kind: str, per_second: int, p50: Goal | None = None, p99: Goal | None = None, longest: Goal | None = None
) -> Measurement:
    who = f"two workers, one busy for {LONG:g} s" if kind == BESIDE_LONG else f"10 {kind}"
    name, title = _name(kind, per_second), f"at {per_second:,} due/s, {who}"
    figures = [
        Figure(f"{name}_p50", f"lateness p50 {title}", p50, MILLISECONDS),
        Figure(f"{name}_p99", f"lateness p99 {title}", p99, MILLISECONDS),
        Figure(f"{name}_max", f"lateness max {title}", longest, MILLISECONDS),
        Figure(f"{name}_early", f"delivered early {title}", NEVER, NUMBER),
    ]
    return Measurement(name, partial(lateness, kind, per_second), figures)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    half, soon, busy = at_most(1, MILLISECONDS), at_most(5, MILLISECONDS), at_most(25, MILLISECONDS)
    tick = at_most(1100, MILLISECONDS)
    return [
        _measurement("threads", 100),
        _measurement("threads", 1_000, half, soon),
        _measurement("threads", 10_000, None, busy),
        _measurement("tasks", 1_000, half, soon),
        _measurement("tasks", 10_000, None, busy),
        _measurement(BESIDE_LONG, 20, longest=tick),
        _measurement(BESIDE_LONG, 200, longest=tick),
    ]
