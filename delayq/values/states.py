"""The states of a message and every transition between them, as data; the diagrams are drawn from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of a message."""

    PENDING = "pending"
    """Waiting for its due time."""
    READY = "ready"
    """Due, waiting for a free consumer, whether one has seen it or not."""
    ACTIVE = "active"
    """Leased to a consumer."""
    BACKOFF = "backoff"
    """Failed, waiting for the end of its nack delay."""
    RETRY = "retry"
    """Its lease expired or its nack delay is over; waiting for redelivery."""
    THROTTLED = "throttled"
    """Due, waiting until a limit lets it start."""
    GARBAGE = "garbage"
    """No retries left; about to be moved to the dead letter."""
    DEAD = "dead"
    """In the dead letter, until it is redriven, purged or trimmed."""
    COMPLETED = "completed"
    """Settled, and its result is kept until its retention is over; no message any more, so its id is free."""


def state_at(stored: State, due: float, now: int) -> State:
    """Return the state of a message at a time (ms), by the one that is stored: what is due is ready.

    A consumer moves what is due from `pending` to `ready`. Until one does, it is stored as pending, and is ready all
    the same. The scripts that read, `counts`, `page` and those that send, judge alike.
    """
    return State.READY if stored is State.PENDING and due <= now else stored


MESSAGE_STATES = tuple(state for state in State if state is not State.COMPLETED)
"""The states of messages: what is completed is a result, and no message any more."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition of a message; None as a state means not yet sent, or settled."""

    script: str
    source: State | None
    target: State | None
    cause: str


_WAITING = (State.PENDING, State.READY, State.RETRY, State.BACKOFF, State.THROTTLED)

TRANSITIONS = (
    Transition("send", None, State.PENDING, "sent"),
    Transition("fire", None, State.PENDING, "sent"),
    Transition("pending_to_ready", State.PENDING, State.READY, "due"),
    Transition("ready_to_unack", State.READY, State.ACTIVE, "delivered"),
    Transition("ready_to_unack", State.RETRY, State.ACTIVE, "delivered"),
    Transition("ready_to_unack", State.READY, State.THROTTLED, "over a limit"),
    Transition("ready_to_unack", State.RETRY, State.THROTTLED, "over a limit"),
    Transition("ready_to_unack", State.THROTTLED, State.ACTIVE, "delivered"),
    Transition("ack", State.ACTIVE, None, "acknowledged or discarded"),
    *(Transition("ack", state, None, "acknowledged late") for state in _WAITING),
    Transition("complete", State.ACTIVE, State.COMPLETED, "done, with retention"),
    *(Transition("complete", state, State.COMPLETED, "done late, with retention") for state in _WAITING),
    Transition("collect_garbage", State.COMPLETED, None, "retention over"),
    Transition("nack", State.ACTIVE, State.BACKOFF, "failed"),
    Transition("nack", State.ACTIVE, State.GARBAGE, "failed, retries spent"),
    Transition("unack_to_retry", State.ACTIVE, State.RETRY, "lease expired"),
    Transition("unack_to_retry", State.ACTIVE, State.GARBAGE, "lease expired, retries spent"),
    Transition("unack_to_retry", State.BACKOFF, State.RETRY, "nack delay over"),
    Transition("unack_to_retry", State.ACTIVE, State.READY, "lease expired, with a priority"),
    Transition("unack_to_retry", State.BACKOFF, State.READY, "nack delay over, with a priority"),
    Transition("release", State.ACTIVE, State.READY, "released"),
    Transition("release", State.ACTIVE, State.BACKOFF, "snoozed"),
    Transition("reject", State.ACTIVE, State.DEAD, "rejected"),
    Transition("collect_garbage", State.GARBAGE, State.DEAD, "collected"),
    Transition("collect_garbage", State.DEAD, None, "trimmed"),
    Transition("dead_import", None, State.DEAD, "imported dead"),
    Transition("redrive", State.DEAD, State.PENDING, "redriven"),
    Transition("dead_purge", State.DEAD, None, "purged"),
    *(Transition("cancel", state, None, "cancelled") for state in _WAITING),
    *(Transition("kill", state, State.DEAD, "killed by hand") for state in _WAITING),
    *(Transition("reschedule", state, State.PENDING, "rescheduled") for state in _WAITING),
    *(Transition("send", state, State.PENDING, "replaced") for state in _WAITING),
)
"""Every transition except purge, which empties the queue from any state."""
