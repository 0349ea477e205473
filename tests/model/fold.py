"""What can be known of a queue from its event log alone: every living message, and every death."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from delayq.queue.inspecting.event_log import MessageEvent

MAX_ERROR = 200
"""Bytes of a text that the log keeps."""
_IDLE = ("pending", "ready", "backoff", "retry", "released")


@dataclass(slots=True)
class Life:
    """A living message; `due` in milliseconds."""

    state: str
    due: int
    left: int
    """Retries left."""
    attempts: int = 0
    token: int = 0


class Death(NamedTuple):
    """An entry of the dead letter; times in milliseconds."""

    at: int
    due: int
    attempts: int
    reason: str
    error: str


def first_line(text: str) -> str:
    """Return what the log keeps of a text."""
    return text.partition("\n")[0].encode()[:MAX_ERROR].decode("utf-8", "replace")


class Fold:
    """Takes events one by one, in the order of the log; each must fit what those before it have told."""

    def __init__(self) -> None:
        self.offset = 0
        self.lives: dict[str, Life] = {}
        self.dead: dict[str, Death] = {}
        self.paused_until: float = 0
        """When the pause ends (ms), infinite for one without an end."""

    def take(self, events: Iterable[MessageEvent]) -> None:
        """Go on with some events."""
        for event in events:
            assert event.offset in (self.offset, self.offset + 1), f"entry {event.offset} after {self.offset}"
            assert (event.index == 0) == (event.offset > self.offset), event
            self.offset = event.offset
            _TAKES[event.kind](self, event)

    def _begin(self, event: MessageEvent) -> None:
        assert event.id not in self.lives
        self.lives[event.id] = Life("pending", _ms(event.due), event.retries_left)

    def _replace(self, event: MessageEvent) -> None:
        self._cancel(event)
        self._begin(event)

    def _promote(self, event: MessageEvent) -> None:
        life = self._found(event, "pending")
        life.state = "ready"
        assert life.due == _ms(event.due)

    def _deliver(self, event: MessageEvent) -> None:
        assert self.paused_until <= _ms(event.at), f"{event.id} is delivered in a pause"
        life = self._found(event, "ready", "retry", "released")
        life.state, life.attempts = "leased", life.attempts + 1
        assert event.token > life.token
        life.token = event.token
        assert (life.due, life.attempts, life.left) == (_ms(event.due), event.attempt, event.retries_left)
        assert event.holder

    def _settle(self, event: MessageEvent) -> None:
        life = self._found(event, "leased", *_IDLE)
        del self.lives[event.id]
        assert event.token <= life.token  # an early receipt of this life may settle it

    def _miss(self, event: MessageEvent) -> None:
        assert event.token <= self._found(event, "leased", *_IDLE).token  # the event after it ends the message

    def _fail(self, event: MessageEvent) -> None:
        """A nack, or the end of a lease; this one is followed by a retry where one was left."""
        life = self._found(event, "leased")
        assert event.token == life.token
        spent = event.retries_left is None
        assert life.left == (0 if spent else event.retries_left + 1)
        life.left = 0 if spent else event.retries_left
        life.state = "garbage" if spent else "backoff"

    def _retry(self, event: MessageEvent) -> None:
        life = self._found(event, "backoff", "released")
        assert event.token == life.token
        life.state = "retry"

    def _release(self, event: MessageEvent) -> None:
        life = self._found(event, "leased")
        assert event.token == life.token
        # The log does not say whether at once or after a delay: the next event of the message must fit either.
        life.state, life.attempts = "released", life.attempts - 1

    def _die(self, event: MessageEvent) -> None:
        by_hand = event.reason == "killed"
        life = self._found(event, *(_IDLE if by_hand else ("leased", "garbage")))
        del self.lives[event.id]
        token = event.token if by_hand and not life.token else life.token  # what was never delivered gets one
        assert (token, life.attempts, life.due) == (event.token, event.attempt, _ms(event.due))
        death = Death(_ms(event.at), life.due, life.attempts, event.reason or "", event.error or "")
        self.dead[f"{event.id}:{event.token}"] = death

    def _cancel(self, event: MessageEvent) -> None:
        self._found(event, *_IDLE, "leased")  # this one was asked to stop
        del self.lives[event.id]

    def _reschedule(self, event: MessageEvent) -> None:
        life = self._found(event, *_IDLE)
        life.state, life.due = "pending", _ms(event.due)

    def _edit(self, event: MessageEvent) -> None:
        self._found(event, *_IDLE)

    def _purge(self, event: MessageEvent) -> None:
        assert event.id is None
        self.lives.clear()

    def _import_dead(self, event: MessageEvent) -> None:
        assert event.id not in self.lives
        # The log does not say when it died.
        death = Death(0, _ms(event.due), event.attempt, event.reason or "", event.error or "")
        self.dead[f"{event.id}:{event.token}"] = death

    def _purge_dead(self, event: MessageEvent) -> None:
        del self.dead[f"{event.id}:{event.token}"]

    def _pause(self, event: MessageEvent) -> None:
        if event.name is None:
            self.paused_until = math.inf if event.due is None else _ms(event.due)

    def _resume(self, event: MessageEvent) -> None:
        if event.name is None:
            assert self.paused_until > _ms(event.at), "what is not paused is resumed"
            self.paused_until = 0

    def _note(self, event: MessageEvent) -> None:
        assert event.holder

    def _found(self, event: MessageEvent, *states: str) -> Life:
        assert event.id in self.lives, f"{event.kind} of {event.id}, which does not live"
        life = self.lives[event.id]
        assert life.state in states, f"{event.kind} of {event.id}, which is {life.state}"
        return life


def _ms(time: object) -> int:
    return round(time.timestamp() * 1000)


_TAKES: dict[str, Callable[[Fold, MessageEvent], None]] = {
    "sent": Fold._begin,
    "redriven": Fold._begin,
    "replaced": Fold._replace,
    "promoted": Fold._promote,
    "delivered": Fold._deliver,
    "acked": Fold._settle,
    "discarded": Fold._settle,
    "missed": Fold._miss,
    "nacked": Fold._fail,
    "expired": Fold._fail,
    "retried": Fold._retry,
    "released": Fold._release,
    "dead": Fold._die,
    "cancelled": Fold._cancel,
    "rescheduled": Fold._reschedule,
    "edited": Fold._edit,
    "purged": Fold._purge,
    "paused": Fold._pause,
    "resumed": Fold._resume,
    "audit": Fold._note,
    "dead_imported": Fold._import_dead,
    "dead_purged": Fold._purge_dead,
    "dead_trimmed": Fold._purge_dead,
}
