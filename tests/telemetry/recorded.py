"""What an SDK in memory has recorded."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Recorded:
    """An SDK of one test: pass its `providers` to `instrument`."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.traces = TracerProvider(shutdown_on_exit=False, **options)
        self.traces.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.providers: Any = {"tracer_provider": self.traces, "meter_provider": self.meters}

    def spans(self, operation: str = "") -> list[ReadableSpan]:
        """Return the spans that have ended, in their order; with an operation, those of it."""
        ended = self._exporter.get_finished_spans()
        return [one for one in ended if not operation or one.name.startswith(f"{operation} ")]

    def points(self) -> dict[str, dict[tuple[str, str], float]]:
        """Return counts and values by metric, and by operation and error."""
        found: dict[str, dict[tuple[str, str], float]] = {}
        data: Any = self._reader.get_metrics_data()
        for metric in [one for part in data.resource_metrics for scope in part.scope_metrics for one in scope.metrics]:
            for point in metric.data.data_points:
                where = point.attributes["messaging.operation.name"], point.attributes.get("error.type", "")
                found.setdefault(metric.name, {})[where] = getattr(point, "count", None) or point.value
        return found

    def everything(self) -> str:
        """Return all that was recorded, as text."""
        return "".join(one.to_json() for one in self.spans()) + self._reader.get_metrics_data().to_json()


def linked(span: ReadableSpan) -> list[int]:
    """Return the ids of the spans to which a span is linked."""
    return [link.context.span_id for link in span.links]
