"""What a drain delivered, one value a delivery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import msgspec

from delayq.clock import moment
from delayq.message import Holding
from delayq.verdict import Completion, Verdict

Outcome = Literal["acked", "discarded", "nacked", "dead", "rejected", "settled", "crashed"]

_OUTCOMES: dict[Verdict, Outcome] = {
    Verdict.ACK: "acked",
    Verdict.DISCARD: "discarded",
    Verdict.NACK: "nacked",
    Verdict.REJECT: "rejected",
}
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True)
class Delivered:
    """One delivery of a drain: what the callback was given, when, and what became of it."""

    queue: str
    """The name of the queue."""
    id: str
    payload: Any
    """The decoded payload; the bytes of one that is undecodable."""
    outcome: Outcome
    """`acked`, `discarded`, `nacked` (it comes again), `dead` (its retries are spent), `rejected`, `settled` (by hand)
    or `crashed`."""
    attempt: int
    due: datetime
    at: datetime
    """When the callback was called, by the clock."""
    headers: dict[str, str] = field(repr=False)
    error: str
    """The reason or error that the queue keeps, '' for none."""


def told(
    queue: str, holding: Holding, decode: Callable[[bytes], Any], at: datetime, end: Completion | Literal["crashed"]
) -> Delivered:
    """Return a delivery as it is told of, by how its callback ended."""
    delivery = holding.delivery
    try:
        payload = decode(delivery.payload)
    except Exception:  # noqa: BLE001 - a user's codec may raise anything
        payload = delivery.payload
    outcome, error = _ended(holding, end)
    return Delivered(
        queue=queue,
        id=delivery.id,
        payload=payload,
        outcome=outcome,
        attempt=delivery.attempt,
        due=moment(delivery.due),
        at=at,
        headers=_decode_headers(delivery.headers) if delivery.headers else {},
        error=error,
    )


def _ended(holding: Holding, end: Completion | Literal["crashed"]) -> tuple[Outcome, str]:
    if end == "crashed":
        return end, ""
    if holding.settled or end.verdict not in _OUTCOMES:
        return "settled", ""
    outcome = _OUTCOMES[end.verdict]
    return "dead" if outcome == "nacked" and holding.delivery.retries_left == 0 else outcome, end.text
