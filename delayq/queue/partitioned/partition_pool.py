"""The pool of a partitioned queue: callbacks run in the order of claims, and few partitions claim much at a time.

The partitions are one queue, so none has to get its share of every few starts, as the queues of a worker do. They take
turns in claiming instead, as the flows of FQ-CoDel in sending (RFC 8290): one that had nothing before comes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.pool.pool import Pool, PoolQueue, fetchable

TURN, TURN_SECONDS = 1000, 0.02
"""The most messages that a partition claims in its turn, and the most seconds that a turn takes.

As many as a promotion makes ready. With one claim a turn, the set of what is leased would grow from nothing each time,
which takes the server twice as long.
"""
TOLD_TOGETHER = 4
"""Partitions that are told within `PRESENCE_EVERY` who works. Few: it is enough if some know it soon."""


class _Turn:
    """When a partition is to claim: one that had nothing before comes first, for a claim; then each has its turn."""

    def __init__(self) -> None:
        self.waits = False
        """Whether it had something to claim when last looked at."""
        self._is_new = False
        self._number = 0
        self._left, self._ends_at = 0, 0.0

    def rank(self, numbers: Iterator[int]) -> tuple[bool, int]:
        """Return what sorts the partitions that have something to claim."""
        if not self.waits:
            self.waits, self._is_new, self._number = True, True, next(numbers)
        return not self._is_new, self._number

    def take(self, messages: int, now: float, numbers: Iterator[int]) -> None:
        """Note a claim of so many messages; a turn ends with its last message, or when its time is over."""
        if self._left <= 0:
            self._left, self._ends_at = TURN, now + TURN_SECONDS
        self._left -= messages
        if self._is_new or self._left <= 0 or now >= self._ends_at:
            self._is_new, self._left, self._number = False, 0, next(numbers)


class PartitionPool(Pool):
    """Runs callbacks in the order of claims, whatever the partition. It takes no locks on a message's way."""

    def __init__(self, concurrency: int) -> None:
        """Run up to `concurrency` callbacks at a time."""
        super().__init__(concurrency, told_together=TOLD_TOGETHER)
        self._to_start: deque[PoolQueue] = deque()
        """The partition of each delivery that waits for a runner, in their order."""
        self._turns: dict[PoolQueue, _Turn] = {}
        self._numbers = count(1)

    def _enter(self, queue: PoolQueue) -> None:
        self._turns[queue] = _Turn()

    def _leave(self, queue: PoolQueue) -> None:
        del self._turns[queue]

    def put(self, started: Sequence[tuple[PoolQueue, list[InFlightDelivery]]]) -> None:
        """Add the deliveries of one turn."""
        for queue, deliveries in started:
            queue.claimed += len(deliveries)
            queue.put(deliveries, stopping=self._stopping)
            self._to_start.extend([queue] * len(deliveries))

    def get(self) -> tuple[Batch, list[InFlightDelivery], Any] | None:
        """Take what the next callback is to process; see `WorkBuffer.get`."""
        while True:
            try:
                queue = self._to_start.popleft()
            except IndexError:
                return None
            if (taken := queue.buffer.get()) is not None:  # else another call took it along, or it was withdrawn
                if taken[2] is not None:
                    self._running[taken[0]] = queue
                    self._last_start = taken[0].started
                return taken

    def _end(self, batch: Batch) -> None:
        del self._running[batch]

    @property
    def waiting(self) -> bool:
        """Whether a delivery waits for a runner."""
        return bool(self._to_start)

    @property
    def runners(self) -> int:
        """How many runners are needed now."""
        return min(self.concurrency, len(self._running) + len(self._to_start)) + self.abandoned

    def allot(self, queues: Sequence[PoolQueue], now: float) -> None:
        """Let those claim whose turn it is, all together as much as a single queue; see `InFlight.capacity`."""
        free = max(0, self.free)
        stalled = 0.0 if free else now - self._last_start
        backlog = held = ahead = 0
        waiting: list[tuple[PoolQueue, int]] = []
        for queue in queues:
            in_flight = queue.in_flight
            in_flight.allotted = 0
            backlog += queue.buffer.backlog
            held += in_flight.held
            ahead = max(ahead, in_flight.prefetch.limit(stalled))
            if wanted := queue.claimable(now):
                waiting.append((queue, wanted))
            else:
                self._turns[queue].waits = False
        if not waiting:
            return
        startable = free * waiting[0][0].callback.batch
        here = backlog + held
        if backlog >= startable and 2 * here > startable + ahead:
            return  # a claim of many costs little more than a claim of one
        # What is held for its time in one partition does not keep a free runner from what is due in another.
        left = min(
            max(startable + ahead - here, startable - backlog),
            max(startable, *(one.in_flight.prefetch.max_claimed for one, _ in waiting)),
            fetchable([*self.queues.values()]),
        )
        waiting.sort(key=lambda one: self._turns[one[0]].rank(self._numbers))
        for queue, wanted in waiting:
            if left <= 0:
                break
            queue.in_flight.allotted = min(wanted, queue.in_flight.prefetch.max_claimed, left)
            left -= queue.in_flight.allotted
            self._turns[queue].take(queue.in_flight.allotted, now, self._numbers)
