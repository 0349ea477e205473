"""Cancelling, killing and rescheduling messages, with an exact outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial

from delayq.broker.context import QueueContext
from delayq.broker.keys import check_stored_id
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.errors import NotReplicatedError
from delayq.queue.inspecting.inspector import Inspector
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.queue.sending.due_times import due_text
from delayq.queue.sending.withdrawal import withdraw
from delayq.queue.sweeps.whole_calls import every_status
from delayq.values.checks import check_bool
from delayq.values.times import Duration
from delayq.worker.delivery.attempt_log import log_killed, tells_kills


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
    WITHDRAWN = "withdrawn"
    """It is not in Redis. If it is in the cold tier of the queue, it does not come back."""


class KillOutcome(StrEnum):
    """What `kill` did, or why it did nothing."""

    KILLED = "killed"
    RUNNING = "running"
    DEAD = "dead"
    """It is in the dead letter already, or about to be."""
    GONE = "gone"


class RescheduleOutcome(StrEnum):
    """What `reschedule` did, or why it did nothing."""

    RESCHEDULED = "rescheduled"
    RUNNING = "running"
    DEAD = "dead"
    GONE = "gone"
    NOTED = "noted"
    """It is not in Redis. If it is in the cold tier of the queue, it comes back in time, with the new due time."""


_LEASED = "2"
"""The status of a message that a consumer has leased, whether its callback has started or not."""
_CANCELLED_ALL = "1"
_STOPPING = "5"
_SUCCESSOR = "4"
"""The status of a message that is leased, or about to be dead, and whose successor was cancelled."""
_CANCELLED = dict(zip("1253406", CancelOutcome, strict=True))
_KILLED = dict(zip("1230", KillOutcome, strict=True))
_RESCHEDULED = dict(zip("12304", RescheduleOutcome, strict=True))


def cancel(context: QueueContext, id: str, *, running: bool = False) -> Operation[CancelOutcome]:
    """Cancel a message and what waits to follow it; one that is `running` is asked to stop, or left alone."""
    (outcome,) = yield from cancel_each(context, [check_stored_id(id)], running=check_bool(running, "running"))
    return outcome


def kill(context: QueueContext, id: str) -> Operation[KillOutcome]:
    """Move a message that waits to the dead letter."""
    (outcome,) = yield from _kill(context, [check_stored_id(id)])
    if outcome is KillOutcome.KILLED and tells_kills():
        found = yield from Inspector(context).get(id)
        log_killed(id, found.name if found else "", context.queue)
    return outcome


def reschedule(
    context: QueueContext, id: str, delay: Duration | None, at: datetime | None
) -> Operation[RescheduleOutcome]:
    """Set a new due time for a message unless it is being processed."""
    (outcome,) = yield from reschedule_each(context, [check_stored_id(id)], due_text(delay, at))
    return outcome


def cancel_each(context: QueueContext, ids: Sequence[str], *, running: bool) -> Operation[list[CancelOutcome]]:
    """Do as `cancel` with up to `MAX_IDS` messages."""
    stop = partial(context.calls.cancel, stop=True) if running else None
    statuses = yield from _statuses(context, context.calls.cancel, ids, stop)
    return [_CANCELLED[status] for status in statuses]


def cancel_waiting(context: QueueContext, ids: Sequence[str]) -> Operation[str]:
    """Cancel up to `MAX_IDS` messages in one call; a status each, as the script returns it.

    What a worker has claimed before it is due counts as running: nobody is asked to give it back.
    """
    statuses, *_ = yield [context.calls.cancel(ids), *context.confirming]
    return statuses  # type: ignore[no-any-return]  # those of a script


def kill_each(context: QueueContext, messages: Sequence[MessageInfo]) -> Operation[list[KillOutcome]]:
    """Do as `kill` with up to `MAX_IDS` messages."""
    outcomes = yield from _kill(context, [message.id for message in messages])
    if tells_kills():
        for message, outcome in zip(messages, outcomes, strict=True):
            if outcome is KillOutcome.KILLED:
                log_killed(message.id, message.name, context.queue)
    return outcomes


def _kill(context: QueueContext, ids: Sequence[str]) -> Operation[list[KillOutcome]]:
    statuses = yield from _statuses(context, context.calls.kill, ids)
    return [_KILLED[status] for status in statuses]


def reschedule_each(context: QueueContext, ids: Sequence[str], due: str | int) -> Operation[list[RescheduleOutcome]]:
    """Do as `reschedule` with up to `MAX_IDS` messages; see `due_text`."""
    statuses = yield from _statuses(context, lambda some: context.calls.reschedule([(id, due) for id in some]), ids)
    return [_RESCHEDULED[status] for status in statuses]


def _statuses(
    context: QueueContext,
    call: Callable[[Sequence[str]], ScriptCall[str]],
    ids: Sequence[str],
    stop: Callable[[Sequence[str]], ScriptCall[str]] | None = None,
) -> Operation[list[str]]:
    """Call a script for messages, again for those that their consumers return, and `stop` for those they do not."""

    def each(some: Sequence[str], _: str) -> ScriptCall[str]:
        return call(some)

    try:
        statuses = dict(zip(ids, (yield from every_status(context, each, ids)), strict=True))
        held = [id for id in ids if statuses[id] in (_LEASED, _SUCCESSOR)]
        free = (yield from withdraw(context, held)) if held else []
        if free:
            again = yield from every_status(context, each, free)
            statuses |= {id: one for id, one in zip(free, again, strict=True) if _tells_more(statuses[id], one)}
        held = [id for id in held if statuses[id] in (_LEASED, _SUCCESSOR)] if stop is not None else []
        if stop is not None and held:
            again = yield from every_status(context, lambda some, _: stop(some), held)
            told = (_CANCELLED_ALL, _STOPPING)
            statuses |= {id: one for id, one in zip(held, again, strict=True) if _tells_more(statuses[id], one, told)}
    except NotReplicatedError as error:
        error.ids = tuple(ids)
        raise
    return [statuses[id] for id in ids]


def _tells_more(before: str, status: str, told: Sequence[str] = (_CANCELLED_ALL,)) -> bool:
    """Return whether a status replaces the one before: that a successor was cancelled is only told once."""
    return before != _SUCCESSOR or status in told
