"""The cost of limits that never bind, and of many, compared with messages without; and how exact a rate is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from delayq import DelayQueue, NewMessage
from measure.bench_server import QUEUE, TEXT, BenchServer
from measure.consuming import burst
from measure.figure import Figure, Measurement, Reading, at_least, at_most

NEVER_BINDS = {"rate_limit": "100000/s", "running": 10_000}
NAMES = 10
WORKERS, SECONDS, WARM = 4, 10.0, 2.0
"""Workers of a rate that binds, how long they are counted, and after how long."""
RATES = (200, 2000)
PERCENT = " %"


def under_limits(server: BenchServer, n: int, limits: int) -> float:
    """Return the messages per second of ten names in ten threads, in a queue with so many limits that never bind."""
    server.empty()
    with DelayQueue(QUEUE, url=server.url, concurrency=10) as queue:
        queue.on("job")(lambda _: None)
        for number in range(limits):
            queue.limits.set(f"job{number}", **NEVER_BINDS)
        queue.send_many([NewMessage(TEXT, name=f"job{at % NAMES}") for at in range(n)])
        return burst(queue, n)


def unbound(server: BenchServer) -> Iterator[Reading]:
    """Messages per second under limits that never bind, compared with none, and a thousand of them with ten."""
    n = server.many(50_000)
    for figure, limits, others in (("limited", NAMES, 0), ("limits_1000", 1000, NAMES)):
        rates = server.compare(
            lambda limits=limits: under_limits(server, n, limits), lambda others=others: under_limits(server, n, others)
        )
        yield Reading(figure, *rates)


def exact(server: BenchServer) -> Iterator[Reading]:
    """By how many percent what starts in ten seconds differs from its rate, with four workers."""
    for rate in RATES:
        server.empty()
        with ExitStack() as stack:
            queues: list[DelayQueue[Any]] = [
                stack.enter_context(DelayQueue(QUEUE, url=server.url, callback=lambda _: None)) for _ in range(WORKERS)
            ]
            queues[0].limits.set(rate_limit=f"{rate}/s")
            queues[0].send_many([TEXT] * int(1.5 * rate * (SECONDS + WARM)))
            for queue in queues:
                queue.start_consume()
            time.sleep(WARM)  # the burst is over
            first = _started(server)
            time.sleep(SECONDS)
            count, took = (after - before for after, before in zip(_started(server), first, strict=True))
        yield Reading(f"rate_{rate}", 100 * abs(count / took / rate - 1), note=f"{count / took:.1f}/s")


def _started(server: BenchServer) -> tuple[float, float]:
    return float(server.client.hget(f"delayq:{{{QUEUE}}}:meta", "delivered") or 0), time.monotonic()


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    title = "consume, 10 threads, limits of the names that never bind"
    many = "consume, 10 threads, in a queue with 1,000 limits"
    figures = [
        Figure("limited", title, at_least(0.85, "without"), reference_name="without"),
        Figure("limits_1000", many, at_least(0.83, "10 limits"), reference_name="10 limits"),
    ]
    rates = [
        Figure(f"rate_{rate}", f"a rate of {rate:,}/s, 4 workers, 10 s: off by", at_most(2, PERCENT), PERCENT)
        for rate in RATES
    ]
    return [Measurement("limited", unbound, figures), Measurement("rates", exact, rates, once=True)]
