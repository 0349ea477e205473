"""The steps of a consumer loop, which a driver carries out, and what happened during a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from delayq.worker.delivery.disposition import Completion
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery


class RoundTrip(NamedTuple):
    """Send these calls in one round trip; the result has their replies."""

    calls: list[Any]


class Run(NamedTuple):
    """Run the callbacks of these deliveries in the runners, in this order; interrupt those that run of some batches."""

    deliveries: list[InFlightDelivery]
    interrupted: Sequence[Batch] = ()


class Sleep(NamedTuple):
    """Sleep for at most `seconds`, until something happens; with `listen`, a wake-up through Redis counts."""

    seconds: float
    listen: bool


class Withdraw(NamedTuple):
    """Take back the deliveries whose callbacks have not started; the result has them."""


class Cancel(NamedTuple):
    """Cancel the callbacks that still run."""


Step = RoundTrip | Run | Sleep | Withdraw | Cancel


@dataclass(slots=True)
class StepResult:
    """What happened during a step: local monotonic time, replies, finished callbacks and withdrawn deliveries."""

    now: float
    replies: Sequence[Any] = ()
    completions: Sequence[Completion] = ()
    withdrawn: Sequence[InFlightDelivery] = ()
    woken: bool = False
    """Whether a wake-up has arrived through Redis."""
    stop_at: float | None = None
    """Set once a stop was requested: the time until which running callbacks may continue."""
