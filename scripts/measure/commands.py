"""Client commands: how many a message needs under load, and how many an idle consumer sends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import redis

from delayq import DelayQueue
from measure.bench_server import QUEUE, TEXT, BenchServer, client_commands
from measure.figure import NUMBER, Figure, Measurement, Reading, at_most

OBSERVED = 5.0
"""Seconds that idle consumers are observed."""
SETTLED = 1.5
"""Seconds until idle consumers have finished their first polls."""


def under_load(server: BenchServer) -> Iterator[Reading]:
    """Commands per message of a consumer with concurrency 10 on a full queue."""
    n = server.many(100_000)
    server.empty()
    with DelayQueue(QUEUE, url=server.url, concurrency=10, callback=lambda _: None) as queue:
        queue.send_many([TEXT] * n)
        before = client_commands(server.client)
        queue.run(burst=True)
        yield Reading("commands", (client_commands(server.client) - before) / n)


def idle(name: str, workers: int, count: Callable[[redis.Redis], int], server: BenchServer) -> Iterator[Reading]:
    """Commands a second of so many consumers of an empty queue, as `count` counts them."""
    server.empty()
    with ExitStack() as queues:
        for _ in range(workers):
            queue = DelayQueue(QUEUE, url=server.url, callback=lambda _: None)
            queues.enter_context(queue).start_consume()
        time.sleep(SETTLED)
        before, began = count(server.client), time.monotonic()
        time.sleep(OBSERVED)
        yield Reading(name, (count(server.client) - before) / (time.monotonic() - began))


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    return [
        Measurement("commands", under_load, [Figure("commands", "client commands a message", at_most(0.1), NUMBER)]),
        Measurement(
            "idle",
            partial(idle, "idle", 1, client_commands),
            [Figure("idle", "idle, client commands", at_most(2, "/s"))],
        ),
    ]
