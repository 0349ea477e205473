"""The cost of priorities: consuming messages that have one, compared with plain messages."""

from __future__ import annotations

from collections.abc import Iterator

from delayq import DelayQueue, NewMessage
from measure.bench_server import QUEUE, TEXT, BenchServer, rate_of
from measure.consuming import in_threads
from measure.figure import Figure, Measurement, Reading, at_least


def by_rank(server: BenchServer, n: int) -> float:
    """Return the messages per second, each with a priority, through empty callbacks in ten threads."""
    server.empty()
    with DelayQueue(QUEUE, url=server.url, concurrency=10) as queue:
        queue.callback(lambda _: None)
        queue.send_many([NewMessage(TEXT, priority=1 + at % 3) for at in range(n)])
        rate = rate_of(n, lambda: queue.run(burst=True))
        if living := queue.counts().living:
            raise AssertionError(f"{living} messages were not settled")
        return rate


def prioritized(server: BenchServer) -> Iterator[Reading]:
    """Messages per second with a priority on each, compared with plain ones."""
    n = server.many(100_000)
    yield Reading("prioritized", *server.compare(lambda: by_rank(server, n), lambda: in_threads(server, n)))


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    label, goal = "consume, 10 threads, `priority=`", at_least(0.7, "plain")
    return [Measurement("prioritized", prioritized, [Figure("prioritized", label, goal, reference_name="plain")])]
