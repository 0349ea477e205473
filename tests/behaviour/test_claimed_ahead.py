"""Messages that an idle consumer claims shortly before they are due: each starts at its time, and can be taken back."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
import redis

from delayq import DelayQueue, NewMessage
from tests.behaviour.places import everywhere
from tests.support.processes import PATIENCE, Process
from tests.support.waiting import wait_until

AHEAD = {"ahead": "1s", "tick": "10s"}


def hold(queue, id="m", delay=0.8, **options):
    """Let an idle consumer claim a message that is due in a while; returns when that is (seconds since 1970)."""
    due = time.time() + delay
    queue.send_delay_msg("held", delay, id=id, **options)
    wait_until(lambda: queue.get(id).state == "active", every=0.002)
    return due


def consume(open_queue, **options):
    """Return a queue that consumes, and the ids of what it runs with the times."""
    queue, seen = open_queue(**AHEAD | options), []
    queue.callback(lambda message: seen.append((message.id, time.time(), message.attempt)))
    queue.start_consume()
    wait_until(lambda: queue.workers(), every=0.01)
    return queue, seen


WITHDRAWALS = {
    "cancel": (lambda queue: queue.cancel("m"), "cancelled"),
    "reschedule": (lambda queue: queue.reschedule("m", "1h"), "rescheduled"),
    "replace": (lambda queue: queue.send_delay_msg("new", "1h", id="m", replace=True), "m"),
}


@everywhere
@pytest.mark.parametrize("how", WITHDRAWALS)
def test_held_message_can_be_taken_back_at_once_and_never_runs(open_queue, how):
    queue, seen = consume(open_queue, concurrency=2)
    due, (act, told) = hold(queue), WITHDRAWALS[how]

    assert str(getattr(act(queue), "value", told)) == told
    assert time.time() < due
    queue.send_delay_msg("later", due + 0.2 - time.time(), id="later")
    wait_until(lambda: seen)

    assert [id for id, *_ in seen] == ["later"]
    assert (queue.get("m") and queue.get("m").state) == {"cancel": None}.get(how, "pending")


@everywhere
def test_message_that_is_held_starts_when_it_is_due(open_queue):
    queue, seen = consume(open_queue)
    due = hold(queue, delay=0.3)
    wait_until(lambda: seen)
    assert due <= seen[0][1] < due + 0.2  # far from a tick


@everywhere
def test_stop_gives_back_what_is_held_for_its_due_time(open_queue):
    queue, seen = consume(open_queue)
    due = hold(queue, retries=0)
    queue.stop_consume(5)
    info = queue.get("m")
    assert (info.state, info.attempts, info.retries_left) == ("backoff", 0, 0)
    assert time.time() < due
    _, seen_elsewhere = consume(open_queue)
    wait_until(lambda: seen_elsewhere)
    ((_, at, attempt),) = seen_elsewhere
    assert due <= at < due + 0.5
    assert (seen, attempt) == ([], 1)


def test_two_idle_consumers_start_two_messages_of_one_time_on_time(open_queue, gate):
    seen = []

    def work(message):
        seen.append(time.time())
        gate.wait(10)

    for _ in range(2):
        queue = open_queue(concurrency=1, prefetch=0, tick="10s")
        queue.callback(work)
        queue.start_consume()
    wait_until(lambda: len(queue.workers()) == 2, every=0.01)
    for delay in (0.3, 0.02):
        seen.clear()
        gate.clear()
        due = time.time() + delay
        queue.send_many([NewMessage(n, delay) for n in range(2)])
        wait_until(lambda: len(seen) == 2, timeout=3)
        assert min(seen) >= due
        assert max(seen) < due + 0.2
        gate.set()
        wait_until(lambda: queue.counts().living == 0)


def test_message_without_a_delay_waits_for_one_that_is_held_no_longer_than_ahead(open_queue):
    queue, seen = consume(open_queue, concurrency=1, ahead="300ms")
    hold(queue, delay=0.25)
    sent = time.time()
    queue.send_delay_msg("now", id="now")
    wait_until(lambda: len(seen) == 2)
    assert max(at for _, at, _ in seen) < sent + 0.3 + 0.2


@pytest.mark.parametrize("ahead", ["25ms", "1s"])
def test_nothing_starts_early_by_the_clock_of_the_server(open_queue, redis_url, ahead):
    queue, early, lock = open_queue(ahead=ahead, concurrency=20), [], threading.Lock()
    with redis.Redis.from_url(redis_url) as client:

        def work(message):
            with lock:
                seconds, micros = client.time()
            now = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)
            early.append((message.due - now).total_seconds())

        queue.callback(work)
        queue.start_consume()
        for _ in range(15):
            queue.send_many([NewMessage(n, random.uniform(0, 1.0)) for n in range(20)])
            time.sleep(0.05)
        wait_until(lambda: len(early) == 300)
    assert max(early) <= 0


BEGINNINGS = {
    "events": lambda queue, open_queue: open_queue(events=True).open(),
    "dedupe window": lambda queue, open_queue: open_queue(dedupe_window="1h").open(),
    "limit": lambda queue, open_queue: queue.limits.set("mail", running=1),
    "priority": lambda queue, open_queue: queue.send_delay_msg("p", priority=1, id="p"),
    "unique id": lambda queue, open_queue: queue.send_delay_msg("u", id="u", unique_for="1h"),
}


@pytest.mark.parametrize("how", BEGINNINGS)
@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_feature_that_begins_in_the_middle_loses_and_repeats_nothing(open_queue, how, place):
    queue, seen = consume(open_queue, concurrency=5)
    hold(queue, id="held", delay=0.2)
    queue.send_many([NewMessage(n, n / 100, id=f"a{n}") for n in range(30)])
    BEGINNINGS[how](queue if place == "here" else open_queue(), open_queue)
    queue.send_many([NewMessage(n, n / 100, id=f"b{n}") for n in range(30)])
    extra = {"priority": {"p"}, "unique id": {"u"}}.get(how, set())
    expected = {"held", *extra, *(f"{kind}{n}" for kind in "ab" for n in range(30))}
    wait_until(lambda: {id for id, *_ in seen} == expected and queue.counts().living == 0)
    assert len(seen) == len(expected)
    assert {attempt for *_, attempt in seen} == {1}
    assert queue.stats().totals["acked"] == len(expected)


def test_successor_that_is_sent_while_messages_run_and_are_held_follows(open_queue, gate):
    queue, seen = open_queue(**AHEAD, concurrency=5), []

    def work(message):
        seen.append((message.id, message.payload))
        if message.payload == "first":
            gate.wait(10)

    queue.callback(work)
    queue.start_consume()
    wait_until(lambda: queue.workers(), every=0.01)
    queue.send_delay_msg("first", id="m")
    wait_until(lambda: seen)
    due = hold(queue, id="held", delay=0.3)
    open_queue().send_delay_msg("second", id="m", replace="after")
    gate.set()
    wait_until(lambda: len(seen) == 3)
    assert seen == [("m", "first"), ("m", "second"), ("held", "held")]
    assert time.time() >= due


CONSUMER = """
import sys
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1], ahead=1, lease=3, tick=10)

@queue.callback
def work(message):
    print("started too early", flush=True)

queue.run()
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL], ids=lambda sent: sent.name)
def test_process_that_ends_while_it_holds_a_message_costs_no_retry(redis_url, sent):
    with (
        Process([sys.executable, "-c", CONSUMER, redis_url], stdout=subprocess.PIPE) as process,
        DelayQueue("reminders", url=redis_url, tick="100ms", ahead=0) as queue,
    ):
        wait_until(lambda: queue.workers())
        due = hold(queue, retries=0)
        process.send_signal(sent)
        assert process.wait(PATIENCE) == (0 if sent == signal.SIGTERM else -sent)
        assert process.stdout.read() == b""
        seen = []
        queue.callback(lambda message: seen.append((time.time(), message.attempt, message.retries_left)))
        queue.start_consume()
        wait_until(lambda: seen, timeout=20)
        ((at, attempt, left),) = seen
        assert due <= at < due + (0.5 if sent == signal.SIGTERM else 10)
        assert (attempt, left) == (1 if sent == signal.SIGTERM else attempt, 0)
        assert queue.counts().dead == 0
