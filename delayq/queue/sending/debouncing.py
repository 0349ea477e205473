"""Debounced sends: of a burst of sends with one id, the last is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.message.same_id import Debounce, check_debounce
from delayq.broker.replies.send_replies import Debounced
from delayq.broker.requests import Outgoing, Replace
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError
from delayq.queue.sending.message_options import OPTIONS
from delayq.queue.sending.send_again import SPENT
from delayq.queue.sending.withdrawal import withdraw
from delayq.values.checks import check_options
from delayq.values.times import Duration


def replacing(options: Mapping[str, Any], due: Duration | datetime) -> Replace:
    """Return what a send with these options replaces; raise `ConfigurationError` if they contradict each other.

    Raises it also for an option that no send has.
    """
    check_options(options, OPTIONS)
    replace: Replace = options.get("replace", False)
    how = check_debounce(options.get("debounce"), options.get("at_most"))
    if how is None:
        return replace
    if replace is not False:
        raise ConfigurationError("give replace or debounce, but not both: debounce replaces what waits")
    if due:
        timed = "at" if isinstance(due, datetime) else "delay"
        raise ConfigurationError(f"give {timed} or debounce, but not both: debounce says when the message is due")
    return how


def send_debounced(context: EngineContext, message: Outgoing, how: Debounce) -> Operation[Debounced]:
    """Send one message of a burst: in one round trip, unless what has its id is claimed and not started, or dies."""
    calls: Any = context.calls
    calls.capabilities.require(Feature.DEBOUNCE)
    send = [calls.debounce(message, how, max_length=context.settings.max_length), *context.confirming]
    sent: Debounced
    sent, *_ = yield send
    if sent.unstarted and (yield from withdraw(context, [message.id])):
        sent, *_ = yield send
    while sent.status == SPENT:
        _, sent, *_ = yield [calls.collect(context.settings, ids=[message.id]), *send]
    return sent
