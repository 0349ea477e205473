"""What a consumer has counted since its last beat, which adds it to the record of the hour: `DelayQueue.history`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from delayq.broker.beats import BUCKETS, HourCounts
from delayq.broker.replies import ClaimReply
from delayq.values.lateness import LATENESS_BOUNDS
from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.parts.part import LoopPart, Stage

_ACK = Disposition.ACK
_NOT_STARTED = (Disposition.RELEASE, Disposition.STOP, Disposition.LEAVE, Disposition.NOTHING)
"""What was not started, or is delivered anew as the same attempt, or was settled by hand, which is looked at apart."""
COUNTED_AS = {
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
BY_HAND = {"ack": "acked", "complete": "acked", "nack": "nacked", "reject": "rejected", "release": "released"}
"""What the scripts count that settle a message by hand."""


class Tally(LoopPart):
    """Plain numbers, of the consumer's loop alone."""

    stage = Stage.BESIDE

    def __init__(self) -> None:
        """Start with nothing counted."""
        self._reset()

    def _reset(self) -> None:
        self.delivered = self.callbacks = 0
        self.busy = 0.0
        self.outcomes = dict.fromkeys(HourCounts._fields[1:6], 0)
        self.lateness = [0] * BUCKETS

    def on_claimed(self, _: ClaimReply, added: list[InFlightDelivery], __: float, ___: float) -> None:
        """Count what was delivered."""
        self.delivered += len(added)

    def on_completed(self, completions: Sequence[Completion], _: float) -> None:
        """Count callbacks that have ended: how long they took, how late they started, and what they settled by hand."""
        lateness, callbacks, busy = self.lateness, 0, 0.0
        for deliveries, disposition, _text, _delay, took in completions:
            if took is not None:
                callbacks += 1
                busy += took
            started = disposition is _ACK or disposition not in _NOT_STARTED
            for delivery in deliveries:
                claimed, batch = delivery.claimed, delivery.batch
                if delivery.by_hand:
                    self.outcomes[BY_HAND[delivery.by_hand]] += 1
                    if delivery.by_hand == "release":
                        continue
                elif not started:
                    continue
                if batch is None or claimed.attempt != 1 or delivery.attributes.snoozes:
                    continue
                late: float = delivery.server_now - claimed.due
                if delivery.claimed_at:  # else the time of a test, in which it did not wait here
                    late += (batch.started - delivery.claimed_at) * 1000
                lateness[bisect_left(LATENESS_BOUNDS, late)] += 1
        self.callbacks += callbacks
        self.busy += busy

    def on_settled(self, disposition: Disposition, settled: Sequence[InFlightDelivery]) -> None:
        """Count what Redis has settled."""
        self.outcomes[COUNTED_AS[disposition]] += len(settled)

    def move(self, number: int) -> None:
        """Count messages that a relay has moved: delivered and done at once, without a callback."""
        self.delivered += number
        self.outcomes["acked"] += number

    def take(self) -> HourCounts | None:
        """Return what was counted, and begin anew; None for nothing."""
        busy = round(self.busy * 1_000_000)
        numbers = [self.delivered, *self.outcomes.values(), self.callbacks, busy]
        if not (any(numbers) or any(self.lateness)):
            return None
        counts = HourCounts._make([*numbers, tuple(self.lateness)])
        self._reset()
        return counts
