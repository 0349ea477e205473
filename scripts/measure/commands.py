"""Client commands: how many a message needs under load."""

from __future__ import annotations

from collections.abc import Iterator

from delayq import DelayQueue
from measure.bench_server import QUEUE, TEXT, BenchServer, client_commands
from measure.figure import EXACT, NUMBER, Figure, Measurement, Reading, at_most


def under_load(server: BenchServer) -> Iterator[Reading]:
    """Commands per message of a consumer with concurrency 10 on a full queue."""
    n = server.many(100_000)
    server.empty()
    with DelayQueue(QUEUE, url=server.url, concurrency=10, callback=lambda _: None) as queue:
        queue.send_many([TEXT] * n)
        before = client_commands(server.client)
        queue.run(burst=True)
        yield Reading("commands", (client_commands(server.client) - before) / n)


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    return [
        Measurement(
            "commands",
            under_load,
            [Figure("commands", "client commands a message", at_most(0.1), NUMBER, may_rise=EXACT)],
        ),
    ]
