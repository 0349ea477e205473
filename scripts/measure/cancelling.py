"""Cancelling and rescheduling pending messages, compared with bare round trips of the same calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delayq import DelayQueue
from delayq.broker.message.ids import new_ids
from delayq.broker.requests import ScriptCall
from measure.bench_server import QUEUE, BenchServer, rate_of
from measure.figure import Figure, Measurement, Reading
from measure.raw import AHEAD, BATCH, sending

LATER = 2 * AHEAD


def _compared_with_raw(
    name: str,
    ours: Callable[[DelayQueue[Any], str], object],
    call: Callable[[BenchServer, str], ScriptCall[str]],
    server: BenchServer,
) -> Iterator[Reading]:
    """Messages per second, one id per call, because the public interface takes one."""
    n = server.many(10_000)

    def by_delayq() -> float:
        ids = _pending(server, n)
        with DelayQueue(QUEUE, url=server.url) as queue:
            ours(queue, ids.pop())
            return rate_of(len(ids), lambda: [ours(queue, id) for id in ids])

    def bare() -> float:
        packed = [server.raw.pack(call(server, id)) for id in _pending(server, n)]
        return rate_of(n, lambda: [server.raw.exchange(one, 1) for one in packed])

    yield Reading(name, *server.compare(by_delayq, bare))


def _pending(server: BenchServer, n: int) -> list[str]:
    """Fill the queue and return the ids."""
    server.empty()
    ids = new_ids(n)
    server.raw.stream(sending(server.calls, [AHEAD] * BATCH, ids[at : at + BATCH]) for at in range(0, n, BATCH))
    return ids


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    cancel = partial(
        _compared_with_raw, "cancel", lambda queue, id: queue.cancel(id), lambda server, id: server.calls.cancel([id])
    )
    reschedule = partial(
        _compared_with_raw,
        "reschedule",
        lambda queue, id: queue.reschedule(id, LATER / 1000),
        lambda server, id: server.calls.reschedule([(id, LATER)]),
    )
    return [
        Measurement("cancel", cancel, [Figure("cancel", "cancel one by one")]),
        Measurement("reschedule", reschedule, [Figure("reschedule", "reschedule one by one")]),
    ]
