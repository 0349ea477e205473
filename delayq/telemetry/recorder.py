"""The tracer, the metrics and the attributes of one instrumented queue.

Names are those of the semantic conventions for messaging (1.44). A sampler, processor or exporter that fails is logged
once a minute, and the queue goes on without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode

from delayq import __version__
from delayq.safe_log import SafeLog
from delayq.values.times import monotonic

log = SafeLog("delayq.telemetry")

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The buckets that the conventions advise for durations."""
LATE_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 600, 3600)
MAX_LINKS = 128
"""Links of a span: more are dropped by the SDK."""
LOG_EVERY = 60.0
"""Seconds between two log lines about a failing SDK."""
TYPES = {"send": "send", "create": "create", "receive": "receive", "process": "process"}
"""The types of operations; all others settle messages."""

Attributes = dict[str, Any]


def is_real(provider: object) -> bool:
    """Return whether a provider is an SDK, and not one of those with which the API does nothing."""
    return not type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def error_type(error: BaseException) -> str:
    """Return the name of the class of an exception, as `error.type` has it."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class QueueRecorder:
    """Makes the spans and measurements of one queue; safe to use from several threads. No method raises."""

    def __init__(
        self,
        common: Callable[[], Mapping[str, Any]],
        tracer_provider: Any = None,
        meter_provider: Any = None,
        *,
        record_exceptions: bool = True,
    ) -> None:
        """Give each span the attributes that `common` returns, first called in the process that uses them."""
        self._given = (tracer_provider, meter_provider)
        self._common = common
        self._by_operation: dict[str, tuple[Attributes, Attributes]] = {}
        self.record_exceptions = record_exceptions
        self._tracer: Any = None
        self._histograms: dict[str, Any] = {}
        self._counters: dict[str, Any] = {}
        self._log_at = -math.inf
        self.on = False
        """What `is_on` has returned last: each send and each claim asks, so that a callback need not."""

    def attributes_of(self, operation: str) -> tuple[Attributes, Attributes]:
        """Return the attributes of spans and of measurements of an operation; not to be changed."""
        found = self._by_operation.get(operation)
        if found is None:
            own = {"messaging.operation.name": operation, "messaging.operation.type": TYPES.get(operation, "settle")}
            of_spans = {**self._common(), **own}
            measured = {name: value for name, value in of_spans.items() if name != "messaging.client.id"}
            found = self._by_operation[operation] = of_spans, measured
        return found

    def is_on(self) -> bool:
        """Return whether there is an SDK; the program may set it up at any time."""
        if self._tracer is None or not self._histograms:
            try:
                self._find_providers()
            except Exception:  # noqa: BLE001 - whatever a provider raises
                self.log_failure()
            self.on = self._tracer is not None or bool(self._histograms)
        return self.on

    def _find_providers(self) -> None:
        tracers, meters = self._given
        if self._tracer is None:
            tracers = trace.get_tracer_provider() if tracers is None else tracers
            if is_real(tracers):
                self._tracer = tracers.get_tracer("delayq", __version__, schema_url=SCHEMA)
        if not self._histograms:
            meters = metrics.get_meter_provider() if meters is None else meters
            if is_real(meters):
                self._make_instruments(meters.get_meter("delayq", __version__, schema_url=SCHEMA))

    def _make_instruments(self, meter: Any) -> None:
        for name, text in {
            "messaging.client.sent.messages": "Messages that were sent, or were to be",
            "messaging.client.consumed.messages": "Messages that were claimed",
        }.items():
            self._counters[name] = meter.create_counter(name, "{message}", text)
        self._histograms = {
            name: meter.create_histogram(name, "s", text, explicit_bucket_boundaries_advisory=bounds)
            for name, text, bounds in (
                ("messaging.client.operation.duration", "How long sends, claims and settlements took", SECONDS),
                ("messaging.process.duration", "How long callbacks took", SECONDS),
                ("messaging.delayq.lateness", "How late first attempts started after the due time", LATE_SECONDS),
            )
        }

    def log_failure(self) -> None:
        """Log the exception that is being handled, unless another was logged within a minute."""
        if (now := monotonic()) >= self._log_at:
            self._log_at = now + LOG_EVERY
            log.error("OpenTelemetry failed, and the queue goes on without it", exc_info=True)  # noqa: LOG014

    def start(
        self,
        operation: str,
        destination: str,
        kind: SpanKind,
        more: Attributes,
        *,
        context: Context | None = None,
        links: Sequence[trace.Link] = (),
        start_time: int | None = None,
    ) -> Span | None:
        """Start a span; None without an SDK for traces, or if it fails."""
        if self._tracer is None:
            return None
        try:
            span: Span = self._tracer.start_span(
                f"{operation} {destination}",
                context,
                kind,
                {**self.attributes_of(operation)[0], **more},
                links,
                start_time,
                record_exception=False,
                set_status_on_exception=False,
            )
        except Exception:  # noqa: BLE001 - whatever a sampler or processor raises
            self.log_failure()
            return None
        return span

    def end(self, span: Span | None, more: Attributes, error: BaseException | None) -> None:
        """End a span with more attributes; an `error` is its status, and is recorded as an exception."""
        if span is None:
            return
        try:
            if span.is_recording():
                if more:
                    span.set_attributes(more)
                if error is not None:
                    span.set_attribute("error.type", error_type(error))
                    span.set_status(Status(StatusCode.ERROR))
                    if self.record_exceptions:
                        span.record_exception(error)
            span.end()
        except Exception:  # noqa: BLE001 - whatever a processor raises
            self.log_failure()

    def link(self, span: Span | None, contexts: Sequence[SpanContext]) -> None:
        """Link a span to the contexts in which messages were created."""
        if span is not None:
            for context in contexts[:MAX_LINKS]:
                span.add_link(context)

    def measure(self, name: str, operation: str, seconds: float, error: BaseException | None = None) -> None:
        """Record a duration in a histogram, for an operation that ended with an error if it did."""
        if self._histograms:
            self._guarded(self._histograms[name].record, seconds, operation, error)

    def count(self, name: str, operation: str, number: int, error: BaseException | None = None) -> None:
        """Count messages of an operation."""
        if self._histograms:
            self._guarded(self._counters[name].add, number, operation, error)

    def _guarded(self, record: Callable[..., None], value: float, operation: str, error: BaseException | None) -> None:
        try:
            own = self.attributes_of(operation)[1]
            record(value, own if error is None else {**own, "error.type": error_type(error)})
        except Exception:  # noqa: BLE001 - whatever a reader raises
            self.log_failure()
