"""The words between a flow, which decides, and a driver, which does.

A flow is a generator without clock, socket, thread or loop. It yields a `Step` and is sent an `Event` with what has
happened meanwhile; `delayq.flows` holds the flows, `delayq.drive` the drivers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from delayq.message import Holding
from delayq.verdict import Completion


class Turn(NamedTuple):
    """Carry these calls out in one round trip; the event brings their answers."""

    calls: list[Any]


class Start(NamedTuple):
    """Have the workers run the callbacks of these, in this order."""

    holdings: list[Holding]


class Wait(NamedTuple):
    """Sleep for at most so many seconds, until something happens; with `listen`, a wake-up through Redis counts."""

    seconds: float
    listen: bool


class Recall(NamedTuple):
    """Take back the holdings whose callbacks have not started; the event brings them."""


class Abandon(NamedTuple):
    """Cut off the callbacks that still run."""


Step = Turn | Start | Wait | Recall | Abandon


@dataclass(slots=True)
class Event:
    """What has happened: local monotonic time, answers to a turn, callbacks that ended, holdings that came back."""

    now: float
    answers: Sequence[Any] = ()
    completions: Sequence[Completion] = ()
    recalled: Sequence[Holding] = ()
    signalled: bool = False
    stop_at: float | None = None
    """Set once stopping was asked for: the time until which running callbacks are waited for."""
