"""The beats of the queues of a worker that rest: they travel in round trips that other queues or chores make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Any

from delayq.worker.pool_part import QueuePart

TOGETHER = 50
"""Beats that one round trip takes along."""
LOOK_AGAIN = 1.0
"""Seconds until the next look at a queue that does not rest: it beats in its own turns."""


class RestingBeats:
    """When which of the queues is to tell that its worker works. Times are local and monotonic, in seconds."""

    def __init__(self) -> None:
        """Start without queues."""
        self._next: list[tuple[float, int, QueuePart]] = []
        self._number = count()

    def add(self, part: QueuePart) -> None:
        """Look after a queue until its loop has ended."""
        if part.queue.loop.beats is not None and part.queue.loop.beats.enabled:
            heappush(self._next, (0.0, next(self._number), part))

    def plan(self, now: float) -> Iterator[tuple[Any, Callable[[Any], None]]]:
        """Yield the calls of beats that are due, with the functions for their replies, which accept errors as well."""
        planned = 0
        while self._next and self._next[0][0] <= now and planned < TOGETHER:
            part = self._next[0][2]
            beats, in_flight = part.queue.loop.beats, part.queue.in_flight
            if part.ended or beats is None:
                heappop(self._next)
                continue
            if part.rests_until is not None:
                yield from beats.plan(now, in_flight.deliveries)
                planned += 1
            heapreplace(self._next, (max(beats.next_at, now + LOOK_AGAIN), next(self._number), part))
