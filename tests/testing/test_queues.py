"""The queues of a test are its own, and nothing of them is left."""

from __future__ import annotations

import asyncio
import threading

import pytest
import redis

from delayq import AsyncDelayQueue, DelayQueue, Discard
from delayq.clients import _MEMORY
from delayq.testing import drain
from delayq.testing.place import AsyncQueues, Place, Queues
from delayq.wakeup import LISTENER


@pytest.fixture
def place(delayq_url):
    """A place that the test removes by itself."""
    return Place(delayq_url)


def keys_left(place):
    if place.url.startswith("memory://"):
        return [name for name in _MEMORY if place.prefix in name]
    with redis.Redis.from_url(place.url) as client:
        return client.keys("*")


def test_nothing_is_left_of_a_test(place):
    queues = Queues(place)
    one, other = queues("one", dedupe_window="1h", events=True), queues("other")
    one.send_many(["x", "y"])
    other.callback(lambda message: False)
    other.send_delay_msg("z", retries=0)
    other.run(burst=True)
    assert keys_left(place)

    queues.close()
    place.remove()
    assert keys_left(place) == []


def test_listeners_of_consumers_that_have_ended_end_with_the_test(place):
    queues = Queues(place)
    for name in ("one", "other", "one"):
        queue = queues(name)
        queue.callback(lambda message: None)
        queue.start_consume()
    queues.close()
    place.remove()
    if not place.url.startswith("memory://"):
        assert not [one for one in threading.enumerate() if one.name == LISTENER and one not in queues._before]
    assert keys_left(place) == []


def test_places_do_not_see_each_other(delayq_url):
    one, other = Place(delayq_url), Place(delayq_url)
    first, second = Queues(one), Queues(other)
    first("queue").send_delay_msg("x")
    assert second("queue").counts().living == 0
    first.close()
    one.remove()
    second.close()
    other.remove()


def test_a_consumer_that_still_runs_is_stopped(place):
    queues = Queues(place)
    queue = queues()
    queue.callback(lambda message: None)
    consuming = queue.start_consume()
    queues.close()
    place.remove()
    assert not consuming.running


def test_queues_of_one_name_are_one_queue(delayq_queues):
    delayq_queues("mails").send_delay_msg("x")
    assert delayq_queues("mails").counts().ready + delayq_queues("mails").counts().pending == 1
    assert delayq_queues("bills").counts().living == 0


def test_options_are_those_of_a_queue(delayq_queues):
    queue = delayq_queues(codec="bytes", concurrency=4)
    assert queue.send_delay_msg(b"\x00").new
    assert queue.settings.concurrency == 4


def test_a_queue_of_the_program_is_taken_in_with_all_it_has(place, delayq_clock):
    seen = []
    ours = DelayQueue("mails", url="redis://localhost:1/0", deadline="10ms", default_retries=7)
    ours.callback(lambda message: seen.append((message.payload, message.retries_left)))
    queues = Queues(place)

    assert queues.adopt(ours) is ours
    ours.send_delay_msg("x", "1d")
    ours.send_many(["y"], "2d")
    assert ours.cancel("nobody") == "gone"
    assert queues("mails").counts().pending == 2
    assert [one.payload for one in drain(ours)] == ["x", "y"]
    assert seen == [("x", 7), ("y", 7)]

    queues.close()
    place.remove()
    assert ours.prefix == "delayq"
    with pytest.raises(ConnectionError):
        ours.counts()


def test_what_is_asked_of_the_real_server_is_not_asked_of_the_one_of_the_test(delayq_queues):
    ours = DelayQueue("mails", url="redis://localhost:1/0", strict=True, durability="replicated", replicas=2)
    assert delayq_queues.adopt(ours).send_delay_msg("x").new
    assert delayq_queues("mails").counts().living == 1


def test_it_can_be_taken_in_by_one_test_after_the_other(delayq_url, delayq_clock):
    ours = DelayQueue("mails", url="redis://localhost:1/0", callback=lambda message: None)
    for _ in range(2):
        place = Place(delayq_url)
        queues = Queues(place)
        queues.adopt(ours).send_delay_msg("x")
        assert len(drain(ours)) == 1
        queues.close()
        place.remove()


def test_one_that_was_in_use_leaves_nothing_either(place, delayq_queues):
    ours = delayq_queues("mails")
    ours.send_delay_msg("x")
    before = sorted(keys_left(place))
    queues = Queues(place)
    queues.adopt(ours).send_delay_msg("y")
    queues.close()
    place.remove()
    assert sorted(keys_left(place)) == before


def test_what_it_consumes_is_stopped_when_it_is_given_back(place):
    ours = DelayQueue("mails", url="redis://localhost:1/0", callback=lambda message: None)
    queues = Queues(place)
    consuming = queues.adopt(ours).start_consume()
    queues.close()
    place.remove()
    assert not consuming.running
    assert ours.stop_consume()


def test_an_asyncio_queue_of_the_program_lives_in_one_loop_after_the_other(delayq_url, delayq_clock):
    ours = AsyncDelayQueue("mails", url="redis://localhost:1/0")

    @ours.callback
    async def work(message):
        raise Discard("enough")

    async def scenario():
        await ours.send_delay_msg("x", "1d")
        delivered = await drain(ours)
        await ours.close()
        return delivered

    for _ in range(2):
        place = Place(delayq_url)
        queues = AsyncQueues(place)
        queues.adopt(ours)
        assert [one.outcome for one in asyncio.run(scenario())] == ["discarded"]
        queues.close()
        place.remove()


def test_both_faces_meet_in_one_place(delayq_queues, delayq_async_queues, delayq_async_queue):
    async def count():
        async with delayq_async_queue:
            return (await delayq_async_queue.counts()).living

    delayq_queues().send_delay_msg("x")
    assert asyncio.run(count()) == 1
    assert (delayq_async_queues.url, delayq_async_queues.prefix) == (delayq_queues.url, delayq_queues.prefix)
