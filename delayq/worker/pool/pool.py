"""The queues of a worker, and the pool of callbacks that they share.

Each queue has a consumer loop and a hand-off buffer of its own. A free runner asks the pool, which picks the queue
among those that have something in their buffers, and `allot` says how much each queue may claim.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from delayq.broker.context import EngineContext
from delayq.broker.replies import ClaimReply
from delayq.broker.requests import RedisCommand
from delayq.broker.stored_presence import MAX_QUEUES
from delayq.broker.transport.operation import Operation
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.drivers.served import ServedQueue
from delayq.worker.drivers.work_buffer import Callback
from delayq.worker.loop.consumer_loop import ConsumerLoop
from delayq.worker.loop.outlook import COLLECT_EVERY
from delayq.worker.parts.in_flight import MAX_CLAIMED, MAX_UNSTARTED, InFlight
from delayq.worker.parts.presence import PRESENCE_EVERY

QUEUES_A_COLLECTION = 20
"""Queues without spent messages that are collected within `COLLECT_EVERY` together: with more, each waits longer.

A collection takes 24 commands."""
QUEUES_TOLD = 20
"""Queues that are told within `PRESENCE_EVERY` who works: with more, each waits longer. A report takes 5 commands."""
UNLIMITED = 1 << 62
"""More messages than any process claims."""
GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples without their whole parts are spread evenly."""


class PoolInFlight(InFlight):
    """The deliveries of one queue among several: the pool says how many more it may claim."""

    allotted = 0
    """How many messages may be claimed in the coming turn."""
    startable: Callable[[], bool]
    """Returns whether a runner is free for this queue."""

    def add(self, claimed: ClaimReply, sent_at: float, now: float) -> list[InFlightDelivery]:
        """Add the messages of a claim; see `InFlight.add`."""
        added = super().add(claimed, sent_at, now)
        self.allotted = max(0, self.allotted - len(added))
        return added

    def capacity(self, now: float) -> int:  # noqa: ARG002 - that of the base class depends on the time
        """Return how many more messages may be claimed."""
        return 0 if self.stuck else self.allotted

    def hold(self, number: int) -> None:
        """Hold so many messages more, or fewer; see `InFlight.hold`."""
        super().hold(number)
        self.allotted = max(0, self.allotted - max(0, number))

    def release_at(self) -> float | None:
        """Return when what has not started will have waited too long for busy runners; None for never."""
        load = self._load()
        if self.recalled and len(self.deliveries) > load.started:
            return 0.0
        if not self.prefetch.adaptive or load.waits_since is None or self.startable():
            return None
        return load.waits_since + MAX_UNSTARTED


class Identity(NamedTuple):
    """How to tell that Redis has lost a queue, and how to open it again."""

    request: RedisCommand[Any]
    """Reads the identity that Redis has given the queue."""
    is_known: Callable[[Any], bool]
    """Returns whether a reply is the identity that this process knows."""
    reopen: Callable[[], Operation[None]]
    restores: bool = True
    """Whether to open a queue that is gone; else only one that somebody has made anew."""
    register: RedisCommand[Any] | None = None
    """Adds it to the registry, which may have lost it; None if it is served for being there."""


