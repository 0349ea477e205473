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
from delayq.checks import check_bool
from delayq.errors import NotReplicatedError
from delayq.queue.producer import due_text
from delayq.queue.withdrawal import withdraw
from delayq.times import Duration


class CancelOutcome(StrEnum):
    """What `cancel` did, or why it did nothing."""

    CANCELLED = "cancelled"
    RUNNING = "running"
    STOPPING = "stopping"
    """The message is running, and is asked to stop: if it does not succeed, it is cancelled."""
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
_STOPPING = "5"
_SUCCESSOR = "4"
"""The status of a message that is leased, or about to be dead, and whose successor was cancelled."""
_CANCELLED = dict(zip("125340", CancelOutcome, strict=True))
_RESCHEDULED = dict(zip("1230", RescheduleOutcome, strict=True))


def cancel(context: QueueContext, id: str, *, running: bool = False) -> Operation[CancelOutcome]:
    """Cancel a message and what waits to follow it; one that is `running` is asked to stop, or left alone."""
    call = partial(context.calls.cancel, [check_id(id)])
    stop = partial(context.calls.cancel, [id], stop=True) if check_bool(running, "running") else None
    return _CANCELLED[(yield from _status(context, call, id, stop))]


def reschedule(
    context: QueueContext, id: str, delay: Duration | None, at: datetime | None
) -> Operation[RescheduleOutcome]:
    """Set a new due time for a message unless it is being processed."""
    call = partial(context.calls.reschedule, [(check_id(id), due_text(delay, at))])
    return _RESCHEDULED[(yield from _status(context, call, id))]


def _status(
    context: QueueContext,
    call: Callable[[], ScriptCall[str]],
    id: str,
    stop: Callable[[], ScriptCall[str]] | None = None,
) -> Operation[str]:
    try:
        status, *_ = yield [call(), *context.confirming]
        if status in (_LEASED, _SUCCESSOR) and (yield from withdraw(context, [id])):
            again, *_ = yield [call(), *context.confirming]
            status = status if status == _SUCCESSOR and again != _CANCELLED_ALL else again
        if stop is not None and status in (_LEASED, _SUCCESSOR):
            again, *_ = yield [stop(), *context.confirming]
            status = status if status == _SUCCESSOR and again not in (_CANCELLED_ALL, _STOPPING) else again
    except NotReplicatedError as error:
        error.ids = (id,)
        raise
    return str(status)
