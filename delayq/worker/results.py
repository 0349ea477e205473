"""Keeps what callbacks return, for messages with retention."""

from __future__ import annotations

import logging

from delayq.broker.context import EngineContext
from delayq.broker.results import Ending
from delayq.worker.in_flight_delivery import InFlightDelivery
from delayq.worker.log_label import log_label

log = logging.getLogger("delayq.consumer")


def keep_result(delivery: InFlightDelivery, value: object, context: EngineContext) -> None:
    """Encode what a callback returned if its message has retention; one that cannot be is logged."""
    if not delivery.attributes.retention:
        return
    delivery.result = context.results.pack(value, delivery.attributes)
    if delivery.result[0] == Ending.UNKEPT:
        name, fields = log_label([delivery])
        log.warning("%s is done, but its result is not kept: %s", name, delivery.result[1], extra=fields)
