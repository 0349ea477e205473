"""What a consumer has claimed and not completed, and how many more it may claim: at first, and ahead of its runners."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from delayq.broker.context import EngineContext
from delayq.broker.replies import ClaimReply
from delayq.options import MAX_PREFETCH, Settings
from delayq.values.times import Latency
from delayq.worker.delivery.disposition import Completion
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery, deliveries_of
from delayq.worker.parts.part import LoopPart, Stage
from delayq.worker.parts.time_limits import TimeLimits

PREFETCH_SECONDS = 0.1
"""Seconds of work to prefetch by default: enough to keep the runners busy, too little to hoard messages."""
MAX_CLAIMED = 250
"""Messages per claim from a near server, unless the batch is larger. This is about half of the maximal prefetch, so the
server works on one half while callbacks run on the other."""
FIRST_CLAIMED, GROWTH = 16, 4
"""Messages of the first claim after an idle time, unless more can start at once, and how many times as many each claim
takes that leaves some: the first of a burst does not wait for a claim of hundreds."""
FAR = 0.002
"""Seconds of a round trip for each time that as much is claimed at once: on one machine, a round trip takes less."""
MESSAGE_TIME = 0.000015
"""Seconds that each message of a claim adds to a round trip that also settles as many, without any latency."""
MAX_TIMES = 4
"""How many times as much at most."""
MANY = 50
"""So many runners use up a claim while the next one is on its way, so they get twice as much, near the server too."""
MAX_UNSTARTED = 1.0
"""Seconds for which a prefetched message may wait for a busy runner before it is released: ten times what it should."""


class Prefetch(LoopPart):
    """Estimates the prefetch of a consumer from how long its callbacks take; a fixed `prefetch` needs no estimate."""

    stage = Stage.BESIDE

    def __init__(self, settings: Settings, batch: int) -> None:
        """Start unmeasured: nothing is prefetched until a callback has ended. A callback takes up to `batch`."""
        self.adaptive = settings.prefetch is None
        self._fixed = settings.prefetch or 0
        self._concurrency = settings.concurrency
        self._batch = batch
        self._took: float | None = None
        self._paused = False
        self._near = 2 if settings.concurrency >= MANY else 1
        self._most = self._first = max(FIRST_CLAIMED, settings.concurrency * batch)
        self.shares = 1
        """How many times as much to claim because many queues share it: each gets a part of a claim."""
        self.latency = Latency(MESSAGE_TIME)

    @property
    def times(self) -> int:
        """How many times as much as few runners do from a near server to claim at once, and to prefetch: 1 to 4."""
        return min(MAX_TIMES, max(self._near, self.shares, int(self.latency.seconds / FAR)))

    @property
    def max_claimed(self) -> int:
        """How many messages to claim at a time at most."""
        return min(self._most, max(self._batch, MAX_CLAIMED * self.times))

    def grow(self, claimed: int, *, more: bool) -> None:
        """Learn that a claim has brought so many messages, and whether it has left `more`."""
        self._most = max(
            self._first * self.times, GROWTH * claimed, GROWTH * min(self._most, MAX_PREFETCH) if more else 0
        )

    def on_claimed(self, claimed: ClaimReply, _: list[InFlightDelivery], sent_at: float, now: float) -> None:
        """Learn how long a round trip takes."""
        self.latency.measure(now - sent_at, len(claimed.messages))

    def on_completed(self, completions: Sequence[Completion], _: float) -> None:
        """Update the average time that a callback takes."""
        average = self._took
        for *_rest, took in completions:
            if took is not None:
                average = took if average is None else 0.9 * average + 0.1 * took
                self._paused = False
        self._took = average

    def pause(self) -> None:
        """Prefetch nothing until a callback has ended: messages were released because the estimate was wrong."""
        self._paused = True

    def limit(self, stalled: float) -> int:
        """Return how many messages to prefetch if for `stalled` seconds all runners have been busy and none started.

        Callbacks that still run have no time yet. Once they have lasted too long to prefetch, averages do not count.
        """
        if not self.adaptive:
            return self._fixed
        if self._took is None or self._paused or stalled > PREFETCH_SECONDS:
            return 0
        # Whole batches only: a part of one would start the next callback with less than is ready by then.
        callbacks = int(PREFETCH_SECONDS * self._concurrency / max(self._took, 1e-6))
        return min(MAX_PREFETCH * self.times, callbacks * self._batch)

    @property
    def may_guess(self) -> bool:
        """Whether one callback may be claimed ahead without an estimate that says so, beside those of other queues."""
        return self.adaptive and not self._paused


class _Load(NamedTuple):
    """What the runners of a consumer are doing."""

    busy: int
    """Runners in a callback, without those whose callbacks are overdue."""
    last_start: float
    """When the latest of these callbacks started."""
    started: int
    """Deliveries whose callbacks have started, with overdue ones."""
    waits_since: float | None
    """When the first delivery that has not started was claimed; None if there is none."""


class InFlight:
    """The deliveries of one consumer from claim to completion, in the order in which runners take them."""

    def __init__(self, context: EngineContext, batch: int, *, limited: bool = False) -> None:
        """Start empty; a callback takes up to `batch` messages at a time, `limited` as in `Callback`."""
        self.deliveries: dict[InFlightDelivery, None] = {}
        self.limits = TimeLimits(context, limited=limited)
        self.overdue = self.limits.overdue
        """Deliveries whose callbacks have taken too long, until these end after all."""
        self.recalled = False
        """Whether to release what has not started."""
        self.held = 0
        """How many messages are held here until they are due: each takes a runner, or a place of the prefetch."""
        self.missing = 0
        """Runners that the consumer does not have, since there is no room for them."""
        self.prefetch = Prefetch(context.settings, batch)
        self._last_load: _Load | None = None
        self._settings = context.settings
        self._batch = batch
        self._lease = context.settings.lease / 1000

    def __bool__(self) -> bool:
        return bool(self.deliveries)

    @property
    def _runners(self) -> int:
        return self._settings.concurrency - self.missing

    @property
    def abandoned(self) -> int:
        """How many callbacks have taken too long: as many runners need a replacement."""
        return self.limits.abandoned

    @property
    def stuck(self) -> bool:
        """Whether so many callbacks are overdue that no more are started."""
        return self.limits.stuck

    def add(self, claimed: ClaimReply, sent_at: float, now: float) -> list[InFlightDelivery]:
        """Add the messages of a claim sent and answered at local times; returns their deliveries."""
        return self.take_up(deliveries_of(claimed, now, sent_at + self._lease))

    def hold(self, number: int) -> None:
        """Hold so many messages more, or fewer."""
        self.held += number

    def take_up(self, added: list[InFlightDelivery]) -> list[InFlightDelivery]:
        """Add deliveries, and return them."""
        self.deliveries |= dict.fromkeys(added)
        self.refresh()
        return added

    def complete(self, completions: Sequence[Completion]) -> None:
        """Remove the deliveries of completions."""
        self.refresh()
        pop = self.deliveries.pop
        for deliveries, _, _, _, _ in completions:
            for delivery in deliveries:
                pop(delivery, None)

    def capacity(self, now: float) -> int:
        """Return how many more messages may be claimed: what free runners start at once, and the prefetch.

        None while every free runner has one, and more than half of the prefetch is there: a claim of many costs little
        more than a claim of one.
        """
        if self.stuck:
            return 0
        settings, load = self._settings, self._load()
        free = self._runners - load.busy
        startable = max(free, 0) * self._batch
        most = startable + self.prefetch.limit(0.0 if free > 0 else now - load.last_start)
        if settings.fetch_limit is not None:
            most = min(most, settings.fetch_limit - load.started + len(self.overdue))
        unstarted = len(self.deliveries) - load.started + self.held
        enough = unstarted >= startable and 2 * unstarted > most
        return 0 if enough else most - unstarted

    def release_at(self) -> float | None:
        """Return when what has not started will have waited too long for busy runners; None for never.

        What a fixed `prefetch` has claimed may wait, unless it is recalled.
        """
        load = self._load()
        if self.recalled and len(self.deliveries) > load.started:
            return 0.0
        startable = (self._runners - load.busy) * self._batch
        if not self.prefetch.adaptive or load.waits_since is None or len(self.deliveries) - load.started <= startable:
            return None
        return load.waits_since + MAX_UNSTARTED

    def any_running(self) -> bool:
        """Return whether a callback runs that is not overdue."""
        return any(delivery.batch is not None and delivery.batch.running for delivery in self.deliveries)

    def waited_for(self, *, hung: bool) -> Collection[InFlightDelivery]:
        """Return the deliveries that a stop waits for: with `hung`, also those whose callbacks have taken too long."""
        deliveries = self.deliveries.keys()
        return deliveries if hung else deliveries - self.overdue

    def idle_runners(self) -> int:
        """Return how many runners run no callback."""
        return self._runners - self._load().busy

    def can_start_last(self, *, beside_others: bool) -> bool:
        """Return whether the last delivery can start: no callback runs, or with `beside_others` a runner is free."""
        load = self._load()
        free = load.busy < self._runners if beside_others else not load.busy
        return free and len(self.deliveries) - load.started == 1

    def _load(self) -> _Load:
        if self._last_load is not None:
            return self._last_load
        # Runners take deliveries in order, so those that have started come first.
        batches: set[Batch] = set()
        last_start, started, waits_since, overdue = 0.0, 0, None, self.overdue
        for delivery in self.deliveries:
            batch = delivery.batch
            if batch is None:
                waits_since = delivery.claimed_at
                break
            started += 1
            if not overdue or delivery not in overdue:
                batches.add(batch)
                last_start = max(last_start, batch.started)
        self._last_load = _Load(len(batches), last_start, started, waits_since)
        return self._last_load

    def refresh(self) -> None:
        """Note that callbacks may have started: what the runners do is looked at again when it matters."""
        self._last_load = None
