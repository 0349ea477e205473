"""`instrument`: spans and metrics for queues."""

from __future__ import annotations

from functools import partial
from typing import Any

from opentelemetry import metrics, trace

from delayq.errors import ConfigurationError, short_repr
from delayq.queue.base import QueueBase
from delayq.queue.sending.observed_sends import observe_sends
from delayq.telemetry.observed_calls import CallSpans
from delayq.telemetry.process_spans import ProcessSpans
from delayq.telemetry.recorder import QueueRecorder, is_real
from delayq.telemetry.traced_sends import TracedSends
from delayq.values.checks import check_bool


def instrument(
    *queues: Any,
    tracer_provider: Any = None,
    meter_provider: Any = None,
    create_spans: bool = False,
    record_exceptions: bool = True,
) -> None:
    """Record spans and metrics of these queues with OpenTelemetry: of sends, claims, callbacks and settlements.

    Takes delay queues and stream queues, also those for asyncio. Call it before they send or consume; a second call for
    a queue changes nothing. The providers are the global ones unless given. With `create_spans`, each message of
    `send_many` gets a span of its own. Without `record_exceptions`, spans have the class of an exception but not its
    text, which may be private. Raises `ConfigurationError` for anything else, or for a queue that is being consumed.
    """
    check_bool(create_spans, "create_spans")
    check_bool(record_exceptions, "record_exceptions")
    for queue in queues:
        if not isinstance(queue, QueueBase):
            raise ConfigurationError(f"instrument takes delay queues and stream queues, not {short_repr(queue)}")
        running: Any = getattr(queue, "_consuming", None)
        if running is not None and running.running:
            raise ConfigurationError(f"queue {queue.name} is being consumed: instrument it before")
    providers: Any = {"tracer_provider": tracer_provider, "meter_provider": meter_provider}
    for queue in queues:
        if queue.telemetry is None:
            queue.telemetry = partial(_observe, record_exceptions=record_exceptions, **providers)
            observe_sends(queue, TracedSends(queue.telemetry(queue), queue.name, create_spans=create_spans))


def has_sdk() -> bool:
    """Return whether the program has set up an SDK of OpenTelemetry, for traces or metrics."""
    return is_real(trace.get_tracer_provider()) or is_real(metrics.get_meter_provider())


def _observe(queue: Any, **options: Any) -> QueueRecorder:
    """Record the claims, callbacks and settlements of a queue."""
    recorder = QueueRecorder(partial(_attributes_of, queue), **options)
    queue.context.observe(CallSpans(recorder, queue.name))
    queue.handlers.around = ProcessSpans(recorder, queue.name, awaits=queue.awaits).around
    return recorder


def _attributes_of(queue: Any) -> dict[str, Any]:
    """Return the attributes that all spans of a queue have."""
    address, port = ("", None) if queue.is_embedded else queue.executor.address
    found = {
        "messaging.system": "delayq",
        "messaging.destination.name": queue.name,
        "messaging.client.id": queue.executor.consumer_id,
    }
    if address:
        found["server.address"] = address
    if address and port is not None:
        found["server.port"] = port
    if group := getattr(queue, "group", ""):
        found["messaging.consumer.group.name"] = group
    return found
