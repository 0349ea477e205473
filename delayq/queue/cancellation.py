"""Steering what was sent: withdrawing a message or giving it a new time, with an exact answer."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from delayq.clock import Duration
from delayq.errors import NotReplicatedError
from delayq.keys import check_id
from delayq.message import Tools
from delayq.operation import Operation
from delayq.producer import due_text
from delayq.values import Call


class CancelOutcome(StrEnum):
    """What cancelling found: withdrawn, or why not."""

    CANCELLED = "cancelled"
    RUNNING = "running"
    DEAD = "dead"
    GONE = "gone"


class RescheduleOutcome(StrEnum):
    """What rescheduling found: moved, or why not."""

    RESCHEDULED = "rescheduled"
    RUNNING = "running"
    DEAD = "dead"
    GONE = "gone"


_CANCELLED = dict(zip("1230", CancelOutcome, strict=True))
_RESCHEDULED = dict(zip("1230", RescheduleOutcome, strict=True))


def cancel(tools: Tools, id: str) -> Operation[CancelOutcome]:
    """Withdraw a message unless it is running."""
    digit = yield from _steer(tools, tools.calls.cancel([check_id(id)]), id)
    return _CANCELLED[digit]


def reschedule(tools: Tools, id: str, delay: Duration | None, at: datetime | None) -> Operation[RescheduleOutcome]:
    """Give a message a new due time unless it is running."""
    digit = yield from _steer(tools, tools.calls.reschedule([(check_id(id), due_text(delay, at))]), id)
    return _RESCHEDULED[digit]


def _steer(tools: Tools, call: Call[str], id: str) -> Operation[str]:
    try:
        digit, *_ = yield [call, *tools.confirming]
    except NotReplicatedError as error:
        error.ids = (id,)
        raise
    return str(digit)
