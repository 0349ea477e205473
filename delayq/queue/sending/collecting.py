"""Sends of which only the last of a burst counts, and those that are collected: one message carries all of a group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict, cast

from delayq.broker.batches import BATCH, BATCH_BYTES, byte_slices
from delayq.broker.calls import SPENT, Calls, Debounced
from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.message.same_id import Debounce
from delayq.broker.requests import Outgoing, Replace, ScriptCall, flat
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError
from delayq.queue.sending.due_times import debounced_in_hours
from delayq.queue.sending.message_options import replacing
from delayq.queue.sending.withdrawal import withdraw
from delayq.values.checks import check_options
from delayq.values.times import Duration


class CollectOptions(TypedDict, total=False):
    """The options of a send of many that are collected, each by its id; see `SendOptions`."""

    debounce: Duration
    """How long after the last payload of its group a message is due."""
    at_most: Duration | None
    """How long after the first payload it is due at the latest; no limit by default."""
    collect: int
    """How many payloads a message carries at most."""


def collecting(options: CollectOptions, *, replace: Replace, run: str | None, delay: Duration) -> Replace:
    """Return what a send of many does with its ids: it collects; raise `ConfigurationError` for a contradiction."""
    check_options(options, CollectOptions.__annotations__)
    how = replacing({**options, "replace": replace}, delay)
    if not isinstance(how, Debounce) or not how.collect:
        raise ConfigurationError("debounce is an option of a single send: of many, it goes with collect")
    if run is not None:
        raise ConfigurationError("give run or collect, but not both: a run counts messages, not what they carry")
    return how


def send_debounced(context: EngineContext, message: Outgoing, how: Debounce) -> Operation[Debounced]:
    """Send one message of a burst: in one round trip, unless what has its id is claimed and not started, or dies."""
    calls: Any = context.calls
    calls.capabilities.require(Feature.DEBOUNCE)
    how = debounced_in_hours(context, how, message.attributes)
    if how.collect:
        return (yield from send_collected(context, [message], how))[0]
    send = [calls.debounce(message, how, max_length=context.settings.max_length), *context.confirming]
    sent: Debounced
    sent, *_ = yield send
    if sent.unstarted and (yield from withdraw(context, [message.id])):
        sent, *_ = yield send
    while sent.status == SPENT:
        _, sent, *_ = yield [calls.collect(context.settings, ids=[message.id]), *send]
    return sent


def send_collected(context: EngineContext, messages: Sequence[Outgoing], how: Debounce) -> Operation[list[Debounced]]:
    """Add the payloads of messages to their groups; returns what became of each."""
    context.calls.capabilities.require(Feature.COLLECT)
    calls = list(_calls(context, messages, how))
    replies = yield [*calls, *context.confirming]
    return [one for reply in replies[: len(calls)] for one in reply]


def _calls(
    context: EngineContext, messages: Sequence[Outgoing], how: Debounce
) -> Iterator[ScriptCall[list[Debounced]]]:
    calls, settings = cast("Calls", context.calls), context.settings
    max_length, max_payload = settings.max_length, settings.max_payload
    for batch in byte_slices([len(message.payload) for message in messages], BATCH_BYTES, BATCH):
        yield collect_call(calls, messages[batch], how, max_length=max_length, max_payload=max_payload)


def collect_call(
    calls: Calls, messages: Sequence[Outgoing], how: Debounce, *, max_length: int | None, max_payload: int
) -> ScriptCall[list[Debounced]]:
    """Add payloads to their groups. Status: 1 new, 7 added, 6 in the successor.

    Each payload is an entry, see `entry_of`. A batch has at most `max_payload` bytes.
    """
    options = (max_length or "0", how.quiet, "" if how.at_most is None else how.at_most, max_payload)
    rows = flat((one.id, one.retries, one.payload, one.headers, one.attributes) for one in messages)
    return calls.script("collect", [calls.now, *options, *rows], _read)


def _read(reply: bytes) -> list[Debounced]:
    return [Debounced.read(one) for one in reply.split(b",")]
