"""A consumer tells every 10 s that it works: see `DelayQueue.workers`.

That takes one script, in a round trip that it makes anyway. If Redis refuses it, the consumer says so once and goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import nsmallest
from typing import Any

from delayq import __version__
from delayq.broker.beats import MAX_NAMED, HourCounts, WorkerEntry, beat_call
from delayq.broker.context import EngineContext
from delayq.errors import DelayqError, UnavailableError
from delayq.safe_log import SafeLog
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.parts.part import Call, LoopPart, Stage, Turns
from delayq.worker.parts.tally import Tally

log = SafeLog("delayq.consumer")

BEAT_EVERY = 10.0
"""Seconds between two beats of a consumer; a worker of many queues leaves more time between those of each."""


class Presence(LoopPart):
    """When one consumer tells that it works, and what it tells. Times are local and monotonic, in seconds."""

    stage = Stage.BESIDE
    takes_errors = True

    def __init__(
        self,
        context: EngineContext,
        consumer_id: str,
        *,
        burst: bool = False,
        concurrency: int | None = None,
        served: Callable[[], tuple[list[str], int]] | None = None,
        every: Callable[[], float] = lambda: BEAT_EVERY,
        tally: Tally | None = None,
    ) -> None:
        """Tell at the start, in a `burst` only if it lasts; add what was counted to the history.

        A worker of several queues has its own `concurrency`, tells the first names of those it serves and how many they
        are, and says how long to wait until the next beat (seconds).
        """
        self._calls: Any = context.calls
        self._consumer_id = consumer_id
        self._burst = burst
        self._concurrency = context.settings.concurrency if concurrency is None else concurrency
        self._served: Callable[[], tuple[list[str], int]] = served or (lambda: ([context.queue], 1))
        self._tick = context.settings.tick / 1000
        self._every = every
        self._started: float | None = None
        self._tally = tally
        self._stored = self._refused = False
        self._deliveries: Collection[InFlightDelivery] = ()
        self._next_at = 0.0

    def connect(self, turns: Turns) -> None:
        """Tell what this loop has in flight."""
        self._deliveries = turns.deliveries

    def next_at(self, _: float) -> float:
        """Return when to tell again."""
        return self._next_at

    def plan(self, now: float) -> Iterator[Call]:
        """Yield the call that tells, if it is due."""
        if now < self._next_at:
            return
        every = max(self._every(), self._tick)  # a longer tick makes fewer turns
        self._next_at = now + every
        if self._started is None:
            self._started = now
            if self._burst:
                return
        self._stored = True
        entry = self._entry(now, started=self._started, every=every)
        yield beat_call(self._calls, self._consumer_id, entry, self._counted()), self.read

    def _counted(self) -> HourCounts | None:
        return None if self._tally is None else self._tally.take()

    def _entry(self, now: float, *, started: float, every: float) -> WorkerEntry:
        names, number = self._served()
        deliveries = self._deliveries
        return WorkerEntry(
            host=os.uname().nodename,
            pid=os.getpid(),
            version=__version__,
            queues=names,
            served=number,
            concurrency=self._concurrency,
            every=round(every * 1000),
            up=round((now - started) * 1000),
            held=len(deliveries),
            running=[(id, max(0, round((now - began) * 1000))) for began, id in _longest(deliveries)],
        )

    def read(self, reply: object) -> None:
        """Note the reply; that Redis refuses beats is logged once, until it accepts one again."""
        if isinstance(reply, UnavailableError):  # a stop that waits no longer
            return
        if isinstance(reply, DelayqError):
            self._stored = False
            if not self._refused:
                log.warning("this worker is not among those of the queue, since Redis refuses its beats: %s", reply)
        self._refused = isinstance(reply, DelayqError)

    def leave(self) -> list[Any]:
        """Return the call that removes the entry, if there may be one, and adds what was counted last."""
        stored, self._stored = self._stored, False
        if self._refused:
            return []
        counted = self._counted()
        return [beat_call(self._calls, self._consumer_id, None, counted)] if stored or counted else []


def _longest(deliveries: Iterable[InFlightDelivery]) -> list[tuple[float, str]]:
    """Return when callbacks have started, and on which messages, those that run for longest."""
    started = ((one.batch.started, one.claimed.id) for one in deliveries if one.batch is not None)
    return nsmallest(MAX_NAMED, started)
