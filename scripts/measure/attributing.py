"""The cost of names, priorities and the like: consuming messages that have them, compared with plain messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from delayq import DelayQueue, NewMessage
from measure.bench_server import QUEUE, TEXT, BenchServer
from measure.consuming import burst, in_threads
from measure.figure import BYTES, Figure, Measurement, Reading, at_least, at_most

OPTIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    "named": lambda _: {"name": "remind"},
    "prioritized": lambda at: {"priority": 1 + at % 3},
    "expiring": lambda _: {"expires": "1d"},
    "timed": lambda _: {"timeout": "1m"},
    "retained": lambda _: {"retention": "1h"},
}
"""Options of the messages of each figure, by their number."""
LABELS = {
    "named": "consume, 10 threads, `name=`",
    "prioritized": "consume, 10 threads, `priority=`",
    "expiring": "consume, 10 threads, `expires=`",
    "timed": "consume, 10 threads, `timeout=`",
    "retained": "consume, 10 threads, `retention=`: with a result each",
}
GOALS = {"named": at_least(0.7, "plain"), "prioritized": at_least(0.7, "plain")}


def with_attributes(server: BenchServer, n: int, kind: str) -> float:
    """Return the messages per second, each with attributes, through almost empty callbacks in ten threads."""
    server.empty()
    with DelayQueue(QUEUE, url=server.url, concurrency=10) as queue:

        def process(_: Any) -> None:
            pass

        queue.callback(process)
        if kind == "named":  # a queue without functions for names looks at none
            queue.on("remind")(process)
        queue.send_many([NewMessage(TEXT, **OPTIONS[kind](at)) for at in range(n)])
        return burst(queue, n)


def attributed(server: BenchServer) -> Iterator[Reading]:
    """Messages per second with an option on each, compared with plain ones."""
    n = server.many(50_000)
    for kind in OPTIONS:
        yield Reading(
            kind, *server.compare(lambda kind=kind: with_attributes(server, n, kind), lambda: in_threads(server, n))
        )


def bytes_of_attributes(server: BenchServer) -> Iterator[Reading]:
    """Bytes that a name takes, in memory: what messages with one take more than those without."""
    n, used = 100_000, []
    either: tuple[dict[str, Any], ...] = ({}, {"name": "remind"})
    for options in either:
        server.empty()
        with DelayQueue(QUEUE, url=server.url) as queue:
            queue.send_many([NewMessage(TEXT, "1h", id=f"{at:032}", **options) for at in range(n)])
        used.append(server.used_memory())
    yield Reading("attributes", (used[1] - used[0]) / n)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    figures = [Figure(kind, LABELS[kind], GOALS.get(kind), reference_name="plain") for kind in OPTIONS]
    memory = Figure("attributes", "memory of a message's name", at_most(120, BYTES), BYTES)
    return [
        Measurement("attributed", attributed, figures),
        Measurement("attributes", bytes_of_attributes, [memory], once=True),
    ]
