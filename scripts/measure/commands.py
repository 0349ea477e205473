"""Client commands: how many a message takes under load, and what a consumer sends that has nothing to do."""

from __future__ import annotations

import time
from collections.abc import Iterator

from delayq import DelayQueue
from measure.figure import NUMBER, Figure, Measurement, Reading, at_most
from measure.stand import QUEUE, TEXT, Stand, client_commands

WINDOW = 5.0
"""Seconds that an idle consumer is watched."""


def under_load(stand: Stand) -> Iterator[Reading]:
    """Commands of a consumer at concurrency 10 for each message that it settles, the queue being full of them."""
    n = stand.many(100_000)
    stand.empty()
    with DelayQueue(QUEUE, url=stand.url, concurrency=10, callback=lambda _: None) as queue:
        queue.send_many([TEXT] * n)
        before = client_commands(stand.client)
        queue.run(burst=True)
        yield Reading("commands", (client_commands(stand.client) - before) / n)


def idle(stand: Stand) -> Iterator[Reading]:
    """Commands a second of one consumer of an empty queue."""
    stand.empty()
    with DelayQueue(QUEUE, url=stand.url, callback=lambda _: None) as queue:
        queue.start_consume()
        time.sleep(1.5)  # until it has looked around
        before, began = client_commands(stand.client), time.monotonic()
        time.sleep(WINDOW)
        yield Reading("idle", (client_commands(stand.client) - before) / (time.monotonic() - began))


def measurements() -> list[Measurement]:
    """Return what is measured here."""
    return [
        Measurement("commands", under_load, [Figure("commands", "client commands a message", at_most(0.1), NUMBER)]),
        Measurement("idle", idle, [Figure("idle", "idle, client commands", at_most(2, "/s"))]),
    ]
