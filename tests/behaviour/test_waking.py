"""Waking up: an idle consumer notices changes at once, although it rarely polls."""

from __future__ import annotations

import threading

import pytest

from delayq import Reject
from tests.behaviour.places import everywhere
from tests.support.waiting import wait_until

pytestmark = everywhere

TICK = "20s"
"""Too long for anything in this file to be caused by a tick."""
SOON = 5.0


@pytest.fixture
def seen():
    return []


@pytest.fixture
def consumer(open_queue, seen):
    """An idle consumer that has processed one message."""
    queue = open_queue(callback=lambda message: seen.append(message), tick=TICK)
    queue.send_delay_msg("first")
    queue.start_consume()
    wait_until(lambda: len(seen) == 1 and queue.counts().living == 0)
    seen.clear()
    return queue


@pytest.fixture
def other(open_queue):
    """The same queue, seen from another process."""
    return open_queue()


def test_a_message_sent_to_an_idle_consumer_is_delivered_at_once(consumer, other, seen):
    for number in range(5):
        other.send_delay_msg(number)
        wait_until(lambda number=number: len(seen) == number + 1, SOON)

    assert min(message.lateness for message in seen) < 0.1


def test_a_message_is_delivered_when_it_becomes_due(consumer, other, seen):
    for _ in range(3):
        other.send_delay_msg("soon", "150ms")
    wait_until(lambda: len(seen) == 3, SOON)

    lateness = [message.lateness for message in seen]
    assert min(lateness) >= 0
    assert min(lateness) < 0.1


def test_sooner_message_does_not_wait_for_a_later_one(consumer, other, seen):
    other.send_delay_msg("later", 15)
    other.send_delay_msg("sooner", "100ms")

    wait_until(lambda: [message.payload for message in seen] == ["sooner"], SOON)


def test_reschedule_wakes_a_consumer(consumer, other, seen):
    other.send_delay_msg("later", 60, id="m")
    other.reschedule("m", 0)

    wait_until(lambda: [message.id for message in seen] == ["m"], SOON)


def test_replace_wakes_a_consumer(consumer, other, seen):
    other.send_delay_msg("later", 60, id="m")
    other.send_delay_msg("now", id="m", replace=True)

    wait_until(lambda: [message.payload for message in seen] == ["now"], SOON)


def test_release_wakes_a_consumer(open_queue, seen, other):
    other.send_delay_msg("hello", id="m")
    (message,) = other.lease("60s", n=1)
    queue = open_queue(callback=lambda message: seen.append(message.id), tick=TICK)
    queue.start_consume()
    queue.send_delay_msg("first", id="first")
    wait_until(lambda: seen == ["first"])

    message.release()

    wait_until(lambda: seen == ["first", "m"], SOON)


def test_nack_wakes_a_consumer(open_queue, seen, other):
    other.send_delay_msg("hello", id="m")
    (message,) = other.lease("60s", n=1)
    queue = open_queue(callback=lambda message: seen.append(message.id), tick=TICK)
    queue.start_consume()
    queue.send_delay_msg("first", id="first")
    wait_until(lambda: seen == ["first"])

    message.nack(delay="50ms")

    wait_until(lambda: seen == ["first", "m"], SOON)


def test_expired_lease_is_redelivered_in_time(open_queue, seen, other):
    other.send_delay_msg("hello", id="m")
    other.lease("400ms", n=1)
    queue = open_queue(callback=lambda message: seen.append(message), tick=TICK)
    queue.start_consume()

    wait_until(lambda: [message.id for message in seen] == ["m"], SOON)


def test_redrive_wakes_a_consumer(open_queue, seen, other):
    def work(message):
        seen.append(message.id)
        if len(seen) == 1:
            raise Reject("not today")

    queue = open_queue(callback=work, tick=TICK)
    queue.start_consume()
    queue.send_delay_msg("hello", id="m")
    wait_until(lambda: other.counts().dead == 1)

    other.dead.redrive("m")

    wait_until(lambda: seen == ["m", "m"], SOON)


def test_bulk_send_wakes_several_consumers(open_queue):
    together = threading.Barrier(3)
    queues = [
        open_queue(callback=lambda message: together.wait(SOON), tick=TICK, prefetch=0, concurrency=1) for _ in range(3)
    ]
    for queue in queues:
        queue.start_consume()

    queues[0].send_many(range(3))  # none returns before all three run

    wait_until(lambda: queues[0].counts().living == 0, SOON)
    assert queues[0].stats().totals == {"acked": 3, "delivered": 3, "sent": 3}


def test_full_consumer_passes_the_wakeup_to_an_idle_one(open_queue, gate, seen):
    full = open_queue(callback=lambda message: gate.wait(30), tick=TICK, prefetch=0, concurrency=1)
    full.send_delay_msg("plug")
    full.start_consume()
    wait_until(lambda: full.counts().active == 1)
    idle = open_queue(callback=lambda message: seen.append(message.payload), tick=TICK)
    idle.start_consume()

    for number in range(5):
        full.send_delay_msg(number)
        wait_until(lambda number=number: seen == [*range(number + 1)], SOON)


def test_finished_callback_frees_capacity_at_once(open_queue, seen):
    queue = open_queue(callback=lambda message: seen.append(message.payload), tick=TICK, prefetch=0, concurrency=1)
    queue.start_consume()
    queue.send_many(range(50))

    wait_until(lambda: seen == [*range(50)], SOON)


def test_a_stop_does_not_wait_for_a_tick(consumer):
    done = []
    stopping = threading.Thread(target=lambda: done.append(consumer.stop_consume()))
    stopping.start()
    stopping.join(SOON)

    assert done == [True]
