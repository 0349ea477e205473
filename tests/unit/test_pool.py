"""The pool of a worker, as other threads see it while queues come and go."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from delayq.options import read_settings
from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.drivers.drivers import ThreadDriver
from delayq.worker.parts.in_flight import Prefetch
from delayq.worker.pool.fair_pool import FairPool
from delayq.worker.pool.pool import PoolInFlight


def test_nothing_hangs_while_there_are_no_queues_or_they_have_no_loops_yet():
    pool = FairPool(1, strict=False)
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
    pool = FairPool(10, strict=False)
    queues: Any = [_Waiting() for _ in range(count)]
    pool.add(queues)
    pool.allot(queues, 1.0)
    assert min(queue.in_flight.allotted for queue in queues) == allotted


@pytest.mark.parametrize(("held", "allotted"), [(0, 250), (10, 240), (300, 0)])
def test_what_is_held_takes_of_what_is_allotted(held, allotted):
    pool, queue = FairPool(10, strict=False), _Waiting()
    queue.in_flight.held = held
    queues: Any = [queue]
    pool.add(queues)
    pool.allot(queues, 1.0)
    assert queue.in_flight.allotted == allotted


def test_what_is_held_takes_of_what_a_fetch_limit_allows():
    pool, queue = FairPool(10, strict=False), _Waiting()
    queue.context.settings.fetch_limit = 20
    queue.in_flight = SimpleNamespace(**vars(queue.in_flight) | {"held": 5, "deliveries": range(3), "overdue": ()})
    queues: Any = [queue]
    pool.add(queues)
    pool.allot(queues, 1.0)
    assert queue.in_flight.allotted == 12


def test_holding_uses_up_what_is_allotted_and_starting_gives_none_back():
    context: Any = SimpleNamespace(settings=read_settings({}), calls=None)
    in_flight = PoolInFlight(context, 1)
    in_flight.allotted = 3
    in_flight.hold(2)
    assert (in_flight.held, in_flight.capacity(0.0)) == (2, 1)
    in_flight.hold(-2)
    assert (in_flight.held, in_flight.capacity(0.0)) == (0, 1)
    in_flight.hold(5)
    assert in_flight.capacity(0.0) == 0
