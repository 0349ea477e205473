"""Cancelling and rescheduling pending messages, beside bare round trips of the same calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delayq import DelayQueue
from delayq.ids import new_ids
from delayq.values import Call
from measure.figure import Figure, Measurement, Reading
from measure.raw import AHEAD, BATCH, sending
from measure.stand import QUEUE, Stand, rate_of

LATER = 2 * AHEAD


def _beside_raw(
    name: str, ours: Callable[[DelayQueue[Any], str], object], call: Callable[[Stand, str], Call[str]], stand: Stand
) -> Iterator[Reading]:
    """Messages a second, an id a call: none takes more by the public interface."""
    n = stand.many(10_000)

    def by_delayq() -> float:
        ids = _pending(stand, n)
        with DelayQueue(QUEUE, url=stand.url) as queue:
            ours(queue, ids.pop())
            return rate_of(len(ids), lambda: [ours(queue, id) for id in ids])

    def bare() -> float:
        packed = [stand.raw.pack(call(stand, id)) for id in _pending(stand, n)]
        return rate_of(n, lambda: [stand.raw.exchange(one, 1) for one in packed])

    yield Reading(name, *stand.beside(by_delayq, bare))


def _pending(stand: Stand, n: int) -> list[str]:
    """Fill the queue and return the ids."""
    stand.empty()
    ids = new_ids(n)
    stand.raw.stream(sending(stand.calls, [AHEAD] * BATCH, ids[at : at + BATCH]) for at in range(0, n, BATCH))
    return ids


def measurements() -> list[Measurement]:
    """Return what is measured here."""
    cancel = partial(
        _beside_raw, "cancel", lambda queue, id: queue.cancel(id), lambda stand, id: stand.calls.cancel([id])
    )
    reschedule = partial(
        _beside_raw,
        "reschedule",
        lambda queue, id: queue.reschedule(id, LATER / 1000),
        lambda stand, id: stand.calls.reschedule([(id, LATER)]),
    )
    return [
        Measurement("cancel", cancel, [Figure("cancel", "cancel one by one")]),
        Measurement("reschedule", reschedule, [Figure("reschedule", "reschedule one by one")]),
    ]
