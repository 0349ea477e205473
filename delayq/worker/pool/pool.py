"""The queues of a worker, and the pool of callbacks that they share.

Each queue has a consumer loop and a hand-off buffer of its own. A free worker asks the pool, which picks the queue by
weight among those that have something in their buffers: what is claimed for one queue never holds a place that another
could use. `allot` says how much each queue may claim: what it would get of the next starts. These are as many as
workers are free, and in 0.1 s of work more, as for a single queue.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from itertools import islice
from typing import Any

from delayq.broker.beats import MAX_QUEUES
from delayq.values.times import monotonic
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.loop.outlook import COLLECT_EVERY
from delayq.worker.parts.in_flight import MAX_CLAIMED, MAX_TIMES
from delayq.worker.parts.presence import BEAT_EVERY
from delayq.worker.pool.fair_order import StrictOrder, WeightedOrder
from delayq.worker.pool.pool_queue import PoolQueue

QUEUES_A_COLLECTION = 100
"""Queues without spent messages that are collected within `COLLECT_EVERY` together: with more, each waits longer."""
QUEUES_A_CLAIM = 5
"""Queues that share as much as one claims; more claim more together, or each would claim few messages at a time."""
QUEUES_A_BEAT = 20
"""Queues that are told within `BEAT_EVERY` who works: with more, each waits longer. A beat takes about ten commands."""
GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples without their whole parts are spread evenly."""


class Pool:
    """Picks whose callback runs next, and has the interface of a hand-off buffer for the workers."""

    def __init__(self, concurrency: int, *, strict: bool) -> None:
        """Run up to `concurrency` callbacks at a time; with `strict`, by the order in which queues were added."""
        self.concurrency = concurrency
        self.queues: dict[int, PoolQueue] = {}
        """The queues by number."""
        self._added = 0
        self._strict = strict
        self._order: StrictOrder | WeightedOrder = StrictOrder() if strict else WeightedOrder()
        self._lock = threading.Lock()
        self._running: dict[Batch, PoolQueue] = {}
        self._hung = 0
        self.missing = 0
        """Workers that there are not, since there is no room for them."""
        self.abandoned = 0
        """How many workers have got a callback that was overdue, and need a replacement."""
        self._last_start = 0.0
        self.leaves_hung = False
        """Whether a stop does not wait for callbacks that have taken too long."""
        self.stopping = False
        """Whether no callback may start any more."""
        self.stopped_by: PoolQueue | None = None
        """The queue whose callback has stopped the worker."""

    def add(self, queues: Sequence[PoolQueue]) -> None:
        """Add queues; their numbers go on."""
        for queue in queues:
            with self._lock:
                queue.pool, queue.number = self, self._added
                self._added += 1
                self.queues[queue.number] = queue
                self._order.add(queue.number, queue.weight)
        for queue in queues:
            queue.start()

    def remove(self, queue: PoolQueue) -> None:
        """Forget a queue whose loop has ended."""
        with self._lock:
            del self.queues[queue.number]
            self._order.remove(queue.number)

    def collect_every(self, number: int) -> float:
        """Return after how many seconds a queue without spent messages is collected: less often if there are many.

        Collections that were due together would keep the server busy, so each queue has a time of its own.
        """
        return COLLECT_EVERY * self._spread(number, QUEUES_A_COLLECTION)

    def beat_every(self, number: int) -> float:
        """Return after how many seconds a queue is told again who works: less often if there are many."""
        return BEAT_EVERY * self._spread(number, QUEUES_A_BEAT)

    def _spread(self, number: int, together: int) -> float:
        return max(1.0, len(self.queues) / together * (0.5 + number * GOLDEN % 1))

    def served(self) -> tuple[list[str], int]:
        """Return the names of its first queues, and how many it has."""
        with self._lock:
            first = [queue.context.queue for queue in islice(self.queues.values(), MAX_QUEUES)]
            return first, len(self.queues)

    @property
    def free(self) -> int:
        """How many callbacks could start now."""
        return self.concurrency - self.missing + self._hung - len(self._running)

    @property
    def workers(self) -> int:
        """How many workers are needed now."""
        with self._lock:
            waiting = sum(self.queues[number].buffer.backlog for number in self._order.waiting)
            return min(self.concurrency, len(self._running) + waiting) + self.abandoned

    def add_hung(self, hung: int, abandoned: int) -> None:
        """Add to the number of callbacks that are overdue, and to those that have ever been."""
        with self._lock:
            self._hung += hung
            self.abandoned += abandoned

    def put(self, started: Sequence[tuple[PoolQueue, list[InFlightDelivery]]]) -> None:
        """Add the deliveries of one turn: all at once, or the first queue would get more than its share."""
        with self._lock:
            for queue, deliveries in started:
                queue.claimed += len(deliveries)
                if self.stopping:
                    queue.withdrawn.extend(deliveries)
                else:
                    queue.buffer.put(deliveries)
                    self._order.put(queue.number)

    # For a worker, as a hand-off buffer

    def get(self) -> tuple[Batch, list[InFlightDelivery], Any] | None:
        """Take what the next callback is to process, see `WorkBuffer.get`; the argument has its queue beside it."""
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
        return batch, opened[1], (queue, opened[2])

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

    def function(self, argument: tuple[PoolQueue, Any]) -> Any:
        """Call the callback of a queue."""
        queue, message = argument
        return queue.buffer.function(message)

    def complete(
        self, batch: Batch, deliveries: list[InFlightDelivery], result: object, error: BaseException | None
    ) -> float:
        """Add the completion of a batch; see `WorkBuffer.complete`."""
        queue = self._running[batch]
        now = queue.buffer.complete(batch, deliveries, result, error)
        if queue.buffer.stop_reason is not None:
            self.stopped_by = self.stopped_by or queue
        self._end(batch)
        return now

    def fail(self, batch: Batch, deliveries: list[InFlightDelivery], error: BaseException) -> None:
        """Add a failure as the completion of a batch that could not be completed."""
        if batch in self._running:
            self._running[batch].buffer.fail(batch, deliveries, error)
            self._end(batch)

    def _end(self, batch: Batch) -> None:
        with self._lock:
            self._running.pop(batch).running -= 1

    @property
    def waiting(self) -> bool:
        """Whether a delivery waits for a worker, and its queue's limit lets it start."""
        with self._lock:
            waiting = (self.queues[number] for number in self._order.waiting)
            return any(queue.buffer.waiting and queue.places > 0 for queue in waiting)

    @property
    def stop_reason(self) -> str | None:
        """Why a callback has stopped the worker; None if none has."""
        return self.stopped_by.buffer.stop_reason if self.stopped_by else None

    def withdraw(self) -> None:
        """Take back all that no worker has taken; no callback starts any more."""
        self.stopping = True
        for queue in [*self.queues.values()]:
            queue.buffer.withdraw(queue.withdrawn)

    # For the loops

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
            wanted = share * queue.callback.batch - queue.buffer.backlog
            if (fetch_limit := queue.context.settings.fetch_limit) is not None:
                wanted = min(wanted, fetch_limit - len(queue.in_flight.deliveries) + len(queue.in_flight.overdue))
            queue.in_flight.allotted = max(0, wanted)
