"""A pool whose queues get callbacks by weight, or in strict order.

What is claimed for one queue never holds a place that another could use. `allot` says how much each queue may claim:
what it would get of the next starts. These are as many as runners are free, and in 0.1 s of work more, as for a single
queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from delayq.values.times import monotonic
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.parts.in_flight import MAX_CLAIMED, MAX_TIMES
from delayq.worker.pool.fair_order import StrictOrder, WeightedOrder
from delayq.worker.pool.pool import Pool, PoolQueue, fetchable

QUEUES_A_CLAIM = 5
"""Queues that share as much as one claims; more claim more together, or each would claim few messages at a time."""


class FairPool(Pool):
    """Picks whose callback runs next among the queues that have something in their buffers: by weight, or by rank."""

    def __init__(self, concurrency: int, *, strict: bool) -> None:
        """Run up to `concurrency` callbacks at a time; with `strict`, by the order in which queues were added."""
        super().__init__(concurrency)
        self._order: StrictOrder | WeightedOrder = StrictOrder() if strict else WeightedOrder()

    def _enter(self, queue: PoolQueue) -> None:
        self._order.add(queue.number, queue.weight)

    def _leave(self, queue: PoolQueue) -> None:
        self._order.remove(queue.number)

    def put(self, started: Sequence[tuple[PoolQueue, list[InFlightDelivery]]]) -> None:
        """Add the deliveries of one turn: all at once, or the first queue would get more than its share."""
        with self._lock:
            for queue, deliveries in started:
                queue.claimed += len(deliveries)
                queue.put(deliveries, stopping=self._stopping)
                if not self._stopping:
                    self._order.put(queue.number)

    def get(self) -> tuple[Batch, list[InFlightDelivery], Any] | None:
        """Take what the next callback is to process; see `WorkBuffer.get`."""
        with self._lock:
            while True:
                queue = self._next_queue()
                if queue is None:
                    return None
                deliveries = queue.buffer.take()
                if queue.buffer.waiting:
                    self._order.put(queue.number)
                if deliveries:  # not withdrawn meanwhile
                    queue.running += 1
                    self._running[batch := Batch(monotonic(), [True], queue.context.queue)] = queue
                    self._last_start = batch.started
                    for delivery in deliveries:
                        delivery.batch = batch
                    break
        opened = queue.buffer.open(deliveries, batch)
        if opened[2] is None:
            self._end(batch)
        return opened

    def _next_queue(self) -> PoolQueue | None:
        """Take out the queue whose turn it is, and count its start; None if none has something to start."""
        order, full = self._order, []
        while (number := order.take()) is not None:
            queue = self.queues[number]
            if queue.buffer.waiting:
                if queue.places > 0:
                    order.count(number)
                    break
                full.append(number)
        for other in full:
            order.put(other)
        return None if number is None else queue

    def _end(self, batch: Batch) -> None:
        with self._lock:
            self._running.pop(batch).running -= 1

    @property
    def waiting(self) -> bool:
        """Whether a delivery waits for a runner, and its queue's limit lets it start."""
        with self._lock:
            waiting = (self.queues[number] for number in self._order.waiting)
            return any(queue.buffer.waiting and queue.places > 0 for queue in waiting)

    @property
    def runners(self) -> int:
        """How many runners are needed now."""
        with self._lock:
            waiting = sum(self.queues[number].buffer.backlog for number in self._order.waiting)
            return min(self.concurrency, len(self._running) + waiting) + self.abandoned

    def allot(self, queues: Sequence[PoolQueue], now: float) -> None:
        """Say how much each of these queues may claim in its next turn: those of a server that may have something."""
        most: dict[int, int] = {}
        free = max(0, self.free)
        stalled = 0.0 if free else now - self._last_start
        stops: set[int] = set()
        here = 0
        waits = {queue: queue.waiting_starts(now) for queue in queues}
        times = max(1, min(MAX_TIMES, sum(map(bool, waits.values())) // QUEUES_A_CLAIM))
        for queue in queues:
            queue.in_flight.prefetch.shares = times
        limits = {queue: queue.in_flight.prefetch.limit(stalled) // queue.callback.batch for queue in queues}
        ahead = max((limits[queue] for queue in queues if waits[queue]), default=0)
        for queue in queues:
            queue.in_flight.allotted = 0
            if waiting := waits[queue]:
                # One at least if others have some ahead: all of those would start before the first of this queue.
                own = limits[queue] or int(ahead > 0 and queue.in_flight.prefetch.may_guess)
                places = queue.places
                most[queue.number] = int(min(waiting, (free if places == math.inf else places) + own))
                if places == math.inf and most[queue.number] < waiting:
                    stops.add(queue.number)
                here += queue.buffer.backlog // queue.callback.batch
        if not most:
            return
        starts = min(free + ahead, max(free, MAX_CLAIMED * times))
        with self._lock:
            shares = self._order.share(starts, most, stops)
        fresh = [number for number, share in shares.items() if share and not self.queues[number].buffer.waiting]
        if here >= free and 2 * here > starts and not fresh:
            return  # a claim of many costs little more than a claim of one
        for number, share in shares.items():
            queue = self.queues[number]
            wanted = share * queue.callback.batch - queue.buffer.backlog - queue.in_flight.held
            queue.in_flight.allotted = max(0, min(wanted, fetchable([queue])))
