"""The cost of encryption: `send_many` and consuming with the codec `Encrypted`, compared with plain JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from delayq import DelayQueue, Encrypted
from measure.bench_server import QUEUE, TEXT, BenchServer, rate_of
from measure.consuming import burst
from measure.figure import Figure, Measurement, Reading, at_least


def _send(server: BenchServer, n: int, options: dict[str, Any]) -> float:
    server.empty()
    with DelayQueue(QUEUE, url=server.url, **options) as queue:
        queue.send_delay_msg(TEXT)
        payloads = [TEXT] * n
        return rate_of(n, lambda: queue.send_many(payloads, delay=60))


def _consume(server: BenchServer, n: int, options: dict[str, Any]) -> float:
    server.empty()
    with DelayQueue(QUEUE, url=server.url, concurrency=10, **options) as queue:
        queue.send_many([TEXT] * n)
        queue.callback(lambda _: None)
        return burst(queue, n)


def encrypted(server: BenchServer) -> Iterator[Reading]:
    """Messages per second with one key, compared with plain ones."""
    n = server.many(100_000)
    options = {"codec": Encrypted({"measured": os.urandom(32)})}
    for name, work in (("encrypted_send_many", _send), ("encrypted_consume", _consume)):
        yield Reading(name, *server.compare(partial(work, server, n, options), partial(work, server, n, {})))


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    figures = [
        Figure("encrypted_send_many", "`send_many`, encrypted", at_least(0.7, "plain"), reference_name="plain"),
        Figure("encrypted_consume", "consume, 10 threads, encrypted", reference_name="plain"),
    ]
    return [Measurement("encrypted", encrypted, figures)]
