"""Cancelling while messages are promoted: the result is exact, and a cancelled message never runs."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter, defaultdict

import pytest

from delayq import NewMessage
from tests.failures.programs import one_face, program
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

BATCH = 250


def cancel_against_promotion(open_queue, rounds: int) -> Counter[str]:
    """Cancel messages around the time when they are due and delivered; return how often each result came."""
    started, ended = Counter(), Counter()

    def work(message):
        started[message.payload] += 1
        if message.payload % 50 == 0:
            time.sleep(0.005)
        ended[message.payload] += 1
        if message.payload % 5 == 0:
            message.reject("no such user")

    queue = open_queue(callback=work, concurrency=4, prefetch=4, dead_max=rounds)
    other = open_queue()
    queue.start_consume()
    replies: dict[str, set[int]] = defaultdict(set)
    pace = 0.001
    for first in range(0, rounds, BATCH):
        numbers = range(first, first + BATCH)
        # Each is due at some time before or after its turn to be cancelled, at the pace of the batch before.
        delays = [random.uniform(0, 2 * pace * (turn + 1)) for turn in range(BATCH)]
        messages = [NewMessage(number, delay=delay) for number, delay in zip(numbers, delays, strict=True)]
        ids = other.send_many(messages).ids
        began = time.monotonic()
        for number, id in zip(numbers, ids, strict=True):
            before = ended[number]
            outcome = other.cancel(id)
            replies[outcome].add(number)
            if outcome == "gone":
                assert ended[number], "gone before it was done"
            elif outcome == "cancelled":
                assert not before, "cancelled after it was done"
        pace = (time.monotonic() - began) / BATCH
    wait_until(lambda: queue.counts().living == 0, 60)
    assert queue.stop_consume()

    counts = queue.counts()
    assert all(number not in started for number in replies["cancelled"]), "delivered though it was cancelled"
    assert started == dict.fromkeys(replies["running"] | replies["gone"] | replies["dead"], 1)
    assert replies["dead"] <= {number for number in started if number % 5 == 0}
    assert counts.dead == sum(number % 5 == 0 for number in started)
    totals = queue.stats().totals
    claimed = totals["delivered"] - totals.get("released", 0)
    assert (totals.get("cancelled", 0), claimed) == (len(replies["cancelled"]), len(started))
    return Counter({outcome: len(numbers) for outcome, numbers in replies.items()})


@pytest.mark.long
@pytest.mark.timeout(180)
def test_two_thousand_cancels_return_exact_outcomes(open_queue):
    replies = cancel_against_promotion(open_queue, 2000)
    assert replies.total() == 2000
    assert replies["cancelled"] > 50
    assert replies["gone"] + replies["dead"] + replies["running"] > 50


@pytest.mark.torture
def test_a_hundred_thousand_cancels_return_exact_outcomes(open_queue):
    replies = cancel_against_promotion(open_queue, 100_000)
    assert replies.total() == 100_000
    assert set(replies) == {"cancelled", "running", "gone", "dead"}
    print(dict(replies))


WORKER = """
import sys
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1], prefetch=int(sys.argv[2]) if len(sys.argv) > 2 else None)

@queue.callback
def work(message):
    if message.payload == "quick":
        return
    print(message.id, message.payload, message.attempt, flush=True)
    if message.payload == "slow":
        sys.stdin.readline()

queue.run()
"""


@pytest.fixture(params=["default", "prefetch=5"])
def held(request, open_queue, url):
    """A worker that processes `0-slow` until it is told to go on; it holds `a` to `d` unstarted behind that."""
    queue = open_queue()
    with program(WORKER, url, *(["5"] if request.param == "prefetch=5" else [])) as worker:
        queue.send_many(["quick"] * 500)  # the default prefetches once it has measured callbacks
        wait_until(lambda: queue.counts().living == 0)
        queue.send_many([NewMessage("slow", id="0-slow"), *(NewMessage("first", id=id) for id in "abcd")])
        assert worker.stdout.readline() == "0-slow slow 1\n"
        yield queue, worker


def rest_of(queue, worker):
    """Return what the worker processes once it goes on."""
    worker.stdin.write("\n")
    worker.stdin.flush()
    wait_until(lambda: queue.counts().living == 0)
    worker.terminate()
    return sorted(worker.stdout.read().splitlines())


@pytest.mark.long
@one_face
def test_message_that_was_claimed_and_not_started_is_cancelled_and_killed(held):
    queue, worker = held

    assert queue.cancel("a") == "cancelled"
    assert queue.kill("b") == "killed"
    assert queue.cancel("0-slow") == queue.kill("0-slow") == "running"
    assert queue.get("a") is None
    assert (queue.get("b").reason, queue.get("b").attempts) == ("killed", 0)

    assert rest_of(queue, worker) == ["c first 1", "d first 1"]
    totals = queue.stats().totals
    assert (totals["cancelled"], totals.get("nacked", 0), totals.get("expired", 0)) == (1, 0, 0)


@pytest.mark.long
@one_face
def test_message_that_was_claimed_and_not_started_is_edited(held):
    queue, worker = held

    assert queue.edit("a", payload="second") == "edited"
    assert queue.edit("b", payload="second", priority=1) == "edited"
    assert queue.edit("0-slow", payload="second") == "running"

    assert rest_of(queue, worker) == ["a second 1", "b second 1", "c first 1", "d first 1"]


@pytest.mark.long
@one_face
def test_message_that_was_claimed_and_not_started_is_rescheduled_and_replaced(held):
    queue, worker = held

    assert queue.reschedule("a", "1h") == "rescheduled"
    assert queue.send_delay_msg("second", id="b", replace=True).status == "replaced"
    many = [NewMessage("second", id="c"), NewMessage("second", id="0-slow")]
    assert [sent.status for sent in queue.send_many(many, replace=True)] == ["replaced", "running"]
    assert (queue.get("a").state, queue.get("a").attempts) == ("pending", 0)
    assert queue.cancel("a") == "cancelled"

    assert rest_of(queue, worker) == ["b second 1", "c second 1", "d first 1"]


@pytest.mark.long
@one_face
def test_message_of_a_worker_that_does_not_answer_counts_as_running(held):
    queue, worker = held
    worker.send_signal(signal.SIGSTOP)
    outcomes = {queue.cancel("a")}
    worker.send_signal(signal.SIGCONT)
    if outcomes == {"running"}:  # else it was released before the worker was stopped
        wait_until(lambda: not queue.get("a") or queue.get("a").state != "active" or queue.cancel("a") == "cancelled")
    assert outcomes <= {"running", "cancelled"}
    started = rest_of(queue, worker)
    assert ("a first 1" in started) == (queue.stats().totals.get("cancelled", 0) == 0)
