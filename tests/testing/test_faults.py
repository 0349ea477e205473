"""Injected faults, on the embedded Redis and on a real one."""

from __future__ import annotations

import asyncio

import pytest

from delayq import ConfigurationError, DelayQueue, OutcomeUnknown, UnavailableError
from delayq.broker.requests import RedisCommand
from delayq.broker.scripts import script
from delayq.testing import Crash, crash, drain, lose_replies, restart, unreachable
from tests.support.waiting import wait_until


def test_lost_reply_does_not_send_twice(delayq_queue):
    with lose_replies(delayq_queue, 3):
        assert delayq_queue.send_delay_msg("x", id="m").new  # reported as new, although it was sent four times
    assert delayq_queue.stats().totals["sent"] == 1


def test_lost_reply_does_not_deliver_twice(delayq_clock, delayq_queue):
    delayq_queue.callback(lambda message: None)
    delayq_queue.send_many(range(5))
    with lose_replies(delayq_queue, 4):
        assert [(one.payload, one.attempt) for one in drain(delayq_queue)] == [(n, 1) for n in range(5)]


def test_replies_that_stay_lost_raise_outcome_unknown(delayq_queues):
    queue = delayq_queues(deadline="10ms")
    queue.open()
    with lose_replies(queue, 1000), pytest.raises(OutcomeUnknown):
        queue.send_delay_msg("x")
    assert queue.counts().living == 1


def test_unused_fault_fails_the_test(delayq_queue):
    with (
        pytest.raises(AssertionError, match="no reply was lost: queue queue was not used"),
        lose_replies(delayq_queue),
    ):
        pass


def test_error_of_the_test_is_not_hidden(delayq_queue):
    with pytest.raises(KeyError), lose_replies(delayq_queue):
        raise KeyError


def test_unreachable_raises_at_once_until_its_end(delayq_queue, monkeypatch):
    delayq_queue.open()
    monkeypatch.setattr("delayq.broker.transport.executor.time.sleep", lambda _: pytest.fail("it must not retry"))
    with unreachable(delayq_queue):
        with pytest.raises(UnavailableError, match="injected by the test"):
            delayq_queue.send_delay_msg("x")
        with pytest.raises(UnavailableError):
            delayq_queue.counts()
    assert delayq_queue.send_delay_msg("x").new


def test_unreachable_affects_one_queue_only(delayq_queues):
    one, other = delayq_queues("one"), delayq_queues("other")
    with unreachable(one):
        assert other.send_delay_msg("x").new


def test_drain_raises_when_redis_is_unreachable(delayq_clock, delayq_queue):
    delayq_queue.send_delay_msg("x")
    delayq_queue.callback(lambda message: None)
    with unreachable(delayq_queue), pytest.raises(UnavailableError):
        drain(delayq_queue)
    assert [one.outcome for one in drain(delayq_queue)] == ["acked"]


def test_drain_continues_after_a_restart(delayq_clock, delayq_queue):
    @delayq_queue.callback
    def work(message):
        if message.payload == "restart":
            restart(delayq_queue)

    delayq_queue.send_many(["before", "restart", "after"])
    delivered = drain(delayq_queue)
    assert [(one.payload, one.outcome) for one in delivered] == [(x, "acked") for x in ("before", "restart", "after")]
    restart(delayq_queue)
    assert delayq_queue.counts().living == 0


def test_restart_removes_loaded_scripts(delayq_queue):
    delayq_queue.send_delay_msg("x")
    known = RedisCommand(("SCRIPT", "EXISTS", script("send_one").sha), lambda reply: [*map(int, reply)])
    assert delayq_queue.executor.call(known) == [1]
    restart(delayq_queue)
    assert delayq_queue.executor.call(known) == [0]
    assert delayq_queue.send_delay_msg("y").new


def test_running_consumer_continues_after_a_restart(delayq_queue):
    seen = []
    delayq_queue.callback(lambda message: seen.append(message.payload))
    delayq_queue.start_consume()
    for n in range(3):
        restart(delayq_queue)
        delayq_queue.send_delay_msg(n)
        wait_until(lambda n=n: n in seen)
    assert seen == [0, 1, 2]


def test_crash_outside_drain_is_an_exception(delayq_queue):
    delayq_queue.callback(lambda message: crash() if message.attempt == 1 else None)
    delayq_queue.send_delay_msg("x", id="m", retries=1)
    delayq_queue.run(burst=True)
    assert delayq_queue.stats().totals["nacked"] == 1
    with pytest.raises(Crash):
        crash()


def test_fault_needs_a_queue(redis_url):
    for fault in (lose_replies, unreachable):
        with pytest.raises(ConfigurationError), fault("queue"):
            pass
    with pytest.raises(ConfigurationError):
        restart(DelayQueue)


def test_asyncio_queue_has_the_same_faults(delayq_clock, delayq_async_queues):
    async def scenario():
        async with delayq_async_queues() as queue:
            queue.callback(lambda message: None)
            with lose_replies(queue, 2):
                assert (await queue.send_delay_msg("x")).new
            with unreachable(queue), pytest.raises(UnavailableError):
                await queue.send_delay_msg("y")
            await restart(queue)
            return await drain(queue)

    assert [(one.payload, one.outcome) for one in asyncio.run(scenario())] == [("x", "acked")]
