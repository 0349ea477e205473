"""How log messages name the deliveries of a callback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.worker.delivery.in_flight_delivery import InFlightDelivery


def log_label(deliveries: Sequence[InFlightDelivery], queue: str = "") -> tuple[str, dict[str, Any]]:
    """Return how log messages name the deliveries of one callback, and the fields of the log record."""
    first, batch = deliveries[0], deliveries[0].batch
    queue = queue or ("" if batch is None else batch.queue)
    if len(deliveries) > 1:
        label, fields = label_of("", "", queue)
        ids = [delivery.claimed.id for delivery in deliveries]
        return f"{label.removesuffix('message ')}batch of {len(deliveries)} messages", {"queue": queue, "ids": ids}
    label, fields = label_of(first.claimed.id, first.attributes.name, queue)
    return label, {**fields, "attempt": first.claimed.attempt}


def label_of(id: str, name: str, queue: str) -> tuple[str, dict[str, Any]]:
    """Return how log messages name a message, by the name of its task if it has one, and the fields of the record.

    A record has a `name` of its own, that of the logger.
    """
    where = f"{queue}: " if queue else ""
    return f"{where}{name or 'message'} {id}", {"queue": queue, "id": id, "message_name": name}
