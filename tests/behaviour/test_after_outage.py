"""`after_outage="latest"`: of the due messages with one id prefix, only the one due last starts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

from delayq import ConfigurationError, NewMessage, RateLimited
from delayq.errors import ServerError
from delayq.streams import StreamQueue
from delayq.values.states import State
from tests.behaviour.places import everywhere
from tests.behaviour.test_faults import SOURCE
from tests.support.processes import Process
from tests.support.waiting import wait_until

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LATER = datetime(2190, 1, 1, tzinfo=UTC)


def hourly(prefix, hours, *, first=BEGIN, **options):
    """Return messages `report:00`, `report:01` and so on, each due an hour after the one before."""
    return [
        NewMessage(hour, id=f"{prefix}{hour:02}", at=first + timedelta(hours=hour), after_outage="latest", **options)
        for hour in hours
    ]


def kinds(queue, id):
    return [str(event.kind) for event in queue.events() if event.id == id]


@everywhere
def test_only_the_latest_of_each_prefix_starts(open_queue, caplog):
    queue = open_queue(events=True)
    seen = []
    queue.callback(lambda message: seen.append(message.id))
    queue.send_many([*hourly("report:", range(24)), *hourly("bill:eu:", range(5), missed="drop")])
    queue.send_many([NewMessage(1, id="report:old", at=BEGIN), *hourly("report:", [99], first=LATER)])

    queue.run(burst=True)

    assert sorted(seen) == ["bill:eu:04", "report:23", "report:old"]
    assert sorted(one.id for one in queue.dead.list().messages) == [f"report:{hour:02}" for hour in range(23)]
    assert {one.reason for one in queue.dead.list().messages} == {"missed"}
    totals = queue.stats().totals
    assert (totals["missed"], totals["dead"], totals["discarded"], totals["acked"]) == (27, 23, 4, 3)
    assert kinds(queue, "report:07")[-2:] == ["missed", "dead"]
    assert kinds(queue, "bill:eu:01")[-2:] == ["missed", "discarded"]
    assert queue.get("report:99").state is State.PENDING
    assert (
        "reminders: message report:00 is superseded by a later one with its id prefix, and goes to the" in caplog.text
    )
    assert "message bill:eu:00 is superseded by a later one with its id prefix, and is dropped" in caplog.text


@everywhere
def test_what_comes_after_the_latest_has_ended_is_missed_too(open_queue):
    queue = open_queue()
    seen = []
    queue.callback(lambda message: seen.append(message.id))
    queue.send_many(hourly("report:", [7]))
    queue.run(burst=True)

    queue.send_many(hourly("report:", [6, 8]))
    queue.run(burst=True)
    queue.send_many(hourly("report:", [7]))
    queue.run(burst=True)

    assert seen == ["report:07", "report:08"]
    assert queue.stats().totals["missed"] == 2


def test_a_retry_is_missed_once_a_later_one_is_due(open_queue):
    queue = open_queue(nack_delay=0.3, tick=0.05)
    seen = []

    @queue.callback
    def work(message):
        seen.append((message.id, message.attempt))
        if message.id == "report:01":
            queue_sends.set()
            return False
        return None

    queue_sends = threading.Event()
    queue.send_many(hourly("report:", [1]))
    queue.start_consume()
    assert queue_sends.wait(30)
    queue.send_many(hourly("report:", [2]))
    wait_until(lambda: queue.counts().dead == 1)

    assert seen == [("report:01", 1), ("report:02", 1)]
    assert queue.get("report:01").reason == "missed"


def test_the_latest_itself_is_retried(open_queue):
    queue = open_queue(nack_delay=0.1, tick=0.05)
    seen = []
    queue.callback(lambda message: seen.append((message.id, message.attempt)) or len(seen) > 2)
    queue.send_many(hourly("report:", range(3), retries=5))
    queue.start_consume()
    wait_until(lambda: queue.counts().living == 0)

    assert seen == [("report:02", 1), ("report:02", 2), ("report:02", 3)]
    assert queue.stats().totals["missed"] == 2


@everywhere
def test_without_the_cancelled_latest_the_one_before_starts(open_queue):
    queue = open_queue()
    seen = []
    queue.callback(lambda message: seen.append(message.id))
    queue.send_many(hourly("report:", range(4)))
    queue.cancel("report:03")
    queue.reschedule("report:02", at=LATER)
    queue.send_schedule_msg(1, LATER, id="report:01", replace=True)
    queue.run(burst=True)

    assert seen == ["report:00"]
    assert queue.stats().totals.get("missed", 0) == 0


def test_a_batch_gets_the_latest(open_queue):
    queue = open_queue()
    seen = []
    queue.batch_callback(lambda messages: seen.extend(message.id for message in messages))
    queue.send_many([*hourly("report:", range(5)), NewMessage(1, id="other")])
    queue.run(burst=True)
    assert sorted(seen) == ["other", "report:04"]


@pytest.mark.parametrize("options", [{"prefetch": 100}, {"concurrency": 8}, {"rate_limit": "200/s"}], ids=str)
def test_however_messages_are_claimed_the_latest_alone_starts(open_queue, options):
    rate = options.pop("rate_limit", None)
    queue = open_queue(**options)
    if rate:
        queue.limits.set(rate_limit=rate)
    seen = []
    queue.callback(lambda message: seen.append(message.id))
    queue.send_many([*hourly("a:", range(150), missed="drop"), *hourly("b:", range(150), missed="drop")])
    queue.run(burst=True)
    assert sorted(seen) == ["a:149", "b:149"]
    assert (queue.counts().living, queue.stats().totals["missed"]) == (0, 298)


def test_a_worker_of_several_queues_starts_the_latest_of_each(open_queue, face):
    queues = {open_queue(name): 1 for name in ("reports", "bills")}
    seen = []
    for queue in queues:
        queue.callback(lambda message: seen.append((message.queue, message.id)))
        queue.send_many([*hourly("a:", range(10)), NewMessage(1, id=f"plain-{queue.name}")])
    worker = face.worker(queues, concurrency=3)
    worker.run(burst=True)
    plain = [("bills", "plain-bills"), ("reports", "plain-reports")]
    assert sorted(seen) == sorted([("bills", "a:09"), ("reports", "a:09"), *plain])
    assert [queue.stats().totals["missed"] for queue in queues] == [9, 9]


def test_a_message_that_runs_alone_is_asked_about_too(open_queue, redis_client):
    queue = open_queue()
    seen = []
    queue.callback(lambda message: seen.append(message.id))
    queue.send_many(hourly("a:", [1, 2], missed="drop"))
    record = "retry 1700000000000 0 1 1 gone !"  # its consumer has died, and took others with it perhaps
    redis_client.zrem("delayq:{reminders}:pending", "a:01")
    redis_client.hset("delayq:{reminders}:deliveries", "a:01", record)
    redis_client.rpush("delayq:{reminders}:retry", "a:01")
    queue.run(burst=True)
    assert (seen, queue.stats().totals["missed"]) == (["a:02"], 1)


@everywhere
def test_a_lease_gets_the_latest(open_queue):
    queue = open_queue()
    queue.send_many([*hourly("report:", range(5)), NewMessage(1, id="other")])
    with queue.lease(n=10) as messages:
        assert sorted(message.id for message in messages) == ["other", "report:04"]
    assert queue.counts().living == 0
    assert queue.counts().dead == 4


def test_a_lease_that_cannot_ask_returns_what_it_has_claimed(open_queue, redis_client):
    queue = open_queue()
    queue.send_many([*hourly("report:", range(3), retries=5)])
    redis_client.delete("delayq:{reminders}:latest")
    redis_client.set("delayq:{reminders}:latest", "of another program")
    with pytest.raises(ServerError):
        queue.lease(n=3)
    counts = queue.counts()
    assert (counts.ready, counts.living) == (3, 3)
    redis_client.delete("delayq:{reminders}:latest")
    assert {finding.kind for finding in queue.repair(deep=True).findings} >= {"not in the index latest"}
    with queue.lease(n=3) as messages:
        assert [(message.id, message.attempt, message.retries_left) for message in messages] == [("report:02", 1, 5)]


def test_a_consumer_that_cannot_ask_starts_nothing_and_tries_again(open_queue, redis_client, caplog):
    queue = open_queue(tick=0.05)
    seen = []
    queue.callback(lambda message: seen.append((message.id, message.attempt)))
    queue.send_many(hourly("report:", [1]))
    index = redis_client.zrange("delayq:{reminders}:latest", 0, -1)
    redis_client.delete("delayq:{reminders}:latest")
    redis_client.set("delayq:{reminders}:latest", "of another program")
    queue.start_consume()
    wait_until(lambda: "Redis refused a call" in caplog.text)
    assert seen == []
    redis_client.delete("delayq:{reminders}:latest")
    redis_client.zadd("delayq:{reminders}:latest", {index[0]: 0})
    wait_until(lambda: seen)
    assert seen == [("report:01", 1)]


@everywhere
def test_a_redriven_message_is_not_superseded_and_supersedes_none(open_queue):
    queue = open_queue()
    seen = []
    queue.callback(lambda message: seen.append(message.id))
    queue.send_many(hourly("report:", range(2)))
    queue.run(burst=True)
    queue.dead.redrive("report:00")
    queue.send_many(hourly("report:", [2]))
    queue.run(burst=True)
    assert (seen[0], *sorted(seen[1:])) == ("report:01", "report:00", "report:02")


def test_a_snoozed_one_keeps_its_due_time(open_queue):
    queue = open_queue()
    seen = []

    @queue.callback
    def work(message):
        seen.append(message.id)
        if message.id == "report:01" and len(seen) == 1:
            raise RateLimited(0.05, scope="name")

    queue.send_many(hourly("report:", [1], name="n"))
    queue.start_consume()
    wait_until(lambda: queue.counts().living == 0)
    assert seen == ["report:01", "report:01"]
    assert queue.stats().totals.get("missed", 0) == 0


@everywhere
def test_a_task_starts_the_latest_of_its_messages(open_queue):
    queue = open_queue()
    seen = []
    report = queue.task(name="report", after_outage="latest", missed="drop")(lambda hour: seen.append(hour))
    for hour in range(3):
        report.options(id=f"r:{hour}", at=BEGIN + timedelta(hours=hour)).send(hour)
    assert queue.get("r:0").after_outage == "latest"
    with pytest.raises(ConfigurationError, match="after_outage needs an id with a prefix"):
        report.send(3)
    queue.run(burst=True)
    assert (seen, queue.stats().totals["discarded"]) == ([2], 2)


@everywhere
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"after_outage": "first", "id": "r:1"}, "after_outage must be 'latest', not 'first'"),
        ({"after_outage": True, "id": "r:1"}, "after_outage must be 'latest', not True"),
        ({"after_outage": "latest"}, "after_outage needs an id with a prefix, such as 'report:2026-11-25T01'"),
        ({"after_outage": "latest", "id": "r1"}, "such as 'report:2026-11-25T01', not 'r1'"),
        ({"after_outage": "latest", "unique": "payload"}, "needs an id with a prefix"),
        ({"missed": "drop", "id": "r:1"}, "missed goes with expires or after_outage"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_and_nothing_stored(open_queue, options, text):
    queue = open_queue()
    for send in (
        lambda: queue.send_delay_msg(1, **options),
        lambda: queue.send_schedule_msg(1, LATER, **options),
        lambda: queue.send_many([1, NewMessage(1, **options)]),
    ):
        with pytest.raises(ConfigurationError, match=text):
            send()
    assert queue.counts().living == 0


@everywhere
def test_it_does_not_go_with_a_burst_or_a_successor(open_queue):
    queue = open_queue()
    latest = {"id": "r:1", "after_outage": "latest"}
    with pytest.raises(ConfigurationError, match="give after_outage or debounce, but not both"):
        queue.send_delay_msg(1, debounce="1h", **latest)
    with pytest.raises(ConfigurationError, match="after_outage does not go with replace='after'"):
        queue.send_many([NewMessage(1, **latest)], replace="after")
    with pytest.raises(ConfigurationError, match="give after_outage or debounce, but not both"):
        queue.task(name="t", debounce="1h", after_outage="latest")(lambda: None)
    with pytest.raises(ConfigurationError, match="after_outage must be 'latest', not 'all'"):
        queue.task(name="t", after_outage="all")(lambda: None)
    assert queue.counts().living == 0


def test_a_stream_refuses_it(redis_url):
    with StreamQueue("tasks", url=redis_url) as tasks, pytest.raises(ConfigurationError, match="has no after_outage"):
        tasks.send_many([NewMessage(1, id="r:1", after_outage="latest")])


@everywhere
def test_messages_without_the_option_are_all_delivered(open_queue):
    queue = open_queue()
    queue.send_many([NewMessage(n, id=f"r:{n}", at=BEGIN) for n in range(3)])
    queue.send_many(hourly("r:", [1, 99], first=LATER))
    queue.reschedule("r:0", 0)
    assert len([*queue.lease(n=5)]) == 3


WORKER = """
import sys, time
from delayq import DelayQueue

