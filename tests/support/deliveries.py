"""Messages as an adapter gets them, without a queue."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec

from delayq.broker.message.attributes import NONE
from delayq.broker.replies import ClaimedMessage
from delayq.values.codec import find_codec
from delayq.values.times import timestamp
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.delivery.message import Message

DUE = datetime(2027, 1, 31, 9, 0, tzinfo=UTC)


def delivered(
    payload: Any,
    *,
    id: str = "m1",
    attempt: int = 1,
    due: datetime = DUE,
    headers: dict[str, str] | None = None,
    codec: str = "json",
) -> Message[Any]:
    """Return a delivered message with a payload that a codec stores."""
    stored = find_codec(codec, None).encode(payload)
    told = msgspec.json.encode(headers) if headers else b""
    delivery = ClaimedMessage(id, 7, stored, 3, timestamp(due), attempt, told)
    context: Any = SimpleNamespace(decode=find_codec(codec, None).decode)
    return Message(InFlightDelivery(delivery, 0.0, 0, 30.0, NONE), context, None, 0.0)
