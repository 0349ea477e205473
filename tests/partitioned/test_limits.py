"""The limit of a whole queue over partitions: stored once, and shared out to the partitions by what waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import datetime
from itertools import combinations
from typing import Any

import pytest
import redis

from delayq import ConfigurationError, NewMessage
from tests.partitioned.places import PARTITIONS, ids_of, one_of_each
from tests.support.faces import Blocking
from tests.support.waiting import wait_until

blocking = pytest.mark.parametrize("face", [Blocking], ids=["blocking"], indirect=True)
PLACES = [{"running": 3}, {"running": 2, "rate_limit": "200/s"}]


def send(queue: Any, ids: Sequence[str]) -> None:
    queue.send_many([NewMessage("x", id=id) for id in ids])


def starts_of(queue: Any) -> list[datetime]:
    """Return when messages were started by the server's clock, as the event log has it."""
    return sorted(event.at for event in queue.events() if event.kind == "delivered")


def seconds_between(times: Sequence[datetime]) -> float:
    return (times[-1] - times[0]).total_seconds()


def shares_in(url: str) -> list[str]:
    """Return the limits of all partitions as they are stored, '' for none."""
    with redis.Redis.from_url(url) as client:
        keys = [f"delayq:{{reminders#{number}}}:limits" for number in range(PARTITIONS)]
        return [(client.hget(key, "queue") or b"").decode() for key in keys]


class Working:
    """A callback that counts how many run at a time."""

    def __init__(self, seconds: float) -> None:
        self.seen: list[str] = []
        self.running = self.most = 0
        self._seconds, self._lock = seconds, threading.Lock()

    def __call__(self, message: Any) -> None:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.seen.append(message.id)
        time.sleep(self._seconds)
        with self._lock:
            self.running -= 1


# What is stored


def test_a_limit_of_the_whole_queue_is_listed_once(queue):
    queue.limits.set(rate_limit="100/s", running=10)
    (limit,) = queue.limits.list()
    assert (limit.name, limit.rate_limit, limit.burst, limit.running, limit.active) == (None, "100/s", 11, 10, 0)

    queue.limits.set(running=20)
    (limit,) = queue.limits.list()
    assert (limit.rate_limit, limit.running) == ("100/s", 20)


def test_shares_are_never_more_than_the_whole(queue, url):
    queue.limits.set(rate_limit="100/s", running=6)
    fields = [text.split() for text in shares_in(url)]
    assert sum(1e6 / float(interval) for _, interval, *_ in fields) == pytest.approx(100, rel=0.001)
    assert sorted(int(places) for _, _, _, places, *_ in fields) == [1, 1, 2, 2]


def test_fewer_places_than_partitions_leave_some_closed(queue, url):
    queue.limits.set(running=3)
    fields = [text.split() for text in shares_in(url)]
    assert sorted(int(places) for _, _, _, places, *_ in fields) == [0, 1, 1, 1]
    assert [burst for _, _, burst, *_ in fields].count("0") == 1


def test_a_removed_limit_leaves_nothing(queue, url):
    assert queue.limits.remove() is False
    queue.limits.set(rate_limit="1/h", running=1)
    assert queue.limits.remove() is True
    assert queue.limits.list() == []
    assert shares_in(url) == [""] * PARTITIONS


def test_a_removed_queue_leaves_no_key(queue, url):
    queue.limits.set(rate_limit="1/h")
    assert queue.remove()
    with redis.Redis.from_url(url) as client:
        assert [*client.scan_iter("delayq:{reminders*")] == []


@pytest.mark.parametrize(
    ("name", "how"), [("mail", {"rate_limit": "1/s"}), ("mail", {"running": 1}), ("", {"running": 1})]
)
def test_limits_by_name_are_refused(queue, name, how):
    with pytest.raises(ConfigurationError, match=r"would count in each partition by itself: .*account:"):
        queue.limits.set(name, **how)


@pytest.mark.parametrize("how", [{}, {"running": 0}, {"rate_limit": "many"}, {"in_order": True}, {"burst": 2}])
def test_wrong_limits_are_refused_as_of_any_queue(queue, url, how):
    with pytest.raises(ConfigurationError):
        queue.limits.set(**how)
    assert shares_in(url) == [""] * PARTITIONS


