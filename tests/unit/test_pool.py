"""The pool of a worker, as other threads see it while queues come and go."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.drivers.drivers import ThreadDriver
from delayq.worker.parts.in_flight import Prefetch
from delayq.worker.pool.pool import Pool


def test_nothing_hangs_while_there_are_no_queues_or_they_have_no_loops_yet():
    pool = Pool(1, strict=False)
    driver = ThreadDriver(pool, [], "w", grace=1.0)
    seen = [driver.hung_since]

    class Coming(SimpleNamespace):
        def start(self) -> None:
            seen.append(driver.hung_since)  # as another thread would just then
            self.loop = SimpleNamespace(in_flight=SimpleNamespace(limits=SimpleNamespace(hung_since=5.0)))
            self.started = True
            seen.append(driver.hung_since)

    coming: Any = Coming(weight=1, started=False)
    pool.add([coming])
    pool.remove(coming)
    seen.append(driver.hung_since)
    assert seen == [math.inf, math.inf, 5.0, math.inf]


class _Waiting:
    """A queue with plenty to claim, whose callbacks take no time."""

    def __init__(self) -> None:
        settings: Any = SimpleNamespace(concurrency=10, prefetch=None, fetch_limit=None)
        prefetch = Prefetch(settings, 1)
        prefetch.on_completed([Completion([], Disposition.ACK, "", None, 0.00001)], 0.0)
        self.weight, self.places = 1, math.inf
        self.callback = SimpleNamespace(batch=1)
        self.buffer = SimpleNamespace(backlog=0, waiting=False)
        self.context = SimpleNamespace(settings=settings)
        self.in_flight = SimpleNamespace(prefetch=prefetch, allotted=0, held=0)

    def start(self) -> None:
        """Start nothing."""

    def waiting_starts(self, now: float) -> int:
        """Return that there is plenty."""
        return 10_000


@pytest.mark.parametrize(("count", "allotted"), [(1, 250), (3, 83), (10, 50), (20, 50), (50, 20)])
def test_many_queues_claim_up_to_four_times_as_much_together(count, allotted):
    pool = Pool(10, strict=False)
    queues: Any = [_Waiting() for _ in range(count)]
    pool.add(queues)
    pool.allot(queues, 1.0)
    assert min(queue.in_flight.allotted for queue in queues) == allotted
