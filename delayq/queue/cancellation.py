"""Cancelling and rescheduling messages, with an exact outcome."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import partial

from delayq.broker.context import QueueContext
from delayq.broker.keys import check_id
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.errors import NotReplicatedError
from delayq.queue.producer import due_text
from delayq.queue.withdrawal import withdraw
from delayq.times import Duration


class CancelOutcome(StrEnum):
    """What `cancel` did, or why it did nothing."""

    CANCELLED = "cancelled"
    RUNNING = "running"
    DEAD = "dead"
    SUCCESSOR = "successor"
    """The message is running, or about to be dead; what waited to follow it is cancelled."""
    GONE = "gone"


class RescheduleOutcome(StrEnum):
    """What `reschedule` did, or why it did nothing."""

    RESCHEDULED = "rescheduled"
    RUNNING = "running"
    DEAD = "dead"
    GONE = "gone"


_LEASED = "2"
"""The status of a message that a consumer has leased, whether its callback has started or not."""
_CANCELLED_ALL = "1"
_SUCCESSOR = "4"
"""The status of a message that is leased, or about to be dead, and whose successor was cancelled."""
_CANCELLED = dict(zip("12340", CancelOutcome, strict=True))
_RESCHEDULED = dict(zip("1230", RescheduleOutcome, strict=True))


def cancel(context: QueueContext, id: str) -> Operation[CancelOutcome]:
    """Cancel a message unless it is being processed, and what waits to follow it."""
    call = partial(context.calls.cancel, [check_id(id)])
    return _CANCELLED[(yield from _status(context, call, id))]


def reschedule(
    context: QueueContext, id: str, delay: Duration | None, at: datetime | None
) -> Operation[RescheduleOutcome]:
    """Set a new due time for a message unless it is being processed."""
    call = partial(context.calls.reschedule, [(check_id(id), due_text(delay, at))])
    return _RESCHEDULED[(yield from _status(context, call, id))]


def _status(context: QueueContext, call: Callable[[], ScriptCall[str]], id: str) -> Operation[str]:
    try:
        status, *_ = yield [call(), *context.confirming]
        if status in (_LEASED, _SUCCESSOR) and (yield from withdraw(context, [id])):
            again, *_ = yield [call(), *context.confirming]
            status = status if status == _SUCCESSOR and again != _CANCELLED_ALL else again
    except NotReplicatedError as error:
        error.ids = (id,)
        raise
    return str(status)