@blocking
def test_a_queue_of_one_partition_is_limited_as_any_other(open_queue, url):
    queue = open_queue(partitions=1)
    queue.limits.set(rate_limit="100/s")
    queue.limits.set("mail", running=1)
    assert [(limit.name, limit.rate_limit) for limit in queue.limits.list()] == [(None, "100/s"), ("mail", None)]
    with redis.Redis.from_url(url) as client:
        assert client.hlen("delayq:{reminders}:limits") == 2


# What starts


def test_one_partition_with_work_gets_the_whole_rate(open_queue):
    workers = [
        open_queue(partitions=PARTITIONS, events=True, rate_limit="100/s", callback=lambda message: None)
        for _ in range(2)
    ]
    send(workers[0], ids_of(2, 300))
    for worker in workers:
        worker.start_consume()
    wait_until(lambda: workers[0].counts().living == 0, 60)

    started = starts_of(workers[0])[100:]  # from then on, it has all of it
    assert 1.9 <= seconds_between(started) < 4  # never faster; a busy machine may be slower


@pytest.mark.parametrize("limit", PLACES, ids=["places", "places and rate"])
def test_no_more_run_than_the_whole_allows(open_queue, limit):
    work = Working(0.02)
    workers = [open_queue(partitions=PARTITIONS, concurrency=8, callback=work) for _ in range(2)]
    workers[0].limits.set(**limit)
    ids = [*ids_of(0, 60), *ids_of(1, 10), *ids_of(3, 30)]
    send(workers[0], ids)
    for worker in workers:
        worker.start_consume()
    wait_until(lambda: len(work.seen) == len(ids), 60)

    assert sorted(work.seen) == sorted(ids)
    assert work.most <= limit["running"]


@pytest.mark.parametrize("number", range(PARTITIONS))
def test_a_closed_partition_is_opened_when_it_has_work(open_queue, number):
    work = Working(0)
    queue = open_queue(partitions=PARTITIONS, callback=work)
    queue.limits.set(running=1)
    queue.start_consume()
    for id in ids_of(number, 3):
        queue.send_delay_msg("x", id=id)
        wait_until(lambda id=id: work.seen[-1:] == [id], 20)


@pytest.mark.parametrize("limit", [{"running": 1}, {"rate_limit": "200/s", "running": 2}], ids=["places", "both"])
def test_a_burst_handles_what_all_partitions_have(open_queue, limit):
    work = Working(0)
    queue = open_queue(partitions=PARTITIONS, callback=work, **limit)
    ids = [id for number in range(PARTITIONS) for id in ids_of(number, 5)]
    send(queue, ids)
    queue.run(burst=True)
    assert sorted(work.seen) == sorted(ids)


def test_a_lowered_limit_waits_for_what_runs(open_queue, busy, gate):
    queue = open_queue(partitions=PARTITIONS, concurrency=8, callback=busy)
    queue.limits.set(running=8)
    send(queue, one_of_each())
    queue.start_consume()
    wait_until(lambda: len(busy.seen) == PARTITIONS)
    queue.limits.set(running=2)
    send(queue, [id for number in range(PARTITIONS) for id in ids_of(number, 2)[1:]])
    wait_until(lambda: any(reason.kind == "running" for reason in queue.why().reasons))
    (limit,) = queue.limits.list()
    assert (limit.running, limit.active) == (2, PARTITIONS)
    assert len(busy.seen) == PARTITIONS
    gate.set()
    wait_until(lambda: queue.counts().living == 0)


def test_a_removed_limit_lets_all_start(open_queue):
    work = Working(0)
    queue = open_queue(partitions=PARTITIONS, callback=work)
    queue.limits.set(rate_limit="1/h")
    queue.start_consume()
    ids = [id for number in range(PARTITIONS) for id in ids_of(number, 10)]
    send(queue, ids)
    wait_until(lambda: 0 < len(work.seen) <= PARTITIONS)
    queue.limits.remove()
    wait_until(lambda: len(work.seen) == len(ids))


