"""The deliveries of a drain, as values that a test can check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from delayq.broker.message.attributes import Attributes
from delayq.broker.message.collected import decode_collected
from delayq.values.codec import decode_headers
from delayq.values.times import from_millis
from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery

Outcome = Literal["acked", "discarded", "nacked", "snoozed", "dead", "rejected", "settled", "crashed"]

End = Completion | Literal["crashed"]
"""How a callback ended."""
_OUTCOMES: dict[Disposition, Outcome] = {
    Disposition.ACK: "acked",
    Disposition.DISCARD: "discarded",
    Disposition.DROP: "discarded",
    Disposition.JOIN: "acked",
    Disposition.NACK: "nacked",
    Disposition.REJECT: "rejected",
    Disposition.RELEASE: "snoozed",
    Disposition.STOP: "snoozed",
    Disposition.SNOOZE: "snoozed",
    Disposition.LEAVE: "snoozed",
}


@dataclass(frozen=True, slots=True)
class Delivered:
    """One delivery of a drain: what the callback received, when, and how it ended."""

    queue: str
    id: str
    payload: Any
    """The decoded payload; the bytes of one that is undecodable."""
    outcome: Outcome
    """`acked`, `discarded`, `nacked` (to be retried), `snoozed`, `dead` (no retries left), `rejected`, `settled` (by
    hand) or `crashed`."""
    attempt: int
    due: datetime
    at: datetime
    """When the callback was called, by the test's clock."""
    headers: dict[str, str] = field(repr=False)
    name: str
    """The name it was sent with, '' for none."""
    error: str
    """The reason or error that the queue stores, '' for none."""


def describe_delivery(
    queue: str, delivery: InFlightDelivery, decode: Callable[[bytes], Any], at: datetime, end: End
) -> Delivered:
    """Return a delivery as a value, given how its callback ended."""
    claimed = delivery.claimed
    try:
        is_single = not Attributes.of(claimed.attributes).collect
        payload = decode(claimed.payload) if is_single else decode_collected(claimed.payload, decode)
    except Exception:  # noqa: BLE001 - a user's codec may raise anything
        payload = claimed.payload
    outcome, error = _outcome_of(delivery, end)
    return Delivered(
        queue=queue,
        id=claimed.id,
        payload=payload,
        outcome=outcome,
        attempt=claimed.attempt,
        due=from_millis(claimed.due),
        at=at,
        headers=decode_headers(claimed.headers) if claimed.headers else {},
        name=Attributes.of(claimed.attributes).name,
        error=error,
    )


def _outcome_of(delivery: InFlightDelivery, end: End) -> tuple[Outcome, str]:
    if end == "crashed":
        return end, ""
    if delivery.settled or end.disposition not in _OUTCOMES:
        return "settled", ""
    outcome = _OUTCOMES[end.disposition]
    return "dead" if outcome == "nacked" and delivery.claimed.retries_left == 0 else outcome, end.text
