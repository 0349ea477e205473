"""Sends within a transaction of Redis that a program makes itself, with a pipeline of redis-py."""

from __future__ import annotations

from typing import Any

from delayq.broker.context import EngineContext
from delayq.broker.message.same_id import Debounce
from delayq.broker.requests import Outgoing, Replace, ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.sending.send_calls import check_replace, send_call

_UNNUMBERED = ("pipeline.0", "-")
"""Slot and sequence of a call that is no re-run of another: what is stored of the one before is no number."""


def check_pipeline(pipeline: Any) -> None:
    """Raise `ConfigurationError` for what is no transaction of redis-py that takes commands."""
    if not (hasattr(pipeline, "execute_command") and hasattr(pipeline, "command_stack")):
        raise ConfigurationError(
            f"pipeline must be one of redis-py, such as client.pipeline(), not {short_repr(pipeline)}"
        )
    multi = getattr(pipeline, "explicit_transaction", False)
    if getattr(pipeline, "watching", False) and not multi:
        raise ConfigurationError("the pipeline watches keys and executes at once: call its multi() before")
    if not (multi or getattr(pipeline, "transaction", False)):
        raise ConfigurationError("the pipeline is no transaction: make it with transaction=True")


def send_into(
    context: EngineContext, pipeline: Any, message: Outgoing, *, replace: Replace, is_open: bool
) -> Operation[str]:
    """Put a send into a pipeline, as `send_into` of a queue does; opens the queue before."""
    check_pipeline(pipeline)
    if isinstance(check_replace(replace), Debounce):
        raise ConfigurationError("send_into takes no debounce: it needs a reply before it is done")
    call: ScriptCall[Any] = send_call(context, [message], replace=replace)
    if not is_open:
        yield [context.calls.time()]  # type: ignore[attr-defined]  # of a delay queue
    words = ("EVAL", call.script.text, len(call.keys), *call.keys, *_UNNUMBERED, *call.args)
    pipeline.execute_command(*words)  # the text of the script, since within a transaction none can be loaded
    return message.id
