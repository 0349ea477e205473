"""The calls of a send, and what is sent again: what is claimed and not started, and what is about to die."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.broker.batches import BATCH, batched
from delayq.broker.calls import SPENT, Placing, SendStatuses
from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.message.same_id import Debounce
from delayq.broker.requests import Messages, Outgoing, Replace, ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.sending.withdrawal import withdraw

NOT_REPLACED = "3"
"""The status of a message that a consumer has leased, started or not; see `replace_unstarted`."""
EXISTS = "0"
AFTER = "6"
"""The status of a successor, which waits beside a leased message, started or not; see `replace_unstarted`."""


def check_replace(replace: Any) -> Replace:
    """Return what a send is to replace; raise `ConfigurationError` for anything else."""
    if replace is True or replace is False or replace == "after" or isinstance(replace, Debounce):
        return replace  # type: ignore[no-any-return]  # compared with what it may be
    raise ConfigurationError(f"replace must be True, False or 'after', not {short_repr(replace)}")


def send_call(
    context: EngineContext, messages: Messages, *, replace: Replace, run: str = ""
) -> ScriptCall[SendStatuses]:
    """Return the call that sends messages; raise `ConfigurationError` for options that the engine lacks."""
    options: dict[str, Any] = {}
    if replace:
        context.calls.capabilities.require(Feature.REPLACE if replace is True else Feature.SUCCESSORS)
        options["replace"] = replace
    if run:
        context.calls.capabilities.require(Feature.RUNS)
        options["run"] = run
    return context.calls.send(messages, max_length=context.settings.max_length, **options)


def replace_unstarted(
    context: EngineContext, messages: Sequence[Any], statuses: str, times: list[Placing]
) -> Operation[tuple[str, list[Placing]]]:
    """Replace those `NOT_REPLACED` that have not started; returns the statuses and times of all messages.

    A successor moves up, unless it has taken its place meanwhile.
    """
    running = {messages[index].id: index for index, status in enumerate(statuses) if status in (NOT_REPLACED, AFTER)}
    free = yield from withdraw(context, [*running])
    changed, times = list(statuses), list(times)
    replace: Replace = "moved up" if AFTER in statuses else True
    for ids in batched(free, BATCH):
        call = send_call(context, [messages[running[id]] for id in ids], replace=replace)
        replies, *_ = yield [call, *context.confirming]
        for id, status, placing in zip(ids, replies, replies.placings, strict=True):
            if replace is True or status != EXISTS:
                changed[running[id]], times[running[id]] = status, placing
    return "".join(changed), times


def send_spent(
    context: EngineContext,
    messages: Sequence[Any],
    statuses: str,
    times: list[Placing],
    *,
    replace: Replace,
    run: str = "",
) -> Operation[tuple[str, list[Placing]]]:
    """Move the messages with the status `SPENT` to the dead letter, then send the new ones.

    Returns the statuses and times of all messages; a time is the server's, from which a delay counts.
    """
    spent = [index for index, status in enumerate(statuses) if status == SPENT]
    changed, times = list(statuses), list(times)
    for batch in batched(spent, BATCH):
        indexes = batch
        while indexes:
            again: list[Outgoing] = [messages[index] for index in indexes]
            collect = context.calls.collect(context.settings, ids=[message.id for message in again])
            call = send_call(context, again, replace=replace, run=run)
            moved, new, *_ = yield [collect, call, *context.confirming]
            for index, status, placing in zip(indexes, new, new.placings, strict=True):
                changed[index], times[index] = status, placing
            indexes = [index for index in indexes if changed[index] == SPENT]
            while indexes and moved.collected:  # one call moves a limited number of bytes
                (moved,) = yield [collect]
    return "".join(changed), times
