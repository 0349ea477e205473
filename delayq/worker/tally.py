"""What a consumer has counted since its last beat, which adds it to the record of the hour: `DelayQueue.history`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from delayq.broker.attributes import Attributes
from delayq.broker.history_records import BUCKETS, HourCounts
from delayq.lateness import LATENESS_BOUNDS
from delayq.worker.disposition import Completion, Disposition

if TYPE_CHECKING:
    from delayq.worker.message import InFlightDelivery

_ACK = Disposition.ACK
_NOT_STARTED = (Disposition.RELEASE, Disposition.STOP, Disposition.LEAVE, Disposition.NOTHING)
"""What was not started, or is delivered anew as the same attempt, or was settled by hand, which is looked at apart."""
_COUNTED_AS = {
    Disposition.ACK: "acked",
    Disposition.DISCARD: "discarded",
    Disposition.DROP: "discarded",
    Disposition.NACK: "nacked",
    Disposition.REJECT: "rejected",
    Disposition.RELEASE: "released",
    Disposition.STOP: "released",
    Disposition.SNOOZE: "released",
    Disposition.LEAVE: "released",
}
_BY_HAND = {"ack": "acked", "complete": "acked", "nack": "nacked", "reject": "rejected", "release": "released"}
"""What the scripts count that settle a message by hand."""


class Tally:
    """Plain numbers, of the consumer's loop alone."""

    def __init__(self) -> None:
        """Start with nothing counted."""
        self._reset()

    def _reset(self) -> None:
        self.delivered = self.callbacks = 0
        self.busy = 0.0
        self.outcomes = dict.fromkeys(HourCounts._fields[1:6], 0)
        self.lateness = [0] * BUCKETS

    def complete(self, completions: Sequence[Completion]) -> None:
        """Count callbacks that have ended: how long they took, how late they started, and what they settled by hand."""
        lateness = self.lateness
        for deliveries, disposition, _, _, took in completions:
            if took is not None:
                self.callbacks += 1
                self.busy += took
            started = disposition is _ACK or disposition not in _NOT_STARTED
            for delivery in deliveries:
                counted = started
                if delivery.by_hand:
                    self.outcomes[_BY_HAND[delivery.by_hand]] += 1
                    counted = delivery.by_hand != "release"
                if counted and delivery.claimed.attempt == 1 and delivery.batch is not None:
                    late = _lateness(delivery)
                    if late is not None:
                        lateness[bisect_left(LATENESS_BOUNDS, late)] += 1

    def settle(self, disposition: Disposition, number: int) -> None:
        """Count what Redis has settled."""
        self.outcomes[_COUNTED_AS[disposition]] += number

    def take(self) -> HourCounts | None:
        """Return what was counted, and begin anew; None for nothing."""
        busy = round(self.busy * 1_000_000)
        numbers = [self.delivered, *self.outcomes.values(), self.callbacks, busy]
        if not (any(numbers) or any(self.lateness)):
            return None
        counts = HourCounts._make([*numbers, tuple(self.lateness)])
        self._reset()
        return counts


def _lateness(delivery: InFlightDelivery) -> float | None:
    """Return the milliseconds from the due time to the start; None for a message that was snoozed before."""
    claimed, batch = delivery.claimed, delivery.batch
    if batch is None or (claimed.attributes and Attributes.of(claimed.attributes).snoozes):
        return None
    waited = batch.started - delivery.claimed_at if delivery.claimed_at else 0.0
    return delivery.server_now - claimed.due + waited * 1000
