"""One queue of a worker: its consumer loop, its hand-off buffer, and what the pool lets it run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from delayq.broker.context import EngineContext
from delayq.broker.replies import ClaimReply
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import Operation
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.drivers.work_buffer import Callback, WorkBuffer
from delayq.worker.loop.consumer_loop import ConsumerLoop
from delayq.worker.parts.in_flight import MAX_CLAIMED, MAX_UNSTARTED, InFlight
from delayq.worker.parts.presence import Presence


class Places(Protocol):
    """What a queue needs of its pool."""

    concurrency: int
    leaves_hung: bool
    """Whether a stop does not wait for callbacks that have taken too long."""

    @property
    def free(self) -> int:
        """How many callbacks could start now."""

    def served(self) -> tuple[list[str], int]:
        """Return the names of its first queues, and how many it has."""

    def collect_every(self, number: int) -> float:
        """Return after how many seconds a queue without spent messages is collected."""

    def beat_every(self, number: int) -> float:
        """Return after how many seconds a queue is told again who works."""

    def add_hung(self, hung: int, abandoned: int) -> None:
        """Add to the number of callbacks that are overdue, and to those that have ever been."""


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


class PoolQueue:
    """One queue of a worker: its consumer loop, its hand-off buffer, and what it may run."""

    pool: Places
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
        self.weight = weight
        self.identity = identity
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
        self.abandoned = 0
        """Callbacks that have been overdue: each keeps a worker."""
        self.woken = False
        self.withdrawn: list[InFlightDelivery] = []
        """What a stop has taken back while the loop was busy."""
        self.news: deque[PoolQueue] = deque()
        """Where the loop of its server learns that it was woken."""
        self._burst = burst
        self.started = False
        """Whether it has a loop yet: other threads may see the queue before."""

    def wake(self) -> None:
        """Note a wake-up through Redis, from any thread."""
        self.woken = True
        self.news.append(self)

    def start(self) -> None:
        """Begin with a new loop."""
        context, batch = self.context, self.callback.batch
        self.in_flight = PoolInFlight(context, batch, limited=self.callback.limited)
        self.in_flight.startable = self._startable
        self.loop = ConsumerLoop(
            context,
            self.executor.consumer_id,
            batch=batch,
            burst=self._burst,
            in_flight=self.in_flight,
            presence=self._presence(),
            breakers=self.callback.breakers,
            more=self.callback.parts,
        )
        self.buffer.connect(self.loop)
        self.loop.leaves_hung = self.pool.leaves_hung
        self.loop.outlook.collect_every = self.pool.collect_every(self.number)
        self.claimed = 0
        self.started = True

    def _presence(self) -> Callable[..., Presence]:
        return partial(
            Presence,
            self.context,
            self.executor.consumer_id,
            burst=self._burst,
            concurrency=self.pool.concurrency,
            served=self.pool.served,
            every=lambda: self.pool.beat_every(self.number),
        )

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

    def waiting_starts(self, now: float) -> int:
        """Return how many callbacks could start, as far as is known, with those that have their messages here."""
        here, outlook = self.buffer.backlog, self.loop.outlook
        ready = outlook.ready
        if self.claimable_from(now) > now:
            ready = 0
        elif self.woken or outlook.due_at <= now or not outlook.look_at:
            ready = MAX_CLAIMED * self.callback.batch  # as many as may be
        return -(-(here + ready) // self.callback.batch)
