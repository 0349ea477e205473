"""What the queues of a worker that rest have to tell: it travels in round trips that other queues or chores make."""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from itertools import count

from delayq.worker.loop.loop_parts import PlannedCall, calls_of, next_of
from delayq.worker.pool.pool_part import QueuePart

TOGETHER = 50
"""Queues whose calls one round trip takes along."""
LOOK_AGAIN = 1.0
"""Seconds until the next look at a queue that does not rest: it tells in its own turns."""


class RestingPresence:
    """When which of the queues is to tell that its worker works. Times are local and monotonic, in seconds."""

    def __init__(self) -> None:
        """Start without queues."""
        self._next: list[tuple[float, int, QueuePart]] = []
        self._number = count()

    def add(self, part: QueuePart) -> None:
        """Look after a queue until its loop has ended."""
        if next_of(part.queue.loop.parts.beside, 0.0) < math.inf:
            heappush(self._next, (0.0, next(self._number), part))

    def plan(self, now: float) -> Iterator[PlannedCall]:
        """Yield the calls that are due, whose readers take errors as well."""
        planned = 0
        while self._next and self._next[0][0] <= now and planned < TOGETHER:
            part = self._next[0][2]
            beside = part.queue.loop.parts.beside
            if part.ended:
                heappop(self._next)
                continue
            if part.rests_until is not None:
                yield from calls_of(beside, now)
                planned += 1
            heapreplace(self._next, (max(next_of(beside, now), now + LOOK_AGAIN), next(self._number), part))
