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
    GONE = "gone"


class RescheduleOutcome(StrEnum):
    """What `reschedule` did, or why it did nothing."""

    RESCHEDULED = "rescheduled"
    RUNNING = "running"
    DEAD = "dead"
    GONE = "gone"


_LEASED = "2"
"""The status of a message that a consumer has leased, whether its callback has started or not."""
_CANCELLED = dict(zip("1230", CancelOutcome, strict=True))
_RESCHEDULED = dict(zip("1230", RescheduleOutcome, strict=True))


def cancel(context: QueueContext, id: str) -> Operation[CancelOutcome]:
    """Cancel a message unless it is being processed."""
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
        if status == _LEASED and (yield from withdraw(context, [id])):
            status, *_ = yield [call(), *context.confirming]
    except NotReplicatedError as error:
        error.ids = (id,)
        raise
    return str(status)
