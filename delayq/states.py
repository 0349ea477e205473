"""The states of a message and every way from one to another, as data; the drawing in the README is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a message stands."""

    PENDING = "pending"
    """Waiting for its due time."""
    READY = "ready"
    """Due, waiting for a free consumer."""
    ACTIVE = "active"
    """Held by a consumer under a lease."""
    BACKOFF = "backoff"
    """Failed, waiting out its nack delay."""
    RETRY = "retry"
    """Lease or nack delay over, waiting to be delivered again."""
    GARBAGE = "garbage"
    """Retries spent, about to be collected into the dead letter."""
    DEAD = "dead"
    """In the dead letter, until it is redriven, purged or trimmed."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One arrow of the life of a message; None is outside: not yet sent, or settled."""

    script: str
    source: State | None
    target: State | None
    cause: str


_WAITING = (State.PENDING, State.READY, State.RETRY, State.BACKOFF)

TRANSITIONS = (
    Transition("send", None, State.PENDING, "sent"),
    Transition("fire", None, State.PENDING, "sent"),
    Transition("pending_to_ready", State.PENDING, State.READY, "due"),
    Transition("ready_to_unack", State.READY, State.ACTIVE, "delivered"),
    Transition("ready_to_unack", State.RETRY, State.ACTIVE, "delivered"),
    Transition("ack", State.ACTIVE, None, "acknowledged or discarded"),
    *(Transition("ack", state, None, "acknowledged late") for state in _WAITING),
    Transition("nack", State.ACTIVE, State.BACKOFF, "failed"),
    Transition("nack", State.ACTIVE, State.GARBAGE, "failed, retries spent"),
    Transition("unack_to_retry", State.ACTIVE, State.RETRY, "lease expired"),
    Transition("unack_to_retry", State.ACTIVE, State.GARBAGE, "lease expired, retries spent"),
    Transition("unack_to_retry", State.BACKOFF, State.RETRY, "nack delay over"),
    Transition("release", State.ACTIVE, State.READY, "released unstarted"),
    Transition("reject", State.ACTIVE, State.DEAD, "rejected"),
    Transition("collect_garbage", State.GARBAGE, State.DEAD, "collected"),
    Transition("collect_garbage", State.DEAD, None, "trimmed"),
    Transition("redrive", State.DEAD, State.PENDING, "redriven"),
    Transition("dead_purge", State.DEAD, None, "purged"),
    *(Transition("cancel", state, None, "cancelled") for state in _WAITING),
    *(Transition("reschedule", state, State.PENDING, "rescheduled") for state in _WAITING),
    *(Transition("send", state, State.PENDING, "replaced") for state in _WAITING),
)
"""Every transition; purge, which empties the queue whatever the state, is left out."""
