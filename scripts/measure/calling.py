"""The cost of tasks: consuming messages that call functions with arguments, compared with plain ones and a callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from delayq import AsyncDelayQueue, DelayQueue
from measure.bench_server import QUEUE, BenchServer, rate_of
from measure.consuming import in_tasks, in_threads
from measure.figure import Figure, Measurement, Reading, at_least


def tasks_in_threads(server: BenchServer, n: int) -> float:
    """Return the messages per second through an empty task in ten threads, until the last is settled."""
    server.empty()
    with DelayQueue(QUEUE, url=server.url, concurrency=10) as queue:

        @queue.task
        def remind(user: int, text: str) -> None:
            pass

        queue.send_many([remind.message(42, text="x" * 43)] * n)
        rate = rate_of(n, lambda: queue.run(burst=True))
        _check(queue.counts().living)
        return rate


def coroutine_tasks(server: BenchServer, n: int) -> float:
    """Return the same for an empty coroutine function, ten at a time."""

    async def consume() -> float:
        async with AsyncDelayQueue(QUEUE, url=server.url, concurrency=10) as queue:

            @queue.task
            async def remind(user: int, text: str) -> None:
                pass

            await queue.send_many([remind.message(42, text="x" * 43)] * n)
            loop = asyncio.get_running_loop()
            began = loop.time()
            await queue.run(burst=True)
            rate = n / (loop.time() - began)
            _check((await queue.counts()).living)
            return rate

    server.empty()
    return asyncio.run(consume())


def _check(living: int) -> None:
    if living:
        raise AssertionError(f"{living} messages were not settled")


PAIRS: dict[str, tuple[Callable[[BenchServer, int], float], Callable[[BenchServer, int], float]]] = {
    "called_in_threads": (tasks_in_threads, in_threads),
    "called_in_tasks": (coroutine_tasks, in_tasks),
}


def called(server: BenchServer) -> Iterator[Reading]:
    """Messages per second that call a task, compared with plain messages of the same size and a callback."""
    n = server.many(100_000)
    for name, (ours, plain) in PAIRS.items():
        yield Reading(name, *server.compare(lambda ours=ours: ours(server, n), lambda plain=plain: plain(server, n)))


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    goal = at_least(0.7, "plain")
    return [
        Measurement(
            "called",
            called,
            [
                Figure("called_in_threads", "consume, 10 threads, `@queue.task`", goal, reference_name="plain"),
                Figure("called_in_tasks", "consume, 10 tasks, `@queue.task`", goal, reference_name="plain"),
            ],
        )
    ]