def test_why_names_the_limit_of_the_whole_queue(open_queue):
    queue = open_queue(partitions=PARTITIONS, callback=lambda message: None)
    queue.limits.set(rate_limit="1/h")
    queue.start_consume()
    ids = [id for number in range(PARTITIONS) for id in ids_of(number, 3)]
    send(queue, ids)
    wait_until(lambda: any(reason.kind == "rate" for reason in queue.why().reasons))
    (text,) = [reason.text for reason in queue.why().reasons if reason.kind == "rate"]
    assert text.startswith("the rate of the queue is 1/h: the next starts at ")
    waiting = next(id for id in reversed(ids) if queue.get(id) is not None)
    texts = [reason.text for reason in queue.why(waiting).reasons]
    assert any(text.startswith("the limit of the queue, rate_limit=1/h, is shared out by what waits") for text in texts)


def test_a_paused_queue_keeps_its_limit(open_queue):
    work = Working(0)
    queue = open_queue(partitions=PARTITIONS, callback=work)
    queue.limits.set(running=1)
    queue.pause()
    queue.start_consume()
    send(queue, one_of_each())
    assert queue.resume(spread="100ms")
    wait_until(lambda: len(work.seen) == PARTITIONS, 20)
    (limit,) = queue.limits.list()
    assert limit.running == 1


# What it costs


@blocking
def test_an_idle_queue_costs_no_more_with_a_limit(open_queue, url):
    queue = open_queue(partitions=PARTITIONS, callback=lambda message: None)
    queue.limits.set(rate_limit="100/s")
    queue.start_consume()
    send(queue, one_of_each())
    wait_until(lambda: queue.counts().living == 0)
    with redis.Redis.from_url(url) as client:
        key = "delayq:{reminders}:gates"

        def turns() -> list[bytes]:
            return client.zrange(key, -1, -1)

        wait_until(lambda: turns() and _stays(turns))


def _stays(read: Any) -> bool:
    """Return whether what is read has not changed after two turns."""
    before = read()
    time.sleep(1.2)
    return bool(read() == before)


@blocking
def test_a_queue_without_a_limit_has_no_turns(open_queue, url):
    queue = open_queue(partitions=PARTITIONS, callback=lambda message: None)
    send(queue, [id for number in range(PARTITIONS) for id in ids_of(number, 20)])
    queue.run(burst=True)
    with redis.Redis.from_url(url) as client:
        assert client.exists("delayq:{reminders}:gates", "delayq:{reminders}:limits") == 0


# Over 10 seconds


@blocking
@pytest.mark.torture
def test_a_rate_is_kept_while_demand_is_skewed_and_shifts(open_queue):
    workers = [open_queue(partitions=PARTITIONS, events=True, callback=lambda message: None) for _ in range(2)]
    workers[0].limits.set(rate_limit="100/s")
    numbers = [ids_of(number, 1000) for number in range(PARTITIONS)]
    send(workers[0], [*numbers[0][:600], *numbers[1][:60], *numbers[2][:20]])
    for worker in workers:
        worker.start_consume()
    for later in (numbers[3][:400], numbers[1][60:260], numbers[2][20:720]):
        wait_until(lambda: workers[0].counts().living < 350, 60)
        send(workers[0], later)
    wait_until(lambda: workers[0].counts().living < 100, 60)

    started = starts_of(workers[0])
    for first in range(0, 800, 100):  # any 1,000 starts, by the server's clock
        assert seconds_between(started[first : first + 1001]) == pytest.approx(10, rel=0.05)


@blocking
@pytest.mark.torture
def test_a_low_rate_is_not_exceeded_by_many_partitions(open_queue):
    queue = open_queue(partitions=PARTITIONS, events=True, callback=lambda message: None)
    queue.limits.set(rate_limit="2/s", burst=1)
    send(queue, [id for number in range(PARTITIONS) for id in ids_of(number, 10)])
    queue.start_consume()
    wait_until(lambda: queue.counts().living == 0, 60)
    started = starts_of(queue)
    assert seconds_between(started) == pytest.approx(19.5, rel=0.15)
    for first, last in combinations(range(len(started)), 2):  # besides the rate, the first start of each partition
        most = 2 * seconds_between(started[first : last + 1]) + PARTITIONS
        assert last + 1 - first <= most + 1
