"""Consumers count what they do, and report it with their presence: the history of a queue."""

from __future__ import annotations

import sys
from datetime import timedelta

import pytest
import redis

from delayq import ConfigurationError, LatenessCounts
from delayq.broker.keys import Keys
from delayq.broker.stored_presence import HOUR, KEPT_HOURS, HourCounts, write_counts
from delayq.worker.parts import presence
from tests.support.processes import Process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(60)
KEYS = Keys.of("delayq", "reminders")
CONSUMER = """
import sys
from delayq import DelayQueue
from delayq.worker.parts import presence
presence.PRESENCE_EVERY = 0.2
DelayQueue("reminders", url=sys.argv[1], callback=lambda message: None, tick="50ms").run()
"""


@pytest.fixture
def client(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        yield client


def total_of(queue):
    return queue.history().total


@pytest.mark.parametrize("burst", [True, False])
def test_a_consumer_tells_what_it_did_when_it_stops_at_the_latest(open_queue, burst):
    queue = open_queue(callback=lambda message: message.payload != 3, default_retries=0)
    queue.send_many([1, 2, 3])
    assert total_of(queue).delivered == 0
    if burst:
        queue.run(burst=True)
    else:
        queue.start_consume()
        wait_until(lambda: queue.stats().totals.get("dead") == 1 and queue.stats().totals.get("acked") == 2)
        queue.stop_consume()
    total = total_of(queue)
    assert (total.delivered, total.acked, total.nacked, total.callbacks) == (3, 2, 1, 3)
    assert total.busy > timedelta(0)
    assert total.lateness.total == 3
    assert total.lateness.percentile(0.99) < timedelta(minutes=1)


def test_it_is_told_with_each_report(open_queue, monkeypatch):
    monkeypatch.setattr(presence, "PRESENCE_EVERY", 0.05)
    queue = open_queue(callback=lambda message: None, tick="50ms")
    queue.start_consume()
    for number in range(1, 4):
        queue.send_delay_msg(number)
        wait_until(lambda number=number: total_of(queue).acked == number)
    queue.stop_consume()
    assert total_of(queue).acked == 3


@pytest.mark.long
def test_a_killed_consumer_loses_only_what_came_after_its_last_report(redis_url, queue):
    with Process([sys.executable, "-c", CONSUMER, redis_url]) as process:
        queue.send_many(list(range(50)))
        wait_until(lambda: total_of(queue).acked == 50)
        queue.send_delay_msg(1)
        wait_until(lambda: queue.stats().totals["acked"] == 51)
        process.kill()
        process.wait()
    assert total_of(queue).acked in (50, 51)


def test_each_queue_of_a_worker_has_a_history_of_its_own(face, open_queue):
    queues = [open_queue(name, callback=lambda message: None) for name in ("a", "b")]
    worker = face.worker(dict.fromkeys(queues, 1), concurrency=2)
    queues[0].send_many([1, 2])
    queues[1].send_many([1, 2, 3])
    worker.start_consume()
    try:
        wait_until(lambda: [queue.stats().totals.get("acked") for queue in queues] == [2, 3])
    finally:
        worker.stop_consume()
    assert [total_of(queue).acked for queue in queues] == [2, 3]


def test_what_is_pulled_is_not_counted(queue):
    queue.send_delay_msg(1)
    with queue.lease(n=3) as messages:
        assert len(messages) == 1
    assert total_of(queue).delivered == 0


def test_hours_beyond_ninety_days_are_not_shown_and_go(open_queue, client):
    queue = open_queue(callback=lambda message: None)
    hour = int(queue.stats().at.timestamp() * 1000) // HOUR
    client.hset(KEYS.history, mapping={"first": hour - KEPT_HOURS - 5, hour - KEPT_HOURS - 5: "7", hour - 1: "2 1"})
    assert (queue.history(90).total.delivered, total_of(queue).acked) == (2, 1)
    queue.start_consume()
    wait_until(lambda: client.hget(KEYS.history, "first") == str(hour - KEPT_HOURS).encode())
    queue.stop_consume()
    assert set(client.hkeys(KEYS.history)) == {b"first", str(hour - 1).encode()}


def test_a_record_that_another_program_wrote_counts_as_nothing(queue, client):
    hour = int(queue.stats().at.timestamp() * 1000) // HOUR
    client.hset(KEYS.history, mapping={hour: "many", hour - 1: "1 2 3 " * 50, hour - 2: "5" * 16 + " 1"})
    total = total_of(queue)
    assert (total.acked, total.busy.days < 10**9) == (1, True)


@pytest.mark.parametrize("days", [0, 91, 1.5, "10d"])
def test_days_are_one_to_ninety(queue, days):
    with pytest.raises(ConfigurationError, match="days must be"):
        queue.history(days)


def test_buckets_are_hours_or_days(queue):
    with pytest.raises(ConfigurationError, match="buckets must be 'hour' or 'day', not 'week'"):
        queue.history(buckets="week")


def test_a_percentile_is_the_end_of_its_bucket():
    some = LatenessCounts((0, 90, 0, 9, *[0] * 9, 1))
    assert some.percentile(0.5) == timedelta(milliseconds=5)
    assert some.percentile(0.9) == timedelta(milliseconds=5)
    assert some.percentile(0.99) == timedelta(milliseconds=50)
    assert some.percentile(1) == timedelta.max
    assert LatenessCounts().percentile(0.5) is None
    assert (some.within(1), some.within(5), some.within(3_600_000)) == (0, 90, 99)


# The objective for lateness


def test_stats_say_how_late_messages_started_and_how_the_objective_is_kept(open_queue, client):
    queue = open_queue(lateness_slo="99% within 1s")
    queue.open()
    assert (queue.stats().slo.counted, queue.stats().slo.budget_left, queue.stats().lateness.total) == (0, 1, 0)
    hour = int(queue.stats().at.timestamp() * 1000) // HOUR
    late = [0] * 14
    late[6], late[7] = 9950, 50
    records = {hour: HourCounts(lateness=tuple(late)), hour - 30 * 24: HourCounts(lateness=(0,) * 13 + (1,))}
    client.hset(KEYS.history, mapping={at: write_counts(counts) for at, counts in records.items()})
    found = queue.stats()
    assert (found.slo.objective, found.slo.counted, found.slo.late) == ("99% within 1s", 10_000, 50)
    assert (found.slo.kept, found.slo.budget_left, found.slo.missed) == (pytest.approx(0.995), 0.5, False)
    assert found.lateness.percentile(0.99) == timedelta(seconds=1)
    assert found.lateness.percentile(0.999) == timedelta(seconds=5)


def test_the_objective_is_that_of_all_processes_until_it_is_off(open_queue):
    open_queue(lateness_slo="99.9% within 5s").open()
    assert open_queue().stats().slo.objective == "99.9% within 5s"
    open_queue(lateness_slo="90% within 1m").open()
    assert open_queue().stats().slo.objective == "90% within 1m"
    open_queue(lateness_slo="off").open()
    assert open_queue().stats().slo is None


def test_an_examination_finds_an_objective_that_was_missed(open_queue, client):
    queue = open_queue(lateness_slo="99% within 1s")
    queue.open()
    hour = int(queue.stats().at.timestamp() * 1000) // HOUR
    (kept,) = [one for one in queue.examine().findings if one.kind == "lateness objective"]
    assert kept.count == 0
    client.hset(KEYS.history, hour, write_counts(HourCounts(lateness=(90, *[0] * 12, 10))))
    (missed,) = [one for one in queue.examine().findings if one.kind == "lateness objective"]
    assert (missed.count, missed.mended, queue.repair().healthy) == (10, 0, False)
    assert missed.text == "99% within 1s: missed, 90% of 100 messages in 30 days; 10 times the error budget is spent"


def test_a_wrong_objective_is_an_error_and_stores_nothing(open_queue, client):
    with pytest.raises(ConfigurationError, match="lateness_slo must be above 0% and below 100%, not '120% within 1s'"):
        open_queue(lateness_slo="120% within 1s")
    assert [*client.scan_iter()] == []
