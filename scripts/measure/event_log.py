"""The cost of the event log: sending and consuming with it, compared with the same without it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from measure.bench_server import BenchServer
from measure.consuming import in_threads
from measure.figure import Figure, Measurement, Reading, at_least
from measure.sending import send_many


def logged(server: BenchServer) -> Iterator[Reading]:
    """Messages per second with the event log, compared with the same without it."""
    n = server.many(100_000)
    for name, rate in (("send_many_logged", send_many), ("consume_logged", in_threads)):
        yield Reading(name, *server.compare(partial(rate, server, n, logged=True), partial(rate, server, n)))


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    goal = at_least(0.7, "unlogged")
    return [
        Measurement(
            "event_log",
            logged,
            [
                Figure("send_many_logged", "`send_many`, events logged", goal, reference_name="unlogged"),
                Figure("consume_logged", "consume, 10 threads, events logged", goal, reference_name="unlogged"),
            ],
        )
    ]