def work(message):
    print(message.id, message.attempt, flush=True)
    time.sleep(float(sys.argv[2]))

DelayQueue("reminders", url=sys.argv[1], callback=work).run(burst=len(sys.argv) > 3)
"""


def worker(url, *arguments):
    command = [sys.executable, "-c", WORKER, url, *arguments]
    return Process(command, env=os.environ | {"PYTHONPATH": SOURCE}, stdout=subprocess.PIPE, text=True)


def test_of_two_workers_after_an_outage_one_starts_the_latest(open_queue, url):
    queue = open_queue()
    queue.send_many([*hourly("a:", range(24)), *hourly("b:", range(24), missed="drop")])
    with worker(url, "0", "burst") as first, worker(url, "0", "burst") as second:
        started = sorted([*first.stdout, *second.stdout])
    assert started == ["a:23 1\n", "b:23 1\n"]
    totals = queue.stats().totals
    assert (totals["missed"], totals["dead"], totals["discarded"], totals["acked"]) == (46, 23, 23, 2)


def test_the_latest_of_a_killed_worker_is_started_again(open_queue, url, redis_client):
    queue = open_queue(lease="1s")
    queue.send_many(hourly("a:", range(3), retries=5))
    with worker(url, "60") as process:
        assert process.stdout.readline() == "a:02 1\n"
        wait_until(lambda: queue.counts().dead == 2)
        process.kill()
    redis_client.zadd("delayq:{reminders}:unack", {"a:02": 0})  # its lease has run out
    with worker(url, "0", "burst") as process:
        assert [line.split()[0] for line in process.stdout] == ["a:02"]
    assert (queue.counts().living, queue.stats().totals["missed"]) == (0, 2)
