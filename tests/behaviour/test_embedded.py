"""The embedded mode: `memory://` holds queues in the process, shared by name."""

from __future__ import annotations

import threading

import pytest

from delayq import DelayQueue
from tests.support.faces import Asyncio
from tests.support.waiting import wait_until

pytestmark = pytest.mark.parametrize("url", ["memory"], indirect=True)


def test_queues_at_the_same_address_share_messages(open_queue, url):
    open_queue(url=url).send_delay_msg("hello", id="m")

    assert open_queue(url=url).get("m").payload == "hello"


def test_queues_at_different_addresses_are_separate(open_queue, url):
    open_queue(url=url).send_delay_msg("hello", id="m")

    assert open_queue(url=f"{url}-2").get("m") is None


def test_address_without_a_name_is_shared_too(open_queue):
    first, second = open_queue(url="memory://"), open_queue(url="memory://")
    first.purge()
    first.send_delay_msg("hello", id="m")

    assert second.get("m").payload == "hello"
    assert first.purge() == 1


def test_closing_a_queue_keeps_its_messages(open_queue, url):
    with open_queue(url=url) as queue:
        queue.send_delay_msg("hello", id="m")

    assert open_queue(url=url).get("m").payload == "hello"


def test_embedded_queue_passes_the_strict_check(open_queue):
    open_queue(strict=True).send_delay_msg("hello")


def test_send_from_another_thread_wakes_a_consumer(open_queue, url):
    seen = []
    queue = open_queue(callback=lambda message: seen.append(message.lateness), tick="20s")
    queue.start_consume()
    sender = threading.Thread(target=lambda: open_queue(url=url).send_delay_msg("hello"))
    sender.start()
    sender.join()

    wait_until(lambda: seen)


def test_queue_can_be_closed_while_its_consumer_waits(open_queue):
    queue = open_queue(callback=lambda message: None)
    consuming = queue.start_consume()
    assert not consuming.wait(0.2)

    queue.close()

    assert not consuming.running


def test_blocking_and_asyncio_queues_share_messages(open_queue, url):
    seen = []
    with DelayQueue("reminders", url=url) as queue:
        queue.send_delay_msg("hello")

    consumer = open_queue(callback=lambda message: seen.append(message.payload))
    consumer.run(burst=True)

    assert seen == ["hello"]


def test_blocking_send_wakes_an_asyncio_consumer(url, face):
    seen, other = [], Asyncio()
    try:
        queue = other.open("reminders", url=url, callback=lambda message: seen.append(message.payload), tick="20s")
        queue.start_consume()
        sender = face.open("reminders", url=url)
        for number in range(3):
            sender.send_delay_msg(number)
            wait_until(lambda number=number: len(seen) == number + 1)
        queue.close()
        sender.close()
    finally:
        other.close()
