"""The embedded mode: `memory://` holds queues in the process, shared by name."""

from __future__ import annotations

import threading

import pytest

from delayq import DelayQueue
from tests.support.faces import Asyncio
from tests.support.waiting import wait_until

pytestmark = pytest.mark.parametrize("url", ["memory"], indirect=True)


def test_queues_at_one_address_are_one(open_queue, url):
    open_queue(url=url).send_delay_msg("hello", id="m")

    assert open_queue(url=url).get("m").payload == "hello"


def test_queues_at_two_addresses_are_two(open_queue, url):
    open_queue(url=url).send_delay_msg("hello", id="m")

    assert open_queue(url=f"{url}-2").get("m") is None


def test_an_address_without_a_name_is_one_too(open_queue):
    first, second = open_queue(url="memory://"), open_queue(url="memory://")
    first.purge()
    first.send_delay_msg("hello", id="m")

    assert second.get("m").payload == "hello"
    assert first.purge() == 1


def test_nothing_is_lost_when_a_queue_is_closed(open_queue, url):
    with open_queue(url=url) as queue:
        queue.send_delay_msg("hello", id="m")

    assert open_queue(url=url).get("m").payload == "hello"


def test_it_is_as_safe_as_it_can_be(open_queue):
    open_queue(strict=True).send_delay_msg("hello")


def test_a_consumer_wakes_for_another_thread(open_queue, url):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.lateness), tick="20s")
    queue.start_consume()
    sender = threading.Thread(target=lambda: open_queue(url=url).send_delay_msg("hello"))
    sender.start()
    sender.join()

    wait_until(lambda: seen, 5)


def test_a_queue_can_be_closed_while_it_waits(open_queue):
    queue = open_queue(callback=lambda message: None)
    consuming = queue.start_consume()
    assert not consuming.wait(0.2)

    queue.close()

    assert not consuming.running


def test_both_faces_share_it(open_queue, url):
    seen = []
    with DelayQueue("reminders", url=url) as queue:
        queue.send_delay_msg("hello")

    consumer = open_queue(callback=lambda message: seen.append(message.payload))
    consumer.run(burst=True)

    assert seen == ["hello"]


def test_a_consumer_of_one_face_wakes_for_a_send_of_the_other(url, face):
    seen, other = [], Asyncio()
    try:
        queue = other.open("reminders", url=url, callback=lambda message: seen.append(message.payload), tick="20s")
        queue.start_consume()
        sender = face.open("reminders", url=url)
        for number in range(3):
            sender.send_delay_msg(number)
            wait_until(lambda number=number: len(seen) == number + 1, 5)
        queue.close()
        sender.close()
    finally:
        other.close()