class PoolQueue(ServedQueue):
    """One queue of a worker: what it may run beside the others."""

    pool: Pool
    number: int
    """Its rank in the pool, which no other queue gets."""

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
        weight: int = 1,
        identity: Identity | None = None,
    ) -> None:
        """Run `callback` on the messages of the queue, at most `limit` at a time."""
        settings = replace(context.settings, concurrency=min(concurrency, limit or concurrency))
        super().__init__(context.with_settings(settings), callback, executor, message_class, burst=burst)
        self.weight = weight
        self.identity = identity
        self.limit = limit
        self.running = 0
        """Callbacks that run, with overdue ones."""
        self.hung = 0
        """Callbacks that are overdue."""
        self.abandoned = 0
        """Callbacks that have been overdue: each keeps a runner."""
        self.news: deque[PoolQueue] = deque()
        """Where the loop of its server learns that it was woken."""
        self.started = False
        """Whether it has a loop yet: other threads may see the queue before."""

    def wake(self) -> None:
        """Note a wake-up through Redis, from any thread."""
        self.woken = True
        self.news.append(self)

    def start(self) -> None:
        """Begin with a new loop."""
        pool = self.pool
        self.in_flight = PoolInFlight(self.context, self.callback.batch, limited=self.callback.limited)
        self.in_flight.startable = self._startable
        every = partial(pool.presence_every, self.number)
        self.begin(self.in_flight, concurrency=pool.concurrency, served=pool.served, every=every)
        self.loop.leaves_hung = pool.leaves_hung
        self.loop.outlook.collect_every = pool.collect_every(self.number)
        self.claimed = 0
        self.started = True

    @property
    def places(self) -> float:
        """How many more of its callbacks its limit lets start; infinite without one."""
        return math.inf if self.limit is None else self.limit + self.hung - self.running

    def _startable(self) -> bool:
        return self.places > 0 and self.pool.free > 0

    def count_hung(self) -> None:
        """Note how many of its callbacks are overdue; only its loop calls this."""
        overdue = self.in_flight.overdue
        hung = len({delivery.batch for delivery in overdue}) if overdue else 0
        if hung != self.hung or self.in_flight.abandoned != self.abandoned:
            self.pool.add_hung(hung - self.hung, self.in_flight.abandoned - self.abandoned)
            self.hung, self.abandoned = hung, self.in_flight.abandoned

    def claimable_from(self, now: float) -> float:
        """Return the local time from which there is something to claim, as far as is known; never in a pause."""
        loop = self.loop
        if now < loop.refusals.wait_until or loop.refusals.of_settlements or self.in_flight.stuck:
            return math.inf
        if loop.outlook.paused or loop.parts.keep_from_claiming(now):
            return math.inf
        return 0.0 if loop.outlook.ready or self.woken else loop.outlook.due_at

    def claimable(self, now: float) -> int:
        """Return how many messages may be claimed now, as far as is known."""
        outlook = self.loop.outlook
        if self.claimable_from(now) > now:
            return 0
        if self.woken or outlook.due_at <= now or not outlook.look_at:
            return MAX_CLAIMED * self.callback.batch  # as many as may be
        return outlook.ready

    def waiting_starts(self, now: float) -> int:
        """Return how many callbacks could start, as far as is known, with those that have their messages here."""
        return -(-(self.buffer.backlog + self.claimable(now)) // self.callback.batch)


def fetchable(queues: Sequence[PoolQueue]) -> int:
    """Return how many more messages `fetch_limit` lets a process claim of these queues, which have the same options."""
    fetch_limit = queues[0].context.settings.fetch_limit
    if fetch_limit is None:
        return UNLIMITED
    flights = [queue.in_flight for queue in queues]
    return fetch_limit - sum(len(one.deliveries) - len(one.overdue) + one.held for one in flights)


class Pool:
    """What the queues of a worker share. A class of it picks whose callback runs next: see `FairPool`.

    For the runners it has the interface of a hand-off buffer.
    """

    def __init__(self, concurrency: int, *, told_together: int = QUEUES_TOLD) -> None:
        """Run up to `concurrency` callbacks at a time."""
        self._told_together = told_together
        self.concurrency = concurrency
        self.queues: dict[int, PoolQueue] = {}
        """The queues by number."""
        self._added = 0
        self._lock = threading.Lock()
        self._running: dict[Batch, PoolQueue] = {}
        self._hung = 0
        self._missing = 0
        self.abandoned = 0
        """How many runners have got a callback that was overdue, and need a replacement."""
        self._last_start = 0.0
        self.leaves_hung = False
        """Whether a stop does not wait for callbacks that have taken too long."""
        self._stopping = False
        self.stopped_by: PoolQueue | None = None
        """The queue whose callback has stopped the worker."""

    def add(self, queues: Sequence[PoolQueue]) -> None:
        """Add queues; their numbers go on."""
        for queue in queues:
            with self._lock:
                queue.pool, queue.number = self, self._added
                self._added += 1
                self.queues[queue.number] = queue
                self._enter(queue)
        for queue in queues:
            queue.start()

    def remove(self, queue: PoolQueue) -> None:
        """Forget a queue whose loop has ended."""
        with self._lock:
            del self.queues[queue.number]
            self._leave(queue)

    def collect_every(self, number: int) -> float:
        """Return after how many seconds a queue without spent messages is collected: less often if there are many.

        Collections that were due together would keep the server busy, so each queue has a time of its own.
        """
        return COLLECT_EVERY * self._spread(number, QUEUES_A_COLLECTION)

    def presence_every(self, number: int) -> float:
        """Return after how many seconds a queue is told again who works: less often if there are many."""
        return PRESENCE_EVERY * self._spread(number, self._told_together)

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
        return self.concurrency - self._missing + self._hung - len(self._running)

    def add_hung(self, hung: int, abandoned: int) -> None:
        """Add to the number of callbacks that are overdue, and to those that have ever been."""
        with self._lock:
            self._hung += hung
            self.abandoned += abandoned

    # What the pools differ in

    def _enter(self, queue: PoolQueue) -> None:
        """Take a queue up; for who holds the lock."""

    def _leave(self, queue: PoolQueue) -> None:
        """Forget a queue; for who holds the lock."""

    def put(self, started: Sequence[tuple[PoolQueue, list[InFlightDelivery]]]) -> None:
        """Add the deliveries of one turn: all at once, or the first queue would get more than its share."""
        raise NotImplementedError

    def get(self) -> tuple[Batch, list[InFlightDelivery], Any] | None:
        """Take what the next callback is to process; see `WorkBuffer.get`."""
        raise NotImplementedError

    def _end(self, batch: Batch) -> None:
        """Note that a callback runs no more."""
        raise NotImplementedError

    @property
    def waiting(self) -> bool:
        """Whether a delivery waits for a runner, and its queue's limit lets it start."""
        raise NotImplementedError

    @property
    def runners(self) -> int:
        """How many runners are needed now."""
        raise NotImplementedError

    def allot(self, queues: Sequence[PoolQueue], now: float) -> None:
        """Say how much each of these queues may claim in its next turn: those of a server that may have something."""
        raise NotImplementedError

    # For a runner, as a hand-off buffer

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

    @property
    def stop_reason(self) -> str | None:
        """Why a callback has stopped the worker; None if none has."""
        return self.stopped_by.buffer.stop_reason if self.stopped_by else None

    # For the driver

    @property
    def buffer(self) -> Pool:
        """Where runners take from."""
        return self

    @property
    def most_runners(self) -> int:
        """How many runners may be needed."""
        return self.concurrency + self.abandoned

    def set_missing(self, missing: int) -> None:
        """Claim for so many runners less: there is no room for them."""
        self._missing = missing

    def loops(self) -> list[ConsumerLoop]:
        """Return the loops of the queues; any thread may ask."""
        return [queue.loop for queue in [*self.queues.values()] if queue.started]

    def leave_hung(self) -> None:
        """Let a stop not wait for callbacks that have taken too long."""
        self.leaves_hung = True
        for loop in self.loops():
            loop.leaves_hung = True

    def queue_of(self, batch: Batch) -> PoolQueue:
        """Return the queue of a batch that a runner has taken."""
        return self._running[batch]

    def stop(self) -> None:
        """Take back what no runner has taken, from any thread; no callback starts any more."""
        self._stopping = True
        for queue in [*self.queues.values()]:
            queue.withdraw()
