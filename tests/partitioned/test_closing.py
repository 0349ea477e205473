"""A callback, or a breaker, that closes the queue closes all of its partitions."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from delayq import Breaker, NewMessage, RateLimited
from tests.partitioned.places import PARTITIONS, ids_of, one_of_each
from tests.support.faces import Blocking
from tests.support.waiting import wait_until

blocking = pytest.mark.parametrize("face", [Blocking], ids=["blocking"], indirect=True)


def send(queue: Any, ids: list[str]) -> None:
    queue.send_many([NewMessage("x", id=id) for id in ids])


def closed_in(queue: Any) -> int:
    """Return how many partitions are closed now."""
    found = [queue.executor.perform(one.limits.list()) for one in queue.partitions]
    return sum(any(limit.closed_until or limit.tripped_until for limit in limits) for limits in found)


@blocking
def test_rate_limited_closes_all_partitions(open_queue):
    started: list[str] = []

    def work(message: Any) -> None:
        started.append(message.id)
        if len(started) == 1:
            raise RateLimited("3s", scope="queue")

    queue = open_queue(partitions=PARTITIONS, callback=work)
    queue.start_consume()
    first, *others = one_of_each()
    send(queue, [first])
    wait_until(lambda: closed_in(queue) == PARTITIONS)
    closed = time.monotonic()
    send(queue, others)
    wait_until(lambda: len(started) == PARTITIONS + 1)
    assert time.monotonic() - closed > 1.5  # the rest of 3 s, on a busy machine
    assert started[0] == first
    assert queue.stop_consume()


@blocking
def test_what_was_claimed_of_other_partitions_does_not_start(open_queue):
    started: list[str] = []
    go_on = threading.Event()

    def work(message: Any) -> None:
        started.append(message.id)
        if len(started) == 1:
            go_on.wait(30)
            raise RateLimited("1m", scope="queue")
        time.sleep(0.05)  # so that a process has claimed more than it runs

    queue = open_queue(partitions=PARTITIONS, callback=work, concurrency=1, prefetch=20)
    send(queue, [id for number in range(PARTITIONS) for id in ids_of(number, 30)])
    queue.start_consume()
    wait_until(lambda: started and sum(one.counts.active for one in [queue.stats()]) > PARTITIONS)
    go_on.set()
    wait_until(lambda: closed_in(queue) == PARTITIONS)
    wait_until(lambda: queue.counts().active == 0)
    assert len(started) < 30
    assert queue.counts().living == 4 * 30 - len(started) + 1
    assert queue.stop_consume()


@blocking
def test_a_breaker_trips_in_all_partitions_and_a_trial_opens_all(open_queue):
    broken = [True]

    def work(_: Any) -> None:
        if broken:
            raise ValueError("down")

    queue = open_queue(
        partitions=PARTITIONS, default_retries=50, nack_delay="1s", breaker=Breaker(share=1.0, of=3, pause="2s")
    )
    queue.callback(work)
    queue.start_consume()
    send(queue, ids_of(1, 3))
    wait_until(lambda: closed_in(queue) == PARTITIONS)
    broken.clear()
    send(queue, one_of_each())
    wait_until(lambda: queue.counts().living == 0 and closed_in(queue) == 0)
    assert queue.stop_consume()
