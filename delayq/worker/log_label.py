"""How log messages name the deliveries of a callback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.worker.in_flight_delivery import InFlightDelivery


def log_label(deliveries: Sequence[InFlightDelivery]) -> tuple[str, dict[str, Any]]:
    """Return how log messages name the deliveries of one callback, and the fields of the log record."""
    batch = deliveries[0].batch
    queue = batch.queue if batch is not None else ""
    where, fields = (f"{queue}: ", {"queue": queue}) if queue else ("", {})
    if len(deliveries) > 1:
        ids = [delivery.claimed.id for delivery in deliveries]
        return f"{where}batch of {len(deliveries)} messages", {**fields, "ids": ids}
    id, attempt = deliveries[0].claimed.id, deliveries[0].claimed.attempt
    return f"{where}message {id}", {**fields, "id": id, "attempt": attempt}
