"""Leases: renewed while a callback works, lost when it is too slow or its process gone."""

from __future__ import annotations

import threading
import time

import pytest

from tests.support.faces import Blocking
from tests.support.waiting import wait_until

threads = pytest.mark.parametrize("face", [Blocking], ids=["blocking"], indirect=True)
"""For what hangs: the callbacks of an asyncio queue are cancelled at their timeout."""


@pytest.mark.long
def test_callback_longer_than_three_leases_is_one_delivery(open_queue):
    attempts = []
    queue = open_queue(lease="1s")

    @queue.callback
    def work(message):
        attempts.append(message.attempt)
        time.sleep(3)
        assert not message.lease_lost

    queue.send_delay_msg("long work")
    other = open_queue(lease="1s", callback=lambda message: attempts.append(message.attempt))
    queue.start_consume()
    wait_until(lambda: attempts)
    other.start_consume()

    wait_until(lambda: queue.counts().living == 0)
    assert attempts == [1]
    assert queue.stats().totals["acked"] == 1


@pytest.mark.long
def test_prefetched_messages_behind_a_slow_callback_keep_their_leases(open_queue):
    attempts = []
    queue = open_queue(lease="1s", prefetch=5)

    @queue.callback
    def work(message):
        attempts.append(message.attempt)
        if len(attempts) == 1:
            time.sleep(2.2)

    queue.send_many(range(6))
    queue.run(burst=True)

    assert attempts == [1] * 6


def test_a_hanging_callback_fails_after_max_consume_duration(open_queue, gate):
    attempts = []

    def work(message):
        attempts.append((message.attempt, time.monotonic()))
        if message.attempt == 1:
            gate.wait(30)

    queue = open_queue(callback=work, max_consume_duration="500ms", concurrency=2, nack_delay=0.1)
    queue.send_delay_msg("poison", retries=3)
    queue.start_consume()

    wait_until(lambda: len(attempts) == 2)
    (first, began), (second, again) = attempts
    assert (first, second) == (1, 2)
    assert again - began >= 0.5
    wait_until(lambda: queue.counts().living == 0)


def test_hanging_callback_does_not_block_its_consumer(open_queue, gate):
    seen = []

    def work(message):
        seen.append(message.payload)
        if message.payload == "poison" and message.attempt == 1:
            gate.wait(30)

    queue = open_queue(callback=work, max_consume_duration="300ms", concurrency=1, nack_delay=0.1)
    queue.send_many(["poison", "b", "c"])
    queue.start_consume()

    wait_until(lambda: sorted(seen) == ["b", "c", "poison", "poison"])


@pytest.mark.long
@threads
def test_consumer_says_that_many_callbacks_hang_and_claims_again_when_they_end(open_queue, gate, caplog):
    seen = []

    def work(message):
        seen.append(message.payload)
        gate.wait(30)

    queue = open_queue(callback=work, lease="300ms", max_consume_duration="100ms")
    queue.send_many(range(15), retries=0)
    queue.start_consume()
    wait_until(lambda: "10 callbacks hang: no more messages are claimed" in caplog.text)
    queue.send_many(range(15, 20), retries=0)
    wait_until(lambda: queue.counts().dead == 10)  # their leases have run out, ticks after it has stopped to claim
    assert len(seen) == 10

    gate.set()
    wait_until(lambda: queue.counts().living == 0)
    assert "messages are claimed again" in caplog.text
    assert len(seen) == 20


def test_hanging_callback_that_returns_does_not_change_the_concurrency(open_queue, gate):
    running, most, hung = [], [], threading.Event()

    def work(message):
        if message.payload == "poison":
            if message.attempt == 1:
                gate.wait(30)
                hung.set()
            return
        running.append(message.payload)
        most.append(len(running))
        time.sleep(0.01)
        running.remove(message.payload)

    queue = open_queue(callback=work, max_consume_duration="300ms", concurrency=1, nack_delay=0.1)
    queue.send_delay_msg("poison")
    queue.start_consume()
    wait_until(lambda: queue.counts().living == 0)  # its second delivery went well
    gate.set()
    hung.wait(30)
    queue.send_many(range(30))

    wait_until(lambda: len(most) == 30)
    assert max(most) == 1


def test_hanging_callback_that_returns_late_settles_nothing_twice(open_queue, gate):
    queue = open_queue(max_consume_duration="300ms", concurrency=2, nack_delay=0.1)

    @queue.callback
    def work(message):
        if message.attempt == 1:
            gate.wait(30)

    queue.send_delay_msg("poison")
    consuming = queue.start_consume()
    wait_until(lambda: queue.counts().living == 0)

    consuming.stop()
    gate.set()
    consuming.wait()

    totals = queue.stats().totals
    assert (totals["delivered"], totals["acked"], totals["nacked"]) == (2, 1, 1)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_worker_survives_a_thousand_failing_callbacks(open_queue, concurrency, caplog):
    seen = []

    def work(message):
        if message.payload == "bad":
            raise ValueError("no such user")
        seen.append(message.payload)

    caplog.set_level("CRITICAL", "delayq")
    queue = open_queue(callback=work, concurrency=concurrency)
    queue.send_many(["bad"] * 1000, retries=0)
    consuming = queue.start_consume()
    wait_until(lambda: queue.counts().dead == 1000)

    assert consuming.running
    queue.send_many(range(1000))
    wait_until(lambda: len(seen) == 1000)
