"""Consuming with empty callbacks in threads, tasks and batches, and pulling, compared with the raw claim + ack loop.

The raw loop claims 100 messages in a round trip. A consumer with empty callbacks claims up to 500 and so can be faster;
the raw loop with 500 is measured too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delayq import AsyncDelayQueue, DelayQueue
from measure.bench_server import QUEUE, TEXT, BenchServer, rate_of
from measure.figure import Figure, Goal, Measurement, Reading, at_least
from measure.raw import CLAIM, MANY, claim_and_ack

MESSAGES = 100_000

Consume = Callable[[BenchServer, int], float]


def in_threads(server: BenchServer, n: int, *, concurrency: int = 10, logged: bool = False) -> float:
    """Return the messages per second through empty callbacks in threads, until the last is settled."""
    with _full(server, n, concurrency=concurrency, events=logged) as queue:
        queue.callback(lambda _: None)
        return burst(queue, n)


def in_batches(server: BenchServer, n: int) -> float:
    """Return the messages per second through an empty batch callback."""
    with _full(server, n, concurrency=10) as queue:
        queue.batch_callback(lambda _: None)
        return burst(queue, n)


def in_tasks(server: BenchServer, n: int, *, concurrency: int = 10) -> float:
    """Return the messages per second through empty coroutine functions."""

    async def consume() -> float:
        async with AsyncDelayQueue(QUEUE, url=server.url, concurrency=concurrency) as queue:

            @queue.callback
            async def nothing(_: Any) -> None:
                pass

            loop = asyncio.get_running_loop()
            began = loop.time()
            await queue.run(burst=True)
            rate = n / (loop.time() - began)
            _check((await queue.counts()).living)
            return rate

    _full(server, n).close()
    return asyncio.run(consume())


def by_pull(server: BenchServer, n: int) -> float:
    """Return the messages per second pulled a hundred at a time and acknowledged at the end of the block."""

    def pull() -> None:
        pulled = 0
        while pulled < n:
            with queue.lease(n=CLAIM) as messages:
                if not messages:
                    raise AssertionError(f"{pulled} of {n} messages could be pulled")
                pulled += len(messages)

    with _full(server, n) as queue:
        rate = rate_of(n, pull)
        _check(queue.counts().living)
        return rate


def raw_loop(server: BenchServer, n: int, *, claim: int = CLAIM) -> float:
    """Return the messages per second of the raw claim + ack loop."""
    _full(server, n).close()
    return rate_of(n, lambda: claim_and_ack(server.raw, server.calls, n, claim))


def _full(server: BenchServer, n: int, **options: Any) -> DelayQueue[Any]:
    server.empty()
    queue = DelayQueue(QUEUE, url=server.url, **options)
    queue.send_many([TEXT] * n)
    return queue


def burst(queue: DelayQueue[Any], n: int) -> float:
    """Return the messages per second of a burst, until all are settled."""
    rate = rate_of(n, lambda: queue.run(burst=True))
    _check(queue.counts().living)
    return rate


def _check(living: int) -> None:
    if living:
        raise AssertionError(f"{living} messages were not settled")


def _compared_with_raw(name: str, consume: Consume, server: BenchServer) -> Iterator[Reading]:
    """Messages per second until the last is settled, compared with the raw loop."""
    n = server.many(MESSAGES)
    yield Reading(name, *server.compare(lambda: consume(server, n), lambda: raw_loop(server, n)))


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""

    def one(name: str, title: str, consume: Consume, goal: Goal | None = None) -> Measurement:
        return Measurement(name, partial(_compared_with_raw, name, consume), [Figure(name, title, goal)])

    return [
        one("consume_1", "consume, 1 thread", partial(in_threads, concurrency=1)),
        one("consume_10", "consume, 10 threads", partial(in_threads, concurrency=10), at_least(0.7)),
        one("consume_100", "consume, 100 threads", partial(in_threads, concurrency=100)),
        one("consume_tasks_1", "consume, 1 task", partial(in_tasks, concurrency=1)),
        one("consume_tasks_10", "consume, 10 tasks", partial(in_tasks, concurrency=10), at_least(0.6)),
        one("consume_tasks_100", "consume, 100 tasks", partial(in_tasks, concurrency=100)),
        one("consume_batches", "consume, batch callback", in_batches, at_least(0.9)),
        one("pull", "pull, 100 at a time", by_pull),
        one("raw_loop", "the raw loop, 500 at a time", partial(raw_loop, claim=MANY)),
    ]
