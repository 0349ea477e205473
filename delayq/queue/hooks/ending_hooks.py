"""Tells the hooks of a program how attempts have ended, once Redis has stored it: see `Hooks.on`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from delayq.broker.replies import ExpiredLease
from delayq.queue.hooks.hook_calls import Ended, Ending, HookCalls
from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery, truncate
from delayq.worker.delivery.message import BY_HAND
from delayq.worker.parts.part import LoopPart, Stage

_DONE: dict[Disposition, Ending] = {
    Disposition.ACK: "acked",
    Disposition.DISCARD: "discarded",
    Disposition.DROP: "discarded",
}


class EndingHooks(LoopPart):
    """Looks at what was settled."""

    stage = Stage.BESIDE

    def __init__(self, calls: HookCalls, queue: str) -> None:
        """Tell of the messages of `queue`."""
        self._calls, self._queue = calls, queue
        self._errors: dict[InFlightDelivery, str] = {}

    def on_settling(self, completions: Sequence[Completion]) -> None:
        """Keep the texts of what has failed until Redis has replied, and tell of what was settled by hand."""
        for deliveries, disposition, text, _delay, _took in completions:
            for delivery in deliveries:
                if delivery.by_hand:
                    self._tell(BY_HAND[delivery.by_hand], delivery)
                elif text and disposition in (Disposition.NACK, Disposition.REJECT) and not delivery.settled:
                    self._errors[delivery] = truncate(text)

    def on_settled(self, disposition: Disposition, settled: Sequence[InFlightDelivery]) -> None:
        """Tell of what Redis has settled."""
        for delivery in settled:
            self._tell(disposition, delivery)

    def on_expired(self, expired: Iterable[ExpiredLease]) -> None:
        """Tell of expired leases: their workers were lost."""
        for lease in expired:
            event: Ending = "failed" if lease.retries_left else "dead"
            if event in self._calls.events:
                of_lease = lease.id, lease.name, lease.attempt, lease.retries_left
                self._calls.tell(Ended(event, self._queue, *of_lease, "lease expired"))

    def _tell(self, disposition: Disposition, delivery: InFlightDelivery) -> None:
        error, claimed = self._errors.pop(delivery, ""), delivery.claimed
        event = _event_of(disposition, delivery)
        if event is not None and event in self._calls.events:
            of_message = claimed.id, delivery.attributes.name, claimed.attempt, claimed.retries_left
            self._calls.tell(Ended(event, self._queue, *of_message, error))

    def leave(self) -> list[Any]:
        """Wait for the last calls: nobody makes them afterwards."""
        self._calls.finish()
        return []


def _event_of(disposition: Disposition, delivery: InFlightDelivery) -> Ending | None:
    if disposition is Disposition.NACK:
        if delivery.cancel_requested:
            return "discarded"
        return "failed" if delivery.claimed.retries_left else "dead"
    return "dead" if disposition is Disposition.REJECT else _DONE.get(disposition)
