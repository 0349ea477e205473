"""Superseded messages: of the due ones with one id prefix, only the latest starts.

Right before claimed messages with the attribute `latest` would start, one more call asks Redis about them. What is
superseded is then missed, as what has expired is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from delayq.broker.batches import batched
from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.scripts import MAX_MOVED
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery


def may_be_superseded(context: EngineContext, deliveries: Iterable[InFlightDelivery]) -> list[InFlightDelivery]:
    """Return the deliveries about which Redis is to be asked."""
    found = [one for one in deliveries if one.attributes.latest]
    return found if found and context.calls.capabilities.has(Feature.AFTER_OUTAGE) else []


def ask(context: EngineContext, deliveries: Iterable[InFlightDelivery]) -> list[Any]:
    """Return the calls that ask which of these are superseded."""
    messages = [(one.claimed.id, one.claimed.due) for one in deliveries]
    return [context.calls.superseded(part) for part in batched(messages, MAX_MOVED)]


def note_superseded(deliveries: Sequence[InFlightDelivery], replies: Iterable[Any]) -> list[InFlightDelivery]:
    """Note what Redis has replied; returns those about which it is not known: they must not start."""
    unknown: list[InFlightDelivery] = []
    for part, reply in zip(batched(deliveries, MAX_MOVED), replies, strict=True):
        for delivery, status in zip(part, reply if isinstance(reply, str) else "2" * len(part), strict=True):
            delivery.superseded = status == "1"
            if status == "2":
                unknown.append(delivery)
    return unknown
