"""Consuming: empty callbacks in threads and tasks, in batches, and pulling, each beside the raw claim + ack loop.

That loop claims 100 messages in a round trip. A consumer with empty callbacks claims up to 500, and so can be ahead of
it; what the raw loop does with as many is measured too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delayq import AsyncDelayQueue, DelayQueue
from measure.figure import Figure, Goal, Measurement, Reading, at_least
from measure.raw import CLAIM, MANY, claim_and_ack
from measure.stand import QUEUE, TEXT, Stand, rate_of

MESSAGES = 100_000

Consume = Callable[[Stand, int], float]


def in_threads(stand: Stand, n: int, *, concurrency: int = 10, logged: bool = False) -> float:
    """Return the messages a second through empty callbacks in threads, until the last is settled."""
    with _full(stand, n, concurrency=concurrency, events=logged) as queue:
        queue.callback(lambda _: None)
        return _burst(queue, n)


def in_batches(stand: Stand, n: int) -> float:
    """Return the messages a second through an empty batch callback."""
    with _full(stand, n, concurrency=10) as queue:
        queue.batch_callback(lambda _: None)
        return _burst(queue, n)


def in_tasks(stand: Stand, n: int, *, concurrency: int = 10) -> float:
    """Return the messages a second through empty coroutine functions."""

    async def consume() -> float:
        async with AsyncDelayQueue(QUEUE, url=stand.url, concurrency=concurrency) as queue:

            @queue.callback
            async def nothing(_: Any) -> None:
                pass

            loop = asyncio.get_running_loop()
            began = loop.time()
            await queue.run(burst=True)
            rate = n / (loop.time() - began)
            _check((await queue.counts()).living)
            return rate

    _full(stand, n).close()
    return asyncio.run(consume())


def by_pull(stand: Stand, n: int) -> float:
    """Return the messages a second that are pulled a hundred at a time and acknowledged at the end of the block."""

    def pull() -> None:
        pulled = 0
        while pulled < n:
            with queue.lease(n=CLAIM) as messages:
                if not messages:
                    raise AssertionError(f"{pulled} of {n} messages could be pulled")
                pulled += len(messages)

    with _full(stand, n) as queue:
        rate = rate_of(n, pull)
        _check(queue.counts().living)
        return rate


def raw_loop(stand: Stand, n: int, *, claim: int = CLAIM) -> float:
    """Return the messages a second of the raw claim + ack loop."""
    _full(stand, n).close()
    return rate_of(n, lambda: claim_and_ack(stand.raw, stand.calls, n, claim))


def _full(stand: Stand, n: int, **options: Any) -> DelayQueue[Any]:
    stand.empty()
    queue = DelayQueue(QUEUE, url=stand.url, **options)
    queue.send_many([TEXT] * n)
    return queue


def _burst(queue: DelayQueue[Any], n: int) -> float:
    rate = rate_of(n, lambda: queue.run(burst=True))
    _check(queue.counts().living)
    return rate


def _check(living: int) -> None:
    if living:
        raise AssertionError(f"{living} messages were not settled")


def _beside_raw(name: str, consume: Consume, stand: Stand) -> Iterator[Reading]:
    """Messages a second until the last is settled, beside the raw loop over as many."""
    n = stand.many(MESSAGES)
    yield Reading(name, *stand.beside(lambda: consume(stand, n), lambda: raw_loop(stand, n)))


def measurements() -> list[Measurement]:
    """Return what is measured here."""

    def one(name: str, title: str, consume: Consume, goal: Goal | None = None) -> Measurement:
        return Measurement(name, partial(_beside_raw, name, consume), [Figure(name, title, goal)])

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
