"""Leases: after losing one a worker settles nothing, one that is renewed stays valid, and lost replies cost nothing."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter

import pytest

from tests.failures.programs import assert_soon, one_face, program
from tests.support.faulty_proxy import FaultyProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

HOLDER = """
import json, sys
from delayq import DelayQueue

queue = DelayQueue("reminders", url=sys.argv[1])
(message,) = queue.lease("300ms", n=1, block=10)
print(message.attempt, flush=True)
sys.stdin.readline()
acts = {"extend": lambda: message.extend("60s"), "nack": message.nack, "release": message.release, "ack": message.ack,
        "reject": lambda: message.reject("late")}
print(json.dumps([acts[act]() for act in sys.argv[2].split()]), flush=True)
"""


def frozen_beyond_its_lease(url, acts: str, meanwhile) -> list[bool]:
    """Freeze a process with a message in flight, do something, resume it, and return its replies."""
    with program(HOLDER, url, acts) as holder:
        assert holder.stdout.readline() == "1\n"
        holder.send_signal(signal.SIGSTOP)
        meanwhile()
        holder.send_signal(signal.SIGCONT)
        holder.stdin.write("\n")
        holder.stdin.flush()
        return json.loads(holder.stdout.readline())


def take_over(queue):
    (message,) = queue.lease("60s", n=1, block=10)
    assert message.attempt == 2
    return message


@pytest.mark.long
@one_face
def test_frozen_worker_cannot_extend_nack_release_or_reject_after_redelivery(open_queue, url):
    queue, taken = open_queue(), []
    queue.send_delay_msg("hello", id="m")
    replies = frozen_beyond_its_lease(url, "extend nack release reject", lambda: taken.append(take_over(queue)))
    assert replies == [False] * 4
    found = queue.get("m")
    assert (found.state, found.attempts, found.token) == ("active", 2, taken[0].token)
    assert taken[0].ack()


@pytest.mark.long
@one_face
def test_late_ack_of_a_frozen_worker_counts_if_the_message_is_not_settled(open_queue, url):
    queue, taken = open_queue(), []
    queue.send_delay_msg("hello", id="m")
    assert frozen_beyond_its_lease(url, "ack", lambda: taken.append(take_over(queue))) == [True]
    assert queue.get("m") is None
    assert not taken[0].ack()
    assert queue.stats().totals["acked"] == 1


@pytest.mark.long
@one_face
def test_late_ack_of_a_frozen_worker_is_refused_if_another_has_settled(open_queue, url):
    queue = open_queue()
    queue.send_delay_msg("hello", id="m")
    assert frozen_beyond_its_lease(url, "ack", lambda: take_over(queue).ack()) == [False]
    assert queue.stats().totals["acked"] == 1


@pytest.mark.long
def test_prefetched_messages_of_slow_work_are_delivered_once(open_queue):
    deliveries = Counter()

    def work(message):
        deliveries[message.payload] += 1
        time.sleep(0.02)

    queue = open_queue(callback=work, lease="1s", prefetch=100)
    queue.send_many(range(100))
    other = open_queue(callback=work, lease="1s")
    queue.start_consume()
    wait_until(lambda: queue.counts().active > 50)
    other.start_consume()

    wait_until(lambda: queue.counts().living == 0)
    assert deliveries == dict.fromkeys(range(100), 1)
    assert queue.stats().totals["delivered"] == 100


@pytest.mark.long
def test_lost_replies_to_claims_and_acks_lose_no_capacity_and_no_attempt(open_queue, redis_url, monkeypatch):
    monkeypatch.setattr("delayq.broker.transport.protocol._FIRST_PAUSE", 0.001)
    deliveries, running, most = Counter(), set(), []

    def work(message):
        running.add(message.id)
        most.append(len(running))
        deliveries[message.payload, message.attempt] += 1
        time.sleep(0.002)
        running.discard(message.id)

    with FaultyProxy(redis_url) as proxy:
        queue = open_queue(url=proxy.url, callback=work, concurrency=4, lease="60s")
        other = open_queue()
        queue.start_consume()
        for first in range(0, 400, 10):
            if first < 300:  # after that, all concurrency slots must still be there
                proxy.drop_replies(2)  # of a promotion and claim, of an ack and claim, or of one of them twice
            else:
                most.clear()
            other.send_many(range(first, first + 10))
            wait_until(lambda: other.counts().living == 0)
        assert queue.stop_consume()
        assert proxy.dropped >= 30

    assert deliveries == {(number, 1): 1 for number in range(400)}
    assert max(most) == 4
    totals = other.stats().totals
    assert (totals["acked"], totals["delivered"], totals.get("expired", 0)) == (400, 400, 0)


@pytest.mark.long
def test_retry_is_delivered_within_two_ticks_among_new_messages(open_queue):
    tick = 1.0

    def retry(number: int) -> float:
        times = {}

        def work(message):
            if message.payload == "flaky":
                times[message.attempt] = time.monotonic()
                return message.attempt == 2
            time.sleep(0.001)
            return None

        queue = open_queue(f"reminders-{number}", callback=work, tick=tick, nack_delay=0)
        queue.send_many(
            [*range(500), "flaky", *range(500, 8000)], retries=3
        )  # the consumer first measures how long a callback takes
        queue.start_consume()
        wait_until(lambda: 2 in times)
        assert queue.counts().ready > 500  # saturated still
        queue.stop_consume()
        return times[2] - times[1]

    assert_soon(retry, 0.05 + 2 * tick)  # its nack delay, and two ticks
