"""Reports to Redis which callbacks have started: a lease that expires costs a retry only then.

A callback is reported once it has run for a while, so quick ones cost nothing. If a consumer dies, what it had not
reported is charged nothing, and each such message is then claimed alone. It is reported before it starts: a message
that kills its consumers is charged from its second delivery on, and takes no other with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from delayq.broker.batches import batched
from delayq.broker.context import EngineCalls
from delayq.broker.replies import ClaimReply
from delayq.broker.requests import UNSTARTED
from delayq.broker.scripts import MAX_IDS
from delayq.worker.delivery.disposition import Completion
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.parts.in_flight import InFlight
from delayq.worker.parts.part import Call, LoopPart, Stage, Turns

REPORT_AFTER = 0.1
"""Seconds for which a callback runs before it is reported."""
ALONE_FOR = 1.0
"""Seconds for which a message waits to run alone at most, and for which nothing is claimed beside it at most."""
WITHDRAWN_EVERY = 0.25
"""Seconds between two looks whether another process asks for what waits for a busy runner."""


class StartReports(LoopPart):
    """What one consumer has to report, and the message that it holds back until it can run alone."""

    stage = Stage.RENEW
    _turns: Turns

    def __init__(self, calls: EngineCalls, in_flight: InFlight) -> None:
        """Start with nothing to report."""
        self.alone: InFlightDelivery | None = None
        """What waits to run alone, or has just started so."""
        self._calls = calls
        self._in_flight = in_flight
        self._next_at = math.inf

    def connect(self, turns: Turns) -> None:
        """Learn to what loop it belongs; its claims name the consumer as one that reports starts."""
        self._turns = turns
        turns.claim_options["consumer_id"] += UNSTARTED

    def next_at(self, now: float) -> float:
        """Return the local time of the next report, if a callback runs so long."""
        if not self._turns.deliveries:
            return math.inf
        if self.alone is None:
            return self._next_at
        if self._ready_to_run_alone(now):
            return now
        batch = self.alone.batch
        over_at = (self.alone.claimed_at if batch is None else batch.started) + ALONE_FOR
        # What has waited so long for a runner waits for the end of a callback.
        return min(self._next_at, over_at) if over_at > now else self._next_at

    def keeps_from_claiming(self, now: float) -> bool:
        """Return whether nothing may be claimed, because a message waits to run alone or has just started."""
        alone = self.alone
        if alone is not None and alone.reported:
            over = alone.batch is not None and now - alone.batch.started >= ALONE_FOR
            if over or alone not in self._in_flight.deliveries:
                self.alone = None
        return self.alone is not None

    def on_claimed(
        self, claimed: ClaimReply, added: list[InFlightDelivery], _: float, now: float
    ) -> list[InFlightDelivery] | None:
        """Hold back a message that is to run alone; report others once they have run for a while."""
        if claimed.alone and added:
            (self.alone,) = added
            return added
        if added:
            self._check_after(now)
        return None

    def on_completed(self, _: Sequence[Completion], now: float) -> None:
        """Note that callbacks may start from now on."""
        self._check_after(now)

    def _check_after(self, now: float) -> None:
        self._next_at = min(self._next_at, now + REPORT_AFTER)

    def release(self) -> list[InFlightDelivery]:
        """Stop holding back a message, and return it."""
        alone, self.alone = self.alone, None
        return [] if alone is None or alone.reported else [alone]

    def plan(self, now: float) -> Iterator[Call]:
        """Yield the calls that report starts."""
        if alone := self._ready_to_run_alone(now):
            yield self._calls.start([alone.receipt]), partial(self._on_alone, alone)
        if now < self._next_at:
            return
        self._next_at = math.inf
        started: list[InFlightDelivery] = []
        waiting: list[InFlightDelivery] = []
        for delivery in self._in_flight.deliveries:
            if delivery.settled or delivery.reported or delivery.lost or delivery is self.alone:
                continue
            if delivery.batch is None:
                waiting.append(delivery)
                continue
            report_at = delivery.batch.started + REPORT_AFTER
            if report_at <= now:
                started.append(delivery)
            else:
                self._next_at = min(self._next_at, report_at)
        for part in batched(started, MAX_IDS):
            yield self._calls.start([one.receipt for one in part]), partial(self._on_reply, part)
        if not waiting:
            return
        self._next_at = min(self._next_at, now + (REPORT_AFTER if self._in_flight.idle_runners() else WITHDRAWN_EVERY))
        for part in batched([one for one in waiting if one.claimed_at + REPORT_AFTER <= now], MAX_IDS):
            yield self._calls.is_withdrawn([one.claimed.id for one in part]), self._on_withdrawn

    def _ready_to_run_alone(self, now: float) -> InFlightDelivery | None:
        """Return the message that is held back, once no callback runs; after a while, once a runner is free."""
        if self.alone is None or self.alone.reported:
            return None
        waited = now - self.alone.claimed_at >= ALONE_FOR
        return self.alone if self._in_flight.can_start_last(beside_others=waited) else None

    def _on_reply(self, deliveries: list[InFlightDelivery], reply: str) -> None:
        for delivery, status in zip(deliveries, reply, strict=True):
            delivery.reported = status != "0"

    def _on_withdrawn(self, reply: object) -> None:
        if reply is True:
            self._turns.recall()

    def _on_alone(self, alone: InFlightDelivery, reply: str) -> None:
        if reply != "0":
            alone.reported = True
            self._turns.start(alone)
        else:
            self.alone = None
            self._turns.drop(alone)
