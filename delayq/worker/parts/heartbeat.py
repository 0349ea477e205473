"""The heartbeat of a consumer: every third of a lease, it renews the leases of what it has in flight.

Somebody may cancel a message while it runs. Redis counts the calls that ask for this. Each promotion returns the count,
and a consumer promotes once per tick. If the count has changed, it looks which of its messages are meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from functools import partial

from delayq.broker.batches import batched
from delayq.broker.context import EngineCalls
from delayq.broker.replies import ClaimReply, PromoteReply
from delayq.broker.scripts import MAX_IDS
from delayq.options import Settings
from delayq.safe_log import SafeLog
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.parts.part import Call, LoopPart, Stage, Turns


class StopRequests(LoopPart):
    """What one consumer knows of the requests to stop."""

    stage = Stage.RENEW
    _turns: Turns

    def __init__(self, calls: EngineCalls) -> None:
        """Start with none."""
        self._calls = calls
        self._asked = False
        """Whether to look which messages are asked to stop."""
        self._count = 0
        """The count of calls that the last look has found or that preceded it."""
        self._told: set[InFlightDelivery] = set()
        """The deliveries in flight whose callbacks know of it."""

    def connect(self, turns: Turns) -> None:
        """Learn to what loop it belongs."""
        self._turns = turns

    def ask(self) -> None:
        """Look in the next turn: the message of a lease that was renewed is asked to stop."""
        self._asked = True

    def on_promoted(self, promoted: PromoteReply) -> None:
        """Note the count of calls; 0 if it is not known."""
        if promoted.stopping and promoted.stopping != self._count:
            self._count, self._asked = promoted.stopping, True

    def next_at(self, _: float) -> float:
        """Return when to look: at once, or never."""
        return -math.inf if self._asked else math.inf

    def plan(self, _: float) -> Iterator[Call]:
        """Yield the calls that look."""
        if not self._asked:
            return
        self._asked = False
        deliveries = list(self._turns.deliveries)
        self._told.intersection_update(deliveries)
        for part in batched([one for one in deliveries if not one.settled], MAX_IDS):
            call = self._calls.is_stopping([delivery.claimed.id for delivery in part])
            yield call, partial(self._on_reply, part)

    def _on_reply(self, deliveries: list[InFlightDelivery], tokens: list[int]) -> None:
        asked = [one for one, token in zip(deliveries, tokens, strict=True) if token == one.claimed.token]
        new = [one for one in asked if one not in self._told]
        self._told.update(new)
        for delivery in new:
            delivery.cancel_requested = True
            if delivery.batch is None:
                self._turns.recall()  # which returns it
        batches = dict.fromkeys(one.batch for one in new if one.batch is not None and one.batch.running)
        self._turns.interrupt([batch for batch in batches if self._is_asked_as_a_whole(batch)])

    def _is_asked_as_a_whole(self, batch: Batch) -> bool:
        return all(one.cancel_requested for one in self._turns.deliveries if one.batch is batch)


log = SafeLog("delayq.consumer")


class Heartbeat(LoopPart):
    """Renews leases, and says which have been lost."""

    stage = Stage.RENEW
    _turns: Turns

    def __init__(
        self,
        calls: EngineCalls,
        settings: Settings,
        overdue: Collection[InFlightDelivery],
        on_stop_asked: Callable[[], None],
    ) -> None:
        """Leave alone what is `overdue`; call `on_stop_asked` if a message is asked to stop."""
        self._calls = calls
        self._millis, self._lease = settings.lease, settings.lease / 1000
        self._overdue = overdue
        self._on_stop_asked = on_stop_asked
        self._next_at = 0.0

    def connect(self, turns: Turns) -> None:
        """Learn to what loop it belongs."""
        self._turns = turns

    def on_claimed(self, _: ClaimReply, added: list[InFlightDelivery], __: float, now: float) -> None:
        """Begin with the first delivery in flight."""
        if len(added) == len(self._turns.deliveries):
            self._next_at = now + self._lease / 3

    def next_at(self, _: float) -> float:
        """Return when to renew the leases again."""
        return self._next_at if self._turns.deliveries else math.inf

    def plan(self, now: float) -> Iterator[Call]:
        """Yield the calls that renew the leases, if it is time."""
        if now < self._next_at or not self._turns.deliveries:
            return
        self._next_at = now + self._lease / 3
        until = now + self._lease
        alive = [  # a lease that the callback has extended further is left alone
            delivery
            for delivery in self._turns.deliveries
            if not delivery.settled and delivery.deadline <= until and delivery not in self._overdue
        ]
        for part in batched(alive, MAX_IDS):
            call = self._calls.extend([delivery.receipt for delivery in part], lease=self._millis)
            yield call, partial(self._on_extended, part, until)

    def _on_extended(self, deliveries: list[InFlightDelivery], deadline: float, reply: str) -> None:
        for delivery, status in zip(deliveries, reply, strict=True):
            if status != "0":
                delivery.deadline = deadline
                if status == "2" and not delivery.cancel_requested:
                    self._on_stop_asked()
            elif not delivery.settled and not delivery.lost:
                delivery.lost = True
                log.warning("lease lost: %s", delivery.claimed.id, extra={"id": delivery.claimed.id})
