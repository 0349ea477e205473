"""The cost of limits that never bind, and of many, compared with messages without; and how exact a rate is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from delayq import DelayQueue, NewMessage
from delayq.broker.replies import read_claim
from delayq.broker.scripts import MAX_IDS
from measure.bench_server import QUEUE, TEXT, BenchServer, main_thread_seconds
from measure.consuming import burst
from measure.figure import MILLISECONDS, Figure, Goal, Measurement, Reading, at_least, at_most
from measure.raw import CLAIM

NEVER_BINDS: dict[str, Any] = {"rate_limit": "100000/s", "running": 10_000}
NAMES, MANY = 10, 1000
LEASE = 600_000
"""Milliseconds."""
TRIES = 3
"""Claims are timed so many times, with few and many limits in turn; the least time counts."""
MAX_RATIO = 1.2
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
    for figure, limits, others in (("limited", NAMES, 0), ("limits_1000", MANY, NAMES)):
        rates = server.compare(
            lambda limits=limits: under_limits(server, n, limits), lambda others=others: under_limits(server, n, others)
        )
        yield Reading(figure, *rates)


def claim_time(server: BenchServer, n: int, limits: int, names: int) -> float:
    """Return the ms of the server's main thread for a claim of 100, in a queue with so many limits that never bind."""
    server.empty()
    with DelayQueue(QUEUE, url=server.url) as queue:
        for number in range(limits):
            queue.limits.set(f"job{number}", **NEVER_BINDS)
        queue.send_many([NewMessage(TEXT, name=f"job{at % names}") for at in range(n)])
    raw, calls = server.raw, server.calls
    server.raw.stream(calls.pending_to_ready() for _ in range(0, n, MAX_IDS))
    claims = [raw.pack(calls.ready_to_unack(CLAIM, lease=LEASE, consumer_id="raw")) for _ in range(0, n, CLAIM)]
    began = main_thread_seconds(server.client)
    last = [raw.exchange(claim, 1)[0] for claim in claims][-1]
    took = main_thread_seconds(server.client) - began
    if len(read_claim(last).messages) != CLAIM:
        raise AssertionError("not every claim found messages")
    return 1000 * took / len(claims)


def claims(server: BenchServer) -> Iterator[Reading]:
    """Milliseconds of a claim under many limits, compared with one under ten: the least of some."""
    n = server.many(20_000)
    times = [
        tuple(claim_time(server, n, limits, names) for limits, names in ((NAMES, NAMES), (MANY, NAMES), (MANY, MANY)))
        for _ in range(TRIES)
    ]
    ten, unused, used = map(min, zip(*times, strict=True))
    yield Reading("claim_limits", unused, ten)
    yield Reading("claim_limits_used", used, ten)


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
    times = Goal(f"≤ {MAX_RATIO} times 10", lambda figure: figure.ratio is not None and figure.ratio <= MAX_RATIO)
    claim = "server CPU of a claim of 100, 1,000 limits"
    claimed = [
        Figure("claim_limits", f"{claim}, 10 names", times, MILLISECONDS, "10 limits", cost=True),
        Figure("claim_limits_used", f"{claim}, 1,000 names", None, MILLISECONDS, "10 limits", cost=True),
    ]
    return [
        Measurement("limited", unbound, figures),
        Measurement("claim_limits", claims, claimed),
        Measurement("rates", exact, rates, once=True),
    ]
