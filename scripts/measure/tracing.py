"""The cost of telemetry: consuming with empty callbacks by an instrumented queue, compared with one that is not.

Without an SDK, the API of OpenTelemetry records nothing. With one, every span is kept in memory; most of that time is
the SDK's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from delayq import DelayQueue
from delayq.telemetry import instrument
from measure.bench_server import QUEUE, TEXT, BenchServer
from measure.consuming import burst, in_threads
from measure.figure import Figure, Measurement, Reading, at_least


def _consume(server: BenchServer, n: int, **providers: Any) -> float:
    """Return the messages per second of an instrumented queue."""
    server.empty()
    with DelayQueue(QUEUE, url=server.url, concurrency=10) as queue:
        queue.send_many([TEXT] * n)
        instrument(queue, **providers)
        queue.callback(lambda _: None)
        return burst(queue, n)


def _recorded(server: BenchServer, n: int) -> float:
    """Return the same with an SDK that records every message; check that it did."""
    exporter = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    rate = _consume(server, n, tracer_provider=tracers, meter_provider=meters)
    if len(exporter.get_finished_spans()) < n:
        raise AssertionError("some messages were not recorded")
    return rate


def traced(server: BenchServer) -> Iterator[Reading]:
    """Messages per second of an instrumented queue, without an SDK and with one, compared with another queue."""
    n = server.many(100_000)
    yield Reading("instrumented", *server.compare(lambda: _consume(server, n), lambda: in_threads(server, n)))
    few = server.many(20_000)
    yield Reading("recorded", *server.compare(lambda: _recorded(server, few), lambda: in_threads(server, few)))


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    goal, title = at_least(0.95, "without"), "consume, 10 threads, instrumented"
    figures = [
        Figure("instrumented", f"{title}, no SDK", goal, reference_name="without"),
        Figure("recorded", f"{title}, SDK in memory", reference_name="without"),
    ]
    return [Measurement("traced", traced, figures)]
