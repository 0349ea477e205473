"""Whole scenarios with real workers, at the size of a small day's work."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import UTC, datetime

import pytest

from delayq import NewMessage
from tests.support.waiting import wait_until


def test_successful_messages_are_acked_and_failing_ones_retried_until_dead(open_queue):
    deliveries = Counter()

    def work(message):
        deliveries[message.payload] += 1
        return message.payload % 2 == 0

    queue = open_queue(callback=work, concurrency=4, nack_delay=0)
    queue.send_many(range(1_000), retries=3)

    queue.run(burst=True)

    assert deliveries == {number: 4 if number % 2 else 1 for number in range(1_000)}
    dead = queue.dead.list(limit=1_000).messages
    assert sorted(message.payload for message in dead) == [*range(1, 1_000, 2)]
    assert {(message.attempts, message.reason) for message in dead} == {(4, "retries spent")}
    assert queue.counts().living == 0


def test_four_workers_deliver_each_of_101_messages_once(open_queue):
    deliveries = Counter()
    queue = open_queue(callback=lambda message: deliveries.update([message.payload]), concurrency=4)
    queue.send_many(range(101))

    queue.run(burst=True)

    assert deliveries == dict.fromkeys(range(101), 1)


def test_stop_inside_the_tenth_callback_ends_the_run_without_losing_messages(open_queue):
    seen = []
    queue = open_queue()

    @queue.callback
    def work(message):
        seen.append(message.payload)
        if len(seen) == 10:
            assert queue.stop_consume() is False

    queue.send_many(range(100))
    queue.run()

    counts = queue.counts()
    assert 10 <= len(seen) < 100
    assert (counts.active, counts.living) == (0, 100 - len(seen))
    assert queue.stop_consume()
    assert queue.stats().totals["acked"] == len(seen)


@pytest.mark.long
def test_messages_of_a_steady_producer_are_never_early(open_queue):
    sent, early, seen = {}, [], []

    def work(message):
        now = time.monotonic()
        if now < sent[message.payload] + 1:
            early.append(message.payload)
        seen.append(message.payload)

    consumer, producer = open_queue(callback=work), open_queue()
    consumer.start_consume()
    for number in range(8):
        sent[number] = time.monotonic()
        producer.send_delay_msg(number, 1)
        time.sleep(0.25)

    wait_until(lambda: len(seen) == 8)
    assert early == []


@pytest.mark.long
def test_20000_leases_that_expire_together_are_all_retried(open_queue, gate):
    full = open_queue(callback=lambda message: gate.wait(60), concurrency=1, prefetch=0)
    full.send_delay_msg("plug")
    full.start_consume()
    wait_until(lambda: full.counts().active == 1)
    puller = open_queue()
    puller.send_many(range(20_000))
    leased = 0
    while leased < 20_000:
        leased += len(puller.lease("8s", n=1_000))
    assert puller.counts().active == 20_001

    wait_until(lambda: puller.counts().retry)

    wait_until(lambda: puller.counts().retry == 20_000)
    page = puller.list("retry", limit=1_000).messages
    assert {(message.attempts, message.retries_left, message.error) for message in page} == {(1, 2, "lease expired")}


def test_consumer_claims_no_more_than_fetch_limit_unsettled_messages(open_queue, gate):
    queue = open_queue(callback=lambda message: gate.wait(60), concurrency=20, fetch_limit=10, tick="20ms")
    queue.send_many(range(30))
    queue.start_consume()
    wait_until(lambda: queue.counts().active == 10)

    # Sent last, promoted by the same turns that would claim it: when it is ready, others could have been claimed.
    queue.send_delay_msg("last", id="last")
    wait_until(lambda: queue.get("last").state == "ready")
    assert queue.counts().active == 10
    assert queue.stats().totals["delivered"] == 10

    gate.set()
    wait_until(lambda: queue.counts().living == 0)


@pytest.mark.long
def test_nacked_message_is_delivered_once_after_its_delay(open_queue):
    queue = open_queue(nack_delay=1)
    queue.send_delay_msg("hello")
    (message,) = queue.lease(n=1)
    assert message.nack()

    assert len(queue.lease(n=10)) == 0

    found = queue.lease(n=10, block=5)
    assert [message.attempt for message in found] == [2]
    assert len(queue.lease(n=10)) == 0


@pytest.mark.long
def test_cancelled_message_is_never_delivered_from_any_waiting_state(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.id), nack_delay="1s")
    queue.send_delay_msg("hello", "500ms", id="pending")
    queue.send_delay_msg("hello", id="nacked")
    queue.lease(n=1).messages[0].nack()
    queue.send_delay_msg("hello", id="a-held")
    queue.send_delay_msg("hello", id="ready")
    (held,) = queue.lease(n=1)
    states = {id: queue.get(id).state for id in ("pending", "ready", "nacked")}

    assert [queue.cancel(id) for id in ("pending", "ready", "nacked")] == ["cancelled"] * 3

    assert states["pending"] == "pending"
    assert states["nacked"] == "backoff"
    held.nack(delay="1500ms")  # due after all the others would have been
    queue.start_consume()
    wait_until(lambda: seen)
    assert seen == ["a-held"]


def test_message_cancelled_and_sent_again_is_delivered_once_at_its_new_time(open_queue):
    seen = []
    queue = open_queue(callback=lambda message: seen.append((message.payload, time.monotonic() - sent)))
    queue.send_delay_msg("first", "200ms", id="m")
    assert queue.cancel("m") == "cancelled"
    sent = time.monotonic()
    assert queue.send_delay_msg("second", "600ms", id="m").new
    queue.start_consume()

    wait_until(lambda: seen)
    ((payload, waited),) = seen
    assert payload == "second"
    assert waited >= 0.6
    queue.stop_consume()
    queue.run(burst=True)
    assert len(seen) == 1


def test_counts_follow_a_thousand_messages_from_pending_to_active(open_queue):
    queue = open_queue()
    past = datetime(2001, 9, 9, tzinfo=UTC)
    queue.send_many([NewMessage(number, at=past) for number in range(1_000)])
    assert queue.counts().ready == 1_000

    (first,) = queue.lease(n=1)
    first.release()
    counts = queue.counts()
    assert (counts.pending, counts.ready, counts.active) == (0, 1_000, 0)

    queue.lease("60s", n=500)
    counts = queue.counts()
    assert (counts.pending, counts.ready, counts.active) == (0, 500, 500)


@pytest.mark.long
def test_slow_work_with_a_short_lease_is_delivered_once(open_queue):
    many, deliveries = 120, Counter()

    def work(message):
        deliveries[message.payload] += 1
        time.sleep(0.05)

    queue = open_queue(callback=work, lease="2s", concurrency=1)
    queue.send_many(range(many))

    queue.run(burst=True)

    assert deliveries == dict.fromkeys(range(many), 1)
    totals = queue.stats().totals
    assert (totals["acked"], totals["delivered"]) == (many, many)


@pytest.mark.long
def test_new_messages_do_not_delay_a_retry(open_queue):
    seen = []

    def work(message):
        seen.append(message.payload)
        time.sleep(0.001)
        return message.payload != "flaky" or message.attempt == 2

    queue = open_queue(callback=work, nack_delay=0)
    queue.send_many(["flaky", *range(2_000)])

    queue.run(burst=True)

    assert [at for at, payload in enumerate(seen) if payload == "flaky"][1] < 1_000


@pytest.mark.long
def test_idle_consumer_sends_few_commands(open_queue, redis_client):
    consumer = open_queue(callback=lambda message: None)
    consuming = consumer.start_consume()
    consumer.send_delay_msg("hello")
    wait_until(lambda: consumer.counts().living == 0)

    def calls_during(seconds):
        redis_client.config_resetstat()
        consuming.wait(seconds)
        return {name: figures["calls"] for name, figures in redis_client.info("commandstats").items()}

    def is_at_rest():
        calls = calls_during(1)
        return "cmdstat_exists" in calls and "cmdstat_evalsha" not in calls  # the look has found an empty queue

    wait_until(is_at_rest)
    asked = calls_during(3)

    assert "cmdstat_evalsha" not in asked
    assert asked["cmdstat_exists"] <= 4  # once a tick
    assert asked.get("cmdstat_blpop", 0) <= 3


def test_several_producers_and_consumers_lose_and_duplicate_nothing(open_queue):
    deliveries = Counter()
    consumers = [
        open_queue(callback=lambda message: deliveries.update([message.payload]), concurrency=3) for _ in range(3)
    ]
    for consumer in consumers:
        consumer.start_consume()

    def produce(first):
        queue = open_queue()
        for number in range(first, first + 200):
            queue.send_delay_msg(number, number % 5 * 0.05)

    producers = [threading.Thread(target=produce, args=[first]) for first in range(0, 600, 200)]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join()

    wait_until(lambda: consumers[0].counts().living == 0)
    assert deliveries == dict.fromkeys(range(600), 1)
