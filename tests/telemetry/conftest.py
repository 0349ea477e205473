"""An SDK in memory, and queues that it records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from opentelemetry import metrics, trace

from delayq import DelayQueue
from delayq.telemetry import instrument
from tests.telemetry.recorded import Recorded


@pytest.fixture(autouse=True)
def no_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set no SDK up: once it is, as a page of the handbook does it, it stays for the process."""
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    monkeypatch.setattr(metrics, "get_meter_provider", metrics.NoOpMeterProvider)


@pytest.fixture
def recorded() -> Recorded:
    """An SDK that has recorded nothing yet."""
    return Recorded()


@pytest.fixture
def open_queue(redis_url: str, recorded: Recorded) -> Iterator[Callable[..., DelayQueue]]:
    """`open_queue(callback, create_spans=…)` opens a queue that is recorded."""
    with ExitStack() as stack:

        def opened(callback: Any = None, name: str = "orders", **options: Any) -> DelayQueue:
            queue = stack.enter_context(DelayQueue(name, url=redis_url, callback=callback, nack_delay="50ms"))
            instrument(queue, **{**recorded.providers, **options})
            return queue

        yield opened
