"""Keeps what callbacks return, for messages with retention."""

from __future__ import annotations

from delayq.broker.context import EngineContext
from delayq.broker.results import Ending
from delayq.safe_log import SafeLog
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery, log_label

log = SafeLog("delayq.consumer")


def keep_result(delivery: InFlightDelivery, value: object, context: EngineContext) -> None:
    """Encode what a callback returned if its message has retention; one that cannot be is logged."""
    if not delivery.attributes.retention:
        return
    try:
        delivery.result = context.results.pack(value, delivery.attributes)
    except BaseException as error:  # noqa: BLE001 - a user's codec or class may raise anything
        delivery.result = Ending.UNKEPT, f"result cannot be encoded: {type(error).__name__}", b""
    if delivery.result[0] == Ending.UNKEPT:
        name, fields = log_label([delivery])
        log.warning("%s is done, but its result is not kept: %s", name, delivery.result[1], extra=fields)
