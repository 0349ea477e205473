"""What the event log costs: sending and consuming with it on, beside the same with it off."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from measure.consuming import in_threads
from measure.figure import Figure, Measurement, Reading, at_least
from measure.sending import send_many
from measure.stand import Stand


def logged(stand: Stand) -> Iterator[Reading]:
    """Messages a second with the event log on, beside the same with it off."""
    n = stand.many(100_000)
    for name, rate in (("send_many_logged", send_many), ("consume_logged", in_threads)):
        yield Reading(name, *stand.beside(partial(rate, stand, n, logged=True), partial(rate, stand, n)))


def measurements() -> list[Measurement]:
    """Return what is measured here."""
    goal = at_least(0.7, "unlogged")
    return [
        Measurement(
            "event_log",
            logged,
            [
                Figure("send_many_logged", "`send_many`, events logged", goal, beside="unlogged"),
                Figure("consume_logged", "consume, 10 threads, events logged", goal, beside="unlogged"),
            ],
        )
    ]
