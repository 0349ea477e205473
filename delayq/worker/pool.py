"""The queues of a worker, and the pool of callbacks that they share.

Each queue has a consumer loop and a hand-off buffer of its own. A free worker asks the pool, which picks the queue by
weight among those that have something in their buffers: what is claimed for one queue never holds a place that another
could use. `allot` says how much each queue may claim: what it would get of the next starts. These are as many as
workers are free, and in 0.1 s of work more, as for a single queue.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from delayq.broker.context import EngineContext
from delayq.broker.replies import ClaimReply
from delayq.times import monotonic
from delayq.worker.consumer_loop import ConsumerLoop
from delayq.worker.fair_order import StrictOrder, WeightedOrder
from delayq.worker.in_flight import InFlight
from delayq.worker.message import Batch, InFlightDelivery
from delayq.worker.prefetch import MAX_CLAIMED, MAX_UNSTARTED
from delayq.worker.work_buffer import Callback, WorkBuffer


class PoolInFlight(InFlight):
    """The deliveries of one queue among several: the pool says how many more it may claim."""

    allotted = 0
    """How many messages may be claimed in the coming turn."""
    startable: Callable[[], bool]
    """Returns whether a worker is free for this queue."""

    def add(self, claimed: ClaimReply, sent_at: float, now: float) -> list[InFlightDelivery]:
        """Add the messages of a claim; see `InFlight.add`."""
        added = super().add(claimed, sent_at, now)
        self.allotted = max(0, self.allotted - len(added))
        return added

    def capacity(self, now: float) -> int:  # noqa: ARG002 - that of the base class depends on the time
        """Return how many more messages may be claimed."""
        return 0 if self.stuck else self.allotted

    def release_at(self) -> float | None:
        """Return when what has not started will have waited too long for busy workers; None for never."""
        load = self._load()
        if self.recalled and len(self.deliveries) > load.started:
            return 0.0
        if not self.prefetch.adaptive or load.waits_since is None or self.startable():
            return None
        return load.waits_since + MAX_UNSTARTED


class PoolQueue:
    """One queue of a worker: its consumer loop, its hand-off buffer, and what it may run."""

    def __init__(
        self,
        context: EngineContext,
        callback: Callback,
        executor: Any,
        message_class: Any,
        *,
        concurrency: int,
        limit: int | None,
        burst: bool,
    ) -> None:
        """Run `callback` on the messages of the queue, at most `limit` at a time."""
        settings = replace(context.settings, concurrency=min(concurrency, limit or concurrency))
        self.context = context.with_settings(settings)
        self.callback = callback
        self.executor = executor
        self.buffer = WorkBuffer(callback, message_class, self.context, executor)
        self.limit = limit
        self.running = 0
        """Callbacks that run, with overdue ones."""
        self.hung = 0
        """Callbacks that are overdue."""
        self.woken = False
        self.withdrawn: list[InFlightDelivery] = []
        """What a stop has taken back while the loop was busy."""
        self._burst = burst
        self.pool: Pool
        self.number = 0
        self.restart()

    def restart(self) -> None:
        """Begin with a new loop."""
        context, batch = self.context, self.callback.batch
        self.in_flight = PoolInFlight(context.calls, context.settings, batch)
        self.in_flight.startable = self._startable
        self.loop = ConsumerLoop(
            context, self.executor.consumer_id, batch=batch, burst=self._burst, in_flight=self.in_flight
        )
        self.claimed = 0

    @property
    def places(self) -> float:
        """How many more of its callbacks its limit lets start; infinite without one."""
        return math.inf if self.limit is None else self.limit + self.hung - self.running

    def _startable(self) -> bool:
        return self.places > 0 and self.pool.free > 0

    def count_hung(self) -> None:
        """Note how many of its callbacks are overdue; only its loop calls this."""
        overdue = self.in_flight.overdue
        self.hung = len({delivery.batch for delivery in overdue}) if overdue else 0

    def claimable_from(self, now: float) -> float:
        """Return the local time from which there is something to claim, as far as is known; never in a pause."""
        loop = self.loop
        if now < loop.refusals.wait_until or loop.refusals.of_settlements or self.in_flight.stuck:
            return math.inf
        if loop.outlook.paused or loop.start_reports.is_exclusive(now):
            return math.inf
        return 0.0 if loop.outlook.ready or self.woken else loop.outlook.due_at

    def waiting_starts(self, now: float) -> int:
        """Return how many callbacks could start, as far as is known, with those that have their messages here."""
        here, outlook = self.buffer.backlog, self.loop.outlook
        ready = outlook.ready
        if self.claimable_from(now) > now:
            ready = 0
        elif self.woken or outlook.due_at <= now or not outlook.look_at:
            ready = MAX_CLAIMED * self.callback.batch  # as many as may be
        return -(-(here + ready) // self.callback.batch)


class Pool:
    """Picks whose callback runs next, and has the interface of a hand-off buffer for the workers."""

    def __init__(self, queues: Sequence[PoolQueue], weights: Sequence[int], concurrency: int, *, strict: bool) -> None:
        """Run up to `concurrency` callbacks at a time; with `strict`, by the order of the queues."""
        self.queues = queues
        self.concurrency = concurrency
        self._strict = strict
        self._order: StrictOrder | WeightedOrder = StrictOrder() if strict else WeightedOrder(weights)
        self._lock = threading.Lock()
        self._running: dict[Batch, PoolQueue] = {}
        self._last_start = 0.0
        self.stopping = False
        """Whether no callback may start any more."""
        for number, queue in enumerate(queues):
            queue.pool, queue.number = self, number

    @property
    def free(self) -> int:
        """How many callbacks could start now."""
        return self.concurrency + sum(queue.hung for queue in self.queues) - len(self._running)

    def put(self, started: Sequence[tuple[PoolQueue, list[InFlightDelivery]]]) -> None:
        """Add the deliveries of one turn: all at once, or the first queue would get more than its share."""
        with self._lock:
            for queue, deliveries in started:
                queue.claimed += len(deliveries)
                if self.stopping:
                    queue.withdrawn.extend(deliveries)
                else:
                    queue.buffer.put(deliveries)

    # For a worker, as a hand-off buffer

    def get(self) -> tuple[Batch, list[InFlightDelivery], Any] | None:
        """Take what the next callback is to process, see `WorkBuffer.get`; the argument has its queue beside it."""
        with self._lock:
            while True:
                ready = [queue.number for queue in self.queues if queue.buffer.waiting and queue.places > 0]
                if not ready:
                    return None
                queue = self.queues[ready[0] if len(ready) == 1 and self._strict else self._order.pick(ready)]
                if deliveries := queue.buffer.take():  # not withdrawn meanwhile
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
        self._end(batch)
        return now

    def _end(self, batch: Batch) -> None:
        with self._lock:
            self._running.pop(batch).running -= 1

    @property
    def waiting(self) -> bool:
        """Whether a delivery waits for a worker, and its queue's limit lets it start."""
        return any(queue.buffer.waiting and queue.places > 0 for queue in self.queues)

    @property
    def stop_reason(self) -> str | None:
        """Why a callback has stopped the worker; None if none has."""
        return self.stopped_by.buffer.stop_reason if self.stopped_by else None

    @property
    def stopped_by(self) -> PoolQueue | None:
        """The queue whose callback has stopped the worker."""
        return next((queue for queue in self.queues if queue.buffer.stop_reason is not None), None)

    def withdraw(self) -> None:
        """Take back all that no worker has taken; no callback starts any more."""
        self.stopping = True
        for queue in self.queues:
            queue.buffer.withdraw(queue.withdrawn)

    # For the loops

    def allot(self, queues: Sequence[PoolQueue], now: float) -> None:
        """Say how much each of the queues of one server may claim in its next turn."""
        most: dict[int, int] = {}
        free = max(0, self.free)
        stalled = 0.0 if free else now - self._last_start
        stops: set[int] = set()
        here = 0
        limits = {queue: queue.in_flight.prefetch.limit(stalled) // queue.callback.batch for queue in queues}
        ahead = max((limits[queue] for queue in queues if queue.waiting_starts(now)), default=0)
        for queue in queues:
            queue.in_flight.allotted = 0
            if waiting := queue.waiting_starts(now):
                # One at least if others have some ahead: all of those would start before the first of this queue.
                own = limits[queue] or int(ahead > 0 and queue.in_flight.prefetch.may_guess)
                places = queue.places
                most[queue.number] = int(min(waiting, (free if places == math.inf else places) + own))
                if places == math.inf and most[queue.number] < waiting:
                    stops.add(queue.number)
                here += queue.buffer.backlog // queue.callback.batch
        if not most:
            return
        starts = min(free + ahead, max(free, MAX_CLAIMED))
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
