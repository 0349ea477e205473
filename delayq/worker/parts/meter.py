"""What the consumers of this process count for its metrics, once somebody asks for them: see `delayq.metrics`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from delayq.broker.replies import ClaimReply
from delayq.worker.delivery.disposition import Completion
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.parts.part import LoopPart, Stage
from delayq.worker.parts.presence import BY_HAND, COUNTED_AS

DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""The upper ends (s) of the buckets in which the durations of callbacks are counted; the last bucket has none."""
MAX_NAMES = 100
"""Names of messages that are counted apart for each queue: each takes some twenty time series."""
OTHER_NAMES = "(others)"
LATE = "late"
"""The outcome of a callback that ended after its lease or its timeout, and so decided nothing."""

_counting = False


def start_counting() -> None:
    """Let the consumers that start from now on in this process count."""
    global _counting  # noqa: PLW0603 - metrics are those of a process
    _counting = True


def new_meter() -> Meter | None:
    """Return the meter of a new consumer; None while nobody asks for metrics."""
    return Meter() if _counting else None


class Durations:
    """How long callbacks took, in buckets."""

    def __init__(self) -> None:
        """Start with none."""
        self.numbers = [0] * (len(DURATION_BOUNDS) + 1)
        self.seconds = 0.0


class Meter(LoopPart):
    """Plain numbers that only the consumer's loop changes; other threads read them without a lock."""

    stage = Stage.BESIDE

    def __init__(self) -> None:
        """Start with nothing counted."""
        self.delivered = 0
        """Messages claimed."""
        self.ended: dict[tuple[str, str], int] = {}
        """Deliveries whose callbacks have ended, or that were released unstarted, by name and outcome."""
        self.durations: dict[str, Durations] = {}
        """How long callbacks took, by the name of their first message."""

    def on_claimed(self, _: ClaimReply, added: list[InFlightDelivery], __: float, ___: float) -> None:
        """Count what was delivered."""
        self.delivered += len(added)

    def on_completed(self, completions: Sequence[Completion], _: float) -> None:
        """Count what became of deliveries, and how long callbacks took."""
        for deliveries, disposition, _text, _delay, took in completions:
            for delivery in deliveries:
                outcome = BY_HAND[delivery.by_hand] if delivery.by_hand else COUNTED_AS.get(disposition, LATE)
                key = self._name(delivery), outcome
                self.ended[key] = self.ended.get(key, 0) + 1
            if took is not None and deliveries:
                durations = self.durations[self._name(deliveries[0])]
                durations.numbers[bisect_left(DURATION_BOUNDS, took)] += 1
                durations.seconds += took

    def _name(self, delivery: InFlightDelivery) -> str:
        """Return the name of a message under which it is counted."""
        name = delivery.attributes.name
        if name not in self.durations:
            if len(self.durations) >= MAX_NAMES:
                name = OTHER_NAMES
            self.durations.setdefault(name, Durations())
        return name
