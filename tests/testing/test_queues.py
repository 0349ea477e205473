"""The queues of a test are isolated, and leave nothing behind."""

from __future__ import annotations

import asyncio
import threading

import pytest
import redis

from delayq import AsyncDelayQueue, DelayQueue, Discard
from delayq.broker.transport.clients import _MEMORY
from delayq.testing import drain
from delayq.testing.queue_factory import AsyncQueues, Namespace, Queues
from delayq.worker.drivers.wakeup import LISTENER


@pytest.fixture
def namespace(delayq_url):
    """A namespace that the test removes itself."""
    return Namespace(delayq_url)


def keys_left(namespace):
    if namespace.url.startswith("memory://"):
        return [name for name in _MEMORY if namespace.prefix in name]
    with redis.Redis.from_url(namespace.url) as client:
        return client.keys("*")


def test_test_leaves_no_keys(namespace):
    queues = Queues(namespace)
    one, other = queues("one", dedupe_window="1h", events=True), queues("other")
    one.send_many(["x", "y"])
    other.callback(lambda message: False)
    other.send_delay_msg("z", retries=0)
    other.run(burst=True)
    assert keys_left(namespace)

    queues.close()
    namespace.remove()
    assert keys_left(namespace) == []


def test_listeners_of_stopped_consumers_end_with_the_test(namespace):
    queues = Queues(namespace)
    for name in ("one", "other", "one"):
        queue = queues(name)
        queue.callback(lambda message: None)
        queue.start_consume()
    queues.close()
    namespace.remove()
    if not namespace.url.startswith("memory://"):
        assert not [one for one in threading.enumerate() if one.name == LISTENER and one not in queues._before]
    assert keys_left(namespace) == []


def test_namespaces_are_separate(delayq_url):
    one, other = Namespace(delayq_url), Namespace(delayq_url)
    first, second = Queues(one), Queues(other)
    first("queue").send_delay_msg("x")
    assert second("queue").counts().living == 0
    first.close()
    one.remove()
    second.close()
    other.remove()


def test_running_consumer_is_stopped_at_the_end(namespace):
    queues = Queues(namespace)
    queue = queues()
    queue.callback(lambda message: None)
    consuming = queue.start_consume()
    queues.close()
    namespace.remove()
    assert not consuming.running


def test_queues_with_the_same_name_are_the_same(delayq_queues):
    delayq_queues("mails").send_delay_msg("x")
    assert delayq_queues("mails").counts().ready + delayq_queues("mails").counts().pending == 1
    assert delayq_queues("bills").counts().living == 0


def test_options_are_passed_to_the_queue(delayq_queues):
    queue = delayq_queues(codec="bytes", concurrency=4)
    assert queue.send_delay_msg(b"\x00").new
    assert queue.settings.concurrency == 4


def test_adopted_queue_keeps_its_callbacks_and_options(namespace, delayq_clock):
    seen = []
    ours = DelayQueue("mails", url="redis://localhost:1/0", deadline="10ms", default_retries=7)
    ours.callback(lambda message: seen.append((message.payload, message.retries_left)))
    queues = Queues(namespace)

    assert queues.adopt(ours) is ours
    ours.send_delay_msg("x", "1d")
    ours.send_many(["y"], "2d")
    assert ours.cancel("unknown") == "gone"
    assert queues("mails").counts().pending == 2
    assert [one.payload for one in drain(ours)] == ["x", "y"]
    assert seen == [("x", 7), ("y", 7)]

    queues.close()
    namespace.remove()
    assert ours.prefix == "delayq"
    with pytest.raises(ConnectionError):
        ours.counts()


def test_server_requirements_do_not_apply_to_the_test_redis(delayq_queues):
    ours = DelayQueue("mails", url="redis://localhost:1/0", strict=True, durability="replicated", replicas=2)
    assert delayq_queues.adopt(ours).send_delay_msg("x").new
    assert delayq_queues("mails").counts().living == 1


def test_queue_can_be_adopted_by_several_tests(delayq_url, delayq_clock):
    ours = DelayQueue("mails", url="redis://localhost:1/0", callback=lambda message: None)
    for _ in range(2):
        namespace = Namespace(delayq_url)
        queues = Queues(namespace)
        queues.adopt(ours).send_delay_msg("x")
        assert len(drain(ours)) == 1
        queues.close()
        namespace.remove()


def test_adopted_queue_in_use_leaves_nothing_behind(namespace, delayq_queues):
    ours = delayq_queues("mails")
    ours.send_delay_msg("x")
    before = sorted(keys_left(namespace))
    queues = Queues(namespace)
    queues.adopt(ours).send_delay_msg("y")
    queues.close()
    namespace.remove()
    assert sorted(keys_left(namespace)) == before


def test_adopted_queue_stops_consuming_at_the_end(namespace):
    ours = DelayQueue("mails", url="redis://localhost:1/0", callback=lambda message: None)
    queues = Queues(namespace)
    consuming = queues.adopt(ours).start_consume()
    queues.close()
    namespace.remove()
    assert not consuming.running
    assert ours.stop_consume()


def test_adopted_asyncio_queue_works_in_several_loops(delayq_url, delayq_clock):
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
        namespace = Namespace(delayq_url)
        queues = AsyncQueues(namespace)
        queues.adopt(ours)
        assert [one.outcome for one in asyncio.run(scenario())] == ["discarded"]
        queues.close()
        namespace.remove()


def test_sync_and_async_queues_share_a_namespace(delayq_queues, delayq_async_queues, delayq_async_queue):
    async def count():
        async with delayq_async_queue:
            return (await delayq_async_queue.counts()).living

    delayq_queues().send_delay_msg("x")
    assert asyncio.run(count()) == 1
    assert (delayq_async_queues.url, delayq_async_queues.prefix) == (delayq_queues.url, delayq_queues.prefix)
