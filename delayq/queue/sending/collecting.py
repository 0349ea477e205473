"""Sends that are collected: each adds its payload to those of its group, which one message carries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypedDict, cast

from delayq.broker.batches import BATCH, BATCH_BYTES, byte_slices
from delayq.broker.calls import SPENT, Calls, Debounced
from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.message.same_id import Debounce
from delayq.broker.requests import Outgoing, Replace, ScriptCall, flat
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError
from delayq.queue.sending.message_options import replacing
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


def send_collected(context: EngineContext, messages: Sequence[Outgoing], how: Debounce) -> Operation[list[Debounced]]:
    """Add the payloads of messages to their groups; returns what became of each.

    A group whose last message is about to die waits for that.
    """
    context.calls.capabilities.require(Feature.COLLECT)
    found: dict[int, Debounced] = {}
    left: Sequence[int] = range(len(messages))
    dying: list[str] = []
    while left:
        collect = [context.calls.collect(context.settings, ids=dying)] if dying else []
        calls = list(_calls(context, [messages[at] for at in left], how))
        replies = yield [*collect, *calls, *context.confirming]
        statuses = [one for reply in replies[len(collect) : len(collect) + len(calls)] for one in reply]
        found |= dict(zip(left, statuses, strict=True))
        left = [at for at in left if found[at].status == SPENT]
        dying = [*dict.fromkeys(messages[at].id for at in left)][:BATCH]
    return [found[at] for at in range(len(messages))]


def _calls(context: EngineContext, messages: list[Outgoing], how: Debounce) -> Iterator[ScriptCall[list[Debounced]]]:
    calls, settings = cast("Calls", context.calls), context.settings
    max_length, max_payload = settings.max_length, settings.max_payload
    for batch in byte_slices([len(message.payload) for message in messages], BATCH_BYTES, BATCH):
        yield collect_call(calls, messages[batch], how, max_length=max_length, max_payload=max_payload)


def collect_call(
    calls: Calls, messages: Sequence[Outgoing], how: Debounce, *, max_length: int | None, max_payload: int
) -> ScriptCall[list[Debounced]]:
    """Add payloads to their groups. Status: 1 new, 7 added, 6 in the successor, 4 to be collected.

    Each payload is an entry, see `entry_of`. A batch has at most `max_payload` bytes.
    """
    options = (max_length or "0", how.quiet, "" if how.at_most is None else how.at_most, max_payload)
    rows = flat((one.id, one.retries, one.payload, one.headers, one.attributes) for one in messages)
    return calls.script("collect", [calls.now, *options, *rows], _read)


def _read(reply: bytes) -> list[Debounced]:
    return [Debounced.read(one) for one in reply.split(b",")]
