"""The seam of the consumer loop: a feature is a part, and the loop asks its parts in each turn.

A part defines the methods that it needs, and the loop calls no others. So a part costs messages only what it does for
them, and one that a queue does not use costs nothing: it is not made. `loop_parts` lists them, in the order of
their calls. All times are local and monotonic, in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from delayq.broker.replies import ClaimReply, ExpiredLease, PromoteReply
from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery

if TYPE_CHECKING:
    from delayq.schedules.calls import ScheduleFire

ERROR_WAIT = 1.0
"""Seconds until the next try after Redis refused a call."""
Call = tuple[Any, Callable[[Any], None]]
"""A call of a turn, with the function that reads its reply."""


class Turns(Protocol):
    """What a part may ask of its loop."""

    deliveries: dict[InFlightDelivery, None]
    """What the consumer has claimed and not completed, in the order in which runners take it; always one object."""
    claim_options: dict[str, Any]
    """With what it claims."""

    def local(self, at: int) -> float | None:
        """Return the local time of a server's time (ms); None for -1, which means never."""

    def settle(self, completions: Sequence[Completion]) -> None:
        """Settle deliveries in the next turn, whether their callbacks have ended or not."""

    def start(self, delivery: InFlightDelivery) -> None:
        """Start what `on_claimed` has held back."""

    def take_up(self, deliveries: list[InFlightDelivery]) -> None:
        """Start what was claimed before it was due; it is in flight from now on."""

    def drop(self, delivery: InFlightDelivery) -> None:
        """Forget what `on_claimed` has held back: it is leased no more."""

    def interrupt(self, batches: Iterable[Batch]) -> None:
        """Interrupt the callbacks of these batches."""

    def recall(self) -> None:
        """Return what has not started to the queue."""

    def take_turns(self, every: float, at: float, *, workers: int) -> None:
        """Look at a queue in which nothing happens so often (seconds), at these times: others look in between.

        Of so many `workers`, each collects more rarely, too.
        """


class Stage(Enum):
    """When in a turn the calls of a part run."""

    SETTLE = auto()
    """First: they tell Redis what has ended. Nothing is claimed while Redis refuses that."""
    RENEW = auto()
    """Then, also during a stop: they keep what is in flight."""
    FEED = auto()
    """Before a promotion, which follows them: they store messages."""
    BESIDE = auto()
    """Last, in round trips that others make."""


class LoopPart:
    """What one feature does in the turns of a loop. A part overrides what it needs; the defaults do nothing."""

    stage: ClassVar[Stage]
    """When in a turn its calls run."""
    takes_errors: ClassVar[bool] = False
    """Whether the functions for its replies take errors as well: nothing else waits for its calls."""

    def connect(self, turns: Turns) -> None:
        """Learn to what loop it belongs, before its first turn."""

    def plan(self, now: float) -> Iterable[Call]:  # noqa: ARG002
        """Return its calls of a turn."""
        return ()

    def next_at(self, now: float) -> float:  # noqa: ARG002
        """Return when it must act next; infinite for never."""
        return math.inf

    def pending(self) -> bool:
        """Return whether it has something to tell Redis: a stop waits for that."""
        return False

    def look(self, now: float) -> None:
        """See to its own times: called at each step."""

    def on_woken(self) -> None:
        """Learn that a wake-up has come: some process has something for a consumer."""

    def on_promoted(self, promoted: PromoteReply) -> None:
        """Learn what a promotion says of the queue."""

    def on_due_claimed(self, claimed: ClaimReply) -> None:
        """Learn what a claim of due messages, which stands for a promotion, says of the queue."""

    def on_claimed(
        self, claimed: ClaimReply, added: list[InFlightDelivery], sent_at: float, now: float
    ) -> list[InFlightDelivery] | None:
        """Learn what was claimed by a call sent and answered at these times; returns what it holds back of it."""

    def before_fire(self, row: ScheduleFire) -> ScheduleFire:
        """Return what is fired in place of one occurrence of a schedule; an exception keeps it from firing here."""
        return row

    def on_expired(self, expired: Sequence[ExpiredLease]) -> None:
        """Learn which leases of lost workers have expired."""

    def on_completed(self, completions: Sequence[Completion], now: float) -> None:
        """Learn which callbacks have ended, and with what, or what was released unstarted."""

    def on_settling(self, completions: Sequence[Completion]) -> None:
        """Learn what is about to be settled: what has completed, and what has failed while its callback runs on."""

    def on_settled(self, disposition: Disposition, settled: Sequence[InFlightDelivery]) -> None:
        """Learn what Redis has settled."""

    def keeps_from_claiming(self, now: float) -> bool:  # noqa: ARG002
        """Return whether nothing may be claimed now."""
        return False

    def release(self) -> list[InFlightDelivery]:
        """Hold back nothing any more, and return what it has held back: it goes back to the queue."""
        return []

    def leave(self) -> list[Any]:
        """Return the calls that end its part: the consumer works no more."""
        return []
