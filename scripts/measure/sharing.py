"""A worker of one, three and twenty queues: how many of the same number of messages it consumes in a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from delayq import DelayQueue, Worker
from measure.bench_server import QUEUE, TEXT, BenchServer, rate_of
from measure.consuming import in_threads
from measure.figure import Figure, Measurement, Reading

MESSAGES = 60_000
QUEUES = (3, 20)


def through_worker(server: BenchServer, n: int, count: int) -> float:
    """Return the messages per second through empty callbacks of a worker, spread evenly over its queues."""
    server.empty()
    with ExitStack() as stack:
        queues: list[DelayQueue[Any]] = [
            stack.enter_context(DelayQueue(f"{QUEUE}-{number}", url=server.url, callback=lambda _: None))
            for number in range(count)
        ]
        for number, queue in enumerate(queues):
            queue.send_many([TEXT] * len(range(number, n, count)))
        worker = Worker(dict.fromkeys(queues, 1), concurrency=10)
        rate = rate_of(n, lambda: worker.run(burst=True))
        if left := sum(queue.counts().living for queue in queues):
            raise AssertionError(f"{left} messages were not settled")
        return rate


def sharing(server: BenchServer) -> Iterator[Reading]:
    """Messages per second of a worker of one queue compared with the queue alone, and of several compared with one."""
    n = server.many(MESSAGES)
    yield Reading("worker_1", *server.compare(lambda: through_worker(server, n, 1), lambda: in_threads(server, n)))
    for count in QUEUES:
        rates = server.compare(
            lambda count=count: through_worker(server, n, count), lambda: through_worker(server, n, 1)
        )
        yield Reading(f"worker_{count}", *rates)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    figures = [Figure("worker_1", "consume, worker of one queue, 10 threads", reference_name="the queue alone")]
    figures += [
        Figure(f"worker_{count}", f"consume, worker of {count} queues, 10 threads", reference_name="one queue")
        for count in QUEUES
    ]
    return [Measurement("worker", sharing, figures)]
