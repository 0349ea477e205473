"""The heartbeat of a consumer: every third of a lease, it renews the leases of what it has in flight."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from functools import partial

from delayq.broker.batches import batched
from delayq.broker.context import EngineCalls
from delayq.broker.replies import ClaimReply
from delayq.broker.scripts import MAX_IDS
from delayq.options import Settings
from delayq.safe_log import SafeLog
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.parts.part import Call, LoopPart, Stage, Turns

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
