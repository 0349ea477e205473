"""Groups: what a payload costs the server that is gathered with others, and what one more in a large batch costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from delayq import DelayQueue, NewMessage
from measure.bench_server import QUEUE, TEXT, BenchServer, main_thread_seconds
from measure.figure import NUMBER, Figure, Goal, Measurement, Reading

SIZE = 20
"""Payloads of a group."""
LARGE = 1000
"""Bytes of each payload of a large batch."""


def _cost(server: BenchServer, n: int, send: Callable[[DelayQueue[Any]], object]) -> float:
    """Return the microseconds of the server's CPU for each of `n` payloads, sent and consumed."""
    server.empty()
    with DelayQueue(QUEUE, url=server.url, concurrency=10, callback=lambda _: None) as queue:
        before = main_thread_seconds(server.client)
        send(queue)
        queue.run(burst=True)
        spent = main_thread_seconds(server.client) - before
        if queue.counts().living:
            raise AssertionError("some were not delivered")
    return 1e6 * spent / n


def gathered(server: BenchServer) -> Iterator[Reading]:
    """Microseconds of the server's CPU for a payload in a group, compared with a message of its own."""
    n = server.many(100_000)
    news = [NewMessage(TEXT, id=f"group-{at // SIZE}") for at in range(n)]
    together = _cost(server, n, lambda queue: queue.send_many(news, debounce="1h", collect=SIZE))
    alone = _cost(server, n, lambda queue: queue.send_many([TEXT] * n))
    yield Reading("gathered", together, alone)


def last_of_many(server: BenchServer) -> Iterator[Reading]:
    """Microseconds of the server's CPU for the last payloads of a batch of 1,000, compared with the first of others."""
    server.empty()
    options: dict[str, Any] = {"debounce": "1h", "collect": 1000}
    payload, groups = "x" * LARGE, 10
    with DelayQueue(QUEUE, url=server.url) as queue:

        def send(ids: list[str]) -> float:
            before = main_thread_seconds(server.client)
            for id in ids:
                queue.send_delay_msg(payload, id=id, **options)
            return 1e6 * (main_thread_seconds(server.client) - before) / len(ids)

        first = send([f"other-{at}" for at in range(500)])
        for at in range(groups):
            queue.send_many([NewMessage(payload, id=f"group-{at}")] * 949, **options)
        yield Reading("thousandth", send([f"group-{at % groups}" for at in range(50 * groups)]), first)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""

    def goal(ratio: float, of: str) -> Goal:
        return Goal(f"≤ {ratio:g} of {of}", lambda figure: figure.ratio is not None and figure.ratio <= ratio)

    many = f"server's CPU for a payload in a group of {SIZE}, µs"
    last = "server's CPU for the 950th to 999th payload of 1 KB in a group, µs"
    return [
        Measurement(
            "gathered",
            gathered,
            [Figure("gathered", many, goal(0.6, "alone"), NUMBER, reference_name="alone", cost=True)],
        ),
        Measurement(
            "thousandth",
            last_of_many,
            [Figure("thousandth", last, goal(3, "the first"), NUMBER, reference_name="the first", cost=True)],
        ),
    ]
