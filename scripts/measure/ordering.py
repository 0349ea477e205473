"""The cost of keys in order: each message has one, compared with messages without; and many keys compared with few."""

from __future__ import annotations

from collections.abc import Iterator

from delayq import DelayQueue, NewMessage
from measure.bench_server import QUEUE, TEXT, BenchServer
from measure.consuming import burst, in_threads
from measure.figure import Figure, Goal, Measurement, Reading, at_least

FEW, MANY = 10, 100_000
MAX_RATIO = 1.2


def by_key(server: BenchServer, n: int, keys: int) -> float:
    """Return the messages per second through empty callbacks in ten threads, in order by so many keys."""
    server.empty()
    with DelayQueue(QUEUE, url=server.url, concurrency=10, callback=lambda _: None) as queue:
        queue.limits.set("k:*", in_order=True)
        queue.send_many([NewMessage(TEXT, key=f"k:{at % keys}") for at in range(n)])
        return burst(queue, n)


def keyed(server: BenchServer) -> Iterator[Reading]:
    """Messages per second with a key each, compared with none; and of 100,000 keys, compared with ten."""
    n = server.many(MANY)
    yield Reading("keyed", *server.compare(lambda: by_key(server, n, MANY), lambda: in_threads(server, n)))
    yield Reading("keys_100k", *server.compare(lambda: by_key(server, n, MANY), lambda: by_key(server, n, FEW)))


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    title = "consume, 10 threads, in order by key"
    goal = Goal(f"≤ {MAX_RATIO} times 10", lambda figure: figure.ratio is not None and figure.ratio >= 1 / MAX_RATIO)
    return [
        Measurement(
            "ordering",
            keyed,
            [
                Figure("keyed", f"{title}, a key each", at_least(0.5, "without"), reference_name="without"),
                Figure("keys_100k", f"{title}, 100,000 keys", goal, reference_name="10 keys"),
            ],
        )
    ]
