"""An SDK in memory, and queues that it records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from delayq import DelayQueue
from delayq.telemetry import instrument
from tests.telemetry.recorded import Recorded


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
