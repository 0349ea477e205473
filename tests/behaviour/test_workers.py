"""Consumers report their presence: where they run, since when, and what they hold."""

from __future__ import annotations

import os
import re
import socket
import sys
from dataclasses import fields
from datetime import timedelta

import pytest
import redis

import delayq
from delayq import DelayQueue, Worker
from delayq.broker.keys import Keys
from delayq.broker.stored_presence import SILENT_KEPT
from delayq.worker.parts import presence
from delayq.worker.pool import pool
from tests.support.processes import Process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(60)
KEYS = Keys.of("delayq", "reminders")
CONSUMER = """
import sys
from delayq import DelayQueue
DelayQueue("reminders", url=sys.argv[1], callback=lambda message: None).run()
"""


@pytest.fixture
def often(monkeypatch):
    """Consumers report with each turn."""
    monkeypatch.setattr(presence, "PRESENCE_EVERY", 0.05)
    monkeypatch.setattr(pool, "PRESENCE_EVERY", 0.05)


@pytest.fixture
def client(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        yield client


def be_silent(client: redis.Redis, *, seconds: float) -> None:
    """Let the only consumer of the queue have reported so much earlier."""
    (id,) = client.zrange(KEYS.beats, 0, -1)
    client.zincrby(KEYS.beats, -seconds * 1000, id)


def test_a_consumer_is_listed_while_it_runs(open_queue):
    queue = open_queue(callback=lambda message: None, concurrency=7)
    assert queue.workers() == []

    queue.start_consume()
    wait_until(queue.workers)
    (worker,) = queue.workers()

    assert (worker.host, worker.pid, worker.version) == (socket.gethostname(), os.getpid(), delayq.__version__)
    assert (worker.queues, worker.served, worker.concurrency, worker.state) == (("reminders",), 1, 7, "working")
    assert worker.started <= worker.reported <= worker.reported + worker.age
    assert (worker.every, worker.held, worker.running) == (timedelta(seconds=10), 0, ())
    assert queue.stats().workers == 1

    queue.stop_consume()
    assert queue.workers() == []
    assert queue.stats().workers == 0


@pytest.mark.usefixtures("often")
def test_it_names_the_messages_that_run_with_their_start(open_queue, busy, client):
    queue = open_queue(callback=busy, concurrency=2, tick="50ms", prefetch=0)
    queue.send_many(["secret text"] * 3)
    queue.start_consume()
    wait_until(lambda: any(worker.held == 2 for worker in queue.workers()))

    (worker,) = queue.workers()
    assert {message.id for message in worker.running} == {message.id for message in queue.list("active").messages}
    assert {message.consumer for message in queue.list("active").messages} == {worker.id}
    assert all(worker.started <= message.since <= worker.reported + worker.age for message in worker.running)
    assert [message.since for message in worker.running] == sorted(message.since for message in worker.running)
    assert b"secret" not in b"".join(client.hvals(KEYS.workers))


def test_a_consumer_that_ends_with_a_kill_is_silent_after_three_reports(redis_url, queue, client):
    with Process([sys.executable, "-c", CONSUMER, redis_url]) as process:
        wait_until(queue.workers)
        process.kill()
        process.wait()
    assert [worker.state for worker in queue.workers()] == ["working"]
    be_silent(client, seconds=21)
    assert [worker.state for worker in queue.workers()] == ["late"]
    assert queue.stats().workers == 1
    be_silent(client, seconds=10)
    (worker,) = queue.workers()
    assert (worker.state, worker.pid) == ("silent", process.pid)
    assert queue.stats().workers == 0


def test_a_consumer_removes_the_entry_of_one_that_is_silent_for_an_hour(open_queue, client):
    queue = open_queue(callback=lambda message: None)
    client.hset(KEYS.workers, "old", "{}")
    client.zadd(KEYS.beats, {"old": queue.stats().at.timestamp() * 1000 - SILENT_KEPT})
    queue.start_consume()
    wait_until(queue.workers)
    assert client.zscore(KEYS.beats, "old") is None
    assert not client.hexists(KEYS.workers, "old")


def test_due_messages_without_a_consumer_are_told_once_it_is_silent(open_queue, busy, client, gate):
    queue = open_queue()
    queue.send_delay_msg(1)
    past = queue.stats().at.timestamp() * 1000 - 60_000
    client.zadd(KEYS.pending, dict.fromkeys(client.zrange(KEYS.pending, 0, -1), past))
    assert queue.stats().nobody_consumes
    client.hset(KEYS.workers, "w", "{}")
    client.zadd(KEYS.beats, {"w": past + 88_000})
    assert not queue.stats().nobody_consumes
    assert [str(finding.kind) for finding in queue.examine().findings if "consumes" in finding.kind] == []
    be_silent(client, seconds=31)
    assert queue.stats().nobody_consumes
    assert [str(finding.kind) for finding in queue.examine().findings if "consumes" in finding.kind] != []


@pytest.mark.long
@pytest.mark.usefixtures("often")
def test_a_worker_of_many_queues_is_listed_by_each(face, open_queue, client):
    queues = [open_queue(f"q{number:02}", callback=lambda message: None, tick="50ms") for number in range(12)]
    worker = face.worker(dict.fromkeys(queues, 1), concurrency=5)
    worker.start_consume()
    try:
        wait_until(lambda: all(queue.workers() for queue in queues))
        for queue in queues:
            (found,) = queue.workers()
            assert (found.served, found.concurrency) == (12, 5)
            assert found.queues == tuple(f"q{number:02}" for number in range(10))
        first = {queue.name: queue.workers()[0].reported for queue in queues}
        wait_until(lambda: all(queue.workers()[0].reported > first[queue.name] for queue in queues))
    finally:
        worker.stop_consume()
    assert [queue.workers() for queue in queues] == [[]] * 12


def test_a_burst_that_is_over_at_once_tells_nothing(open_queue, client):
    queue = open_queue(callback=lambda message: None)
    queue.send_many(range(5))
    queue.run(burst=True)
    assert not client.exists(KEYS.workers, KEYS.beats)
    assert queue.stats().totals["acked"] == 5


def test_entries_of_other_programs_are_passed_over(queue, client):
    now = queue.stats().at.timestamp() * 1000
    good = b'{"host":"h","pid":1,"version":"1","queues":[],"served":1,"concurrency":1,"every":10000,"up":5,"held":0,'
    texts = {"a": good + b'"running":[]}', "b": b"\xff", "c": b"{}", "d": good + b'"running":[["x",-1]]}', "e": b"[]"}
    texts["f"] = texts["a"].replace(b'"every":10000', b'"every":0')
    texts["g"] = texts["h"] = texts["i"] = texts["a"]
    client.hset(KEYS.workers, mapping=texts)
    client.zadd(KEYS.beats, dict.fromkeys("abcdef", now) | {"g": "inf", "h": -1})
    assert [worker.id for worker in queue.workers()] == ["a"]


def test_many_workers_are_all_listed(queue, client):
    now = queue.stats().at.timestamp() * 1000
    text = b'{"host":"h","pid":1,"version":"1","queues":[],"served":1,"concurrency":1,"every":10000,"up":5,"held":0,'
    client.hset(KEYS.workers, mapping={f"w{number}": text + b'"running":[]}' for number in range(1200)})
    client.zadd(KEYS.beats, {f"w{number}": now for number in range(1200)})
    assert {worker.id for worker in queue.workers()} == {f"w{number}" for number in range(1200)}


def test_the_embedded_server_lists_them_too():
    with DelayQueue("reminders", url="memory://workers", callback=lambda message: None) as queue:
        queue.start_consume()
        wait_until(queue.workers)
        assert [worker.pid for worker in queue.workers()] == [os.getpid()]
        queue.stop_consume()
        assert queue.workers() == []


def test_nothing_is_left_after_a_stop(redis_url, client):
    with DelayQueue("reminders", url=redis_url, callback=lambda message: None) as queue:
        Worker({queue: 1}).run(burst=True)
        queue.start_consume()
        wait_until(queue.workers)
    names = {re.search(r"\w+$", key.decode())[0] for key in client.scan_iter()}
    assert names <= {"meta", "queues", "history"}
    assert {"workers", "beats"} < {part.name for part in fields(Keys)}
