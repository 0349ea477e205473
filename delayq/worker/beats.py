"""A consumer tells of itself every 10 s, so that others know who works: see `DelayQueue.workers`.

Its beat travels in a round trip that it makes anyway, and takes one script. If Redis refuses it, the consumer says so
once and goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import nsmallest
from typing import Any

from delayq import __version__
from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.history_records import HourCounts
from delayq.broker.worker_entries import MAX_NAMED, WorkerEntry
from delayq.errors import DelayqError, UnavailableError
from delayq.safe_log import SafeLog
from delayq.worker.in_flight_delivery import InFlightDelivery
from delayq.worker.tally import Tally

log = SafeLog("delayq.consumer")

BEAT_EVERY = 10.0
"""Seconds between two beats of a consumer; a worker of many queues leaves more time between those of each."""


class Beats:
    """When one consumer tells of itself, and what. Times are local and monotonic, in seconds."""

    def __init__(
        self,
        context: EngineContext,
        consumer_id: str,
        *,
        burst: bool = False,
        concurrency: int | None = None,
        served: Callable[[], tuple[list[str], int]] | None = None,
        every: Callable[[], float] = lambda: BEAT_EVERY,
    ) -> None:
        """Tell at the start, in a `burst` only if it lasts; an engine without the feature never does.

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
        self.tally: Tally | None = None
        """What is counted for the history, if anything is."""
        self._stored = self._refused = False
        self.enabled = context.calls.capabilities.has(Feature.WORKERS)
        self.next_at = 0.0
        """When to tell again."""

    def plan(self, now: float, deliveries: Collection[InFlightDelivery]) -> Iterator[tuple[Any, Callable[[Any], None]]]:
        """Yield the call of a beat that is due, with the function for its reply, which accepts an error as well."""
        if not self.enabled or now < self.next_at:
            return
        every = max(self._every(), self._tick)  # a longer tick makes fewer turns
        self.next_at = now + every
        if self._started is None:
            self._started = now
            if self._burst:
                return
        self._stored = True
        entry = self._entry(now, deliveries, started=self._started, every=every)
        yield self._calls.beat(self._consumer_id, entry, self._counted()), self.read

    def _counted(self) -> HourCounts | None:
        return None if self.tally is None else self.tally.take()

    def _entry(
        self, now: float, deliveries: Collection[InFlightDelivery], *, started: float, every: float
    ) -> WorkerEntry:
        names, number = self._served()
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

    def end(self) -> list[Any]:
        """Return the call that removes the entry, if there may be one, and adds what was counted last."""
        stored, self._stored = self._stored, False
        if not self.enabled or self._refused:
            return []
        counted = self._counted()
        return [self._calls.beat(self._consumer_id, None, counted)] if stored or counted else []


def _longest(deliveries: Iterable[InFlightDelivery]) -> list[tuple[float, str]]:
    """Return when callbacks have started, and on which messages, those that run for longest."""
    started = ((one.batch.started, one.claimed.id) for one in deliveries if one.batch is not None)
    return nsmallest(MAX_NAMED, started)
