"""Memory: bytes of a pending message without its payload, depending on how full the hash tables of Redis are.

Three tables have an entry per pending message. Each doubles when it is full; just after that, a message takes most.
"""

from __future__ import annotations

from collections.abc import Iterator

from measure.bench_server import BenchServer
from measure.figure import BYTES, Figure, Measurement, Reading, at_most
from measure.raw import PAYLOAD, batches

MAX_MESSAGES = 1_100_000
"""Messages in the full queue: a little more than 2**20, where the tables double."""
STEP = 25_000
"""Messages between two readings."""
MIN_MESSAGES = 100_000
"""Messages of the first reading: with fewer, the fixed memory of the server counts too much."""


def bytes_a_message(server: BenchServer) -> Iterator[Reading]:
    """Bytes without the payload with 1 M pending messages, and the minimum and maximum of all readings."""
    server.empty()
    server.raw.call(next(batches(server.calls, 1)))
    before = server.used_memory()
    curve: dict[int, float] = {}
    for n in range(STEP, max(server.many(MAX_MESSAGES), MIN_MESSAGES) + 1, STEP):
        server.raw.stream(batches(server.calls, STEP))
        if n >= MIN_MESSAGES:
            curve[n] = (server.used_memory() - before) / n - len(PAYLOAD)
    usual = min(1_000_000, max(curve))
    yield Reading("memory", curve[usual], note=f"{usual:,} pending")
    for name, choose in (("memory_least", min), ("memory_most", max)):
        n = choose(curve, key=lambda n: curve[n])
        yield Reading(name, curve[n], note=f"{n:,} pending")


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    figures = [
        Figure("memory", "memory of a message, without its payload", at_most(250, BYTES), BYTES),
        Figure("memory_least", "the same, tables full", None, BYTES),
        Figure("memory_most", "the same, tables just doubled", None, BYTES),
    ]
    return [Measurement("memory", bytes_a_message, figures, once=True)]
