"""Settles some of the payloads that a message has collected, while its callback goes on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from delayq.broker.calls import Calls
from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.message.collected import entries_in, joined
from delayq.broker.replies import statuses
from delayq.broker.requests import Receipt, ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery


def ack_some(delivery: InFlightDelivery, context: EngineContext, indexes: Any) -> Operation[bool | None]:
    """Settle payloads by their indexes; returns whether this is stored, None if none remains.

    Raises `ConfigurationError` for indexes that there are not, and for a message that was not sent with `collect`.
    """
    context.calls.capabilities.require(Feature.COLLECT)
    if not delivery.attributes.collect:
        raise ConfigurationError("ack_some is for messages that were sent with collect: this one has a single payload")
    stored = delivery.claimed.payload
    entries = entries_in(stored)
    done = delivery.done | _checked(indexes, len(entries))
    if len(done) == len(entries):
        return None
    rest = joined([entry for at, entry in enumerate(entries) if at not in done], is_json=stored.startswith(b"["))
    (reply,) = yield [ack_some_call(cast("Calls", context.calls), delivery.receipt, rest)]
    if reply == "1":
        delivery.done = done
    return bool(reply == "1")


def ack_some_call(calls: Calls, receipt: Receipt, payload: bytes) -> ScriptCall[str]:
    """Leave this payload to a leased message. Status: 1 done, 0 not leased."""
    return calls.script("ack_some", [calls.now, *receipt, payload], statuses)


def _checked(indexes: Any, size: int) -> frozenset[int]:
    found: list[Any] = (
        list(indexes) if isinstance(indexes, Iterable) and not isinstance(indexes, str | bytes) else [None]
    )
    if not all(type(at) is int and 0 <= at < size for at in found):
        text = f"ack_some takes the indexes of payloads, such as [0, 2], from 0 to {size - 1}"
        raise ConfigurationError(f"{text}, not {short_repr(indexes)}")
    return frozenset(found)
