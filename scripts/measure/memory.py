"""Memory: bytes a pending message takes beside its payload, and how that goes with the fill of Redis' hash tables.

Three tables know every pending message, and each doubles when it is full: just after that a message costs most.
"""

from __future__ import annotations

from collections.abc import Iterator

from measure.figure import BYTES, Figure, Measurement, Reading, at_most
from measure.raw import PAYLOAD, batches
from measure.stand import Stand

MOST = 1_100_000
"""Messages the queue is filled with: a little past the doubling at 2**20."""
STEP = 25_000
"""Messages between two looks."""
LEAST = 100_000
"""Messages below which what the server needs anyway would count too much."""


def bytes_a_message(stand: Stand) -> Iterator[Reading]:
    """Bytes beside the payload at 1 M pending, and the least and the most on the way there and a little beyond."""
    stand.empty()
    stand.raw.call(next(batches(stand.calls, 1)))
    before = _used(stand)
    curve: dict[int, float] = {}
    for n in range(STEP, max(stand.many(MOST), LEAST) + 1, STEP):
        stand.raw.stream(batches(stand.calls, STEP))
        if n >= LEAST:
            curve[n] = (_used(stand) - before) / n - len(PAYLOAD)
    usual = min(1_000_000, max(curve))
    yield Reading("memory", curve[usual], note=f"{usual:,} pending")
    for name, choose in (("memory_least", min), ("memory_most", max)):
        n = choose(curve, key=lambda n: curve[n])
        yield Reading(name, curve[n], note=f"{n:,} pending")


def _used(stand: Stand) -> int:
    return int(stand.client.info("memory")["used_memory"])


def measurements() -> list[Measurement]:
    """Return what is measured here."""
    figures = [
        Figure("memory", "memory of a message, beside its payload", at_most(300, BYTES), BYTES),
        Figure("memory_least", "the same, tables full", None, BYTES),
        Figure("memory_most", "the same, tables just doubled", None, BYTES),
    ]
    return [Measurement("memory", bytes_a_message, figures, once=True)]
