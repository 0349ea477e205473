"""Cancelling a message that runs: it is asked to stop, and is cancelled unless it succeeds after all."""

from __future__ import annotations

import asyncio
import threading

import pytest

from delayq import AsyncDelayQueue, AsyncWorker, ConfigurationError, Discard, Reject, Retry, Snooze
from tests.behaviour.places import everywhere
from tests.support.faces import Blocking
from tests.support.waiting import wait_until

threads = pytest.mark.parametrize("face", [Blocking], ids=["blocking"], indirect=True)
"""For callbacks that look for themselves: those of an asyncio queue are cancelled."""

RAISED = {
    "an error": ValueError("cut short"),
    "Retry": Retry("later"),
    "Snooze": Snooze("1h"),
    "Reject": Reject("no such user"),
}


def cooperative(queue, end):
    """Register a callback that runs until it is asked to stop, and then ends by `end`."""
    started = threading.Event()

    @queue.callback
    def work(message):
        started.set()
        assert not message.cancel_requested
        wait_until(lambda: message.cancel_requested)
        return end(message)

    return started


async def until(condition):
    """Wait until an awaited condition is true."""
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - other threads set it
            await asyncio.sleep(0.005)


async def is_empty(queue):
    """Return whether all messages have ended."""
    return (await queue.counts()).living == 0


def fate(queue):
    """Return what has become of all messages."""
    totals = queue.stats().totals
    names = ("acked", "discarded", "cancelled", "nacked", "expired", "dead", "released")
    return {name: totals[name] for name in names if totals.get(name)}


@pytest.mark.long
@everywhere
@threads
@pytest.mark.parametrize("raised", RAISED)
def test_callback_that_stops_when_asked_is_cancelled_and_charged_nothing(open_queue, raised):
    queue = open_queue(events=True)

    def end(message):
        raise RAISED[raised]

    started = cooperative(queue, end)
    queue.send_delay_msg("long", id="long", retries=3)
    queue.start_consume()
    assert started.wait(30)
    wait_until(lambda: queue.cancel("long") == "running")

    assert queue.cancel("long", running=True) == "stopping"
    wait_until(lambda: queue.counts().living == 0)

    assert queue.get("long") is None
    assert fate(queue) == {"cancelled": 1}
    assert [event.kind for event in queue.events()][-2:] == ["delivered", "cancelled"]
    assert queue.cancel("long", running=True) == "gone"


@pytest.mark.long
@threads
@pytest.mark.parametrize("end", ["return", "ack by hand", "discard"])
def test_callback_that_succeeds_after_all_is_done(open_queue, end):
    queue = open_queue()

    def finish(message):
        if end == "ack by hand":
            assert message.ack()
        if end == "discard":
            raise Discard("over")

    started = cooperative(queue, finish)
    queue.send_delay_msg("long", id="long")
    queue.start_consume()
    assert started.wait(30)
    assert queue.cancel("long", running=True) == "stopping"
    wait_until(lambda: queue.counts().living == 0)
    assert fate(queue) == {"discarded" if end == "discard" else "acked": 1}


@pytest.mark.long
@threads
def test_returning_false_and_a_nack_by_hand_cancel(open_queue):
    queue = open_queue(concurrency=2)
    started = []

    @queue.callback
    def work(message):
        started.append(message.id)
        wait_until(lambda: message.cancel_requested)
        return message.nack() if message.id == "by-hand" else False

    for id in ("by-hand", "false"):
        queue.send_delay_msg("long", id=id)
    queue.start_consume()
    wait_until(lambda: len(started) == 2)
    for id in ("by-hand", "false"):
        assert queue.cancel(id, running=True) == "stopping"
    wait_until(lambda: queue.counts().living == 0)
    assert fate(queue) == {"cancelled": 2}


def test_asyncio_callback_is_cancelled_within_a_tick(open_queue, face, gate):
    if isinstance(face, Blocking):
        pytest.skip("threads are asked")
    seen = []

    def work(message):
        seen.append(message.id)
        gate.wait(30)

    queue = open_queue(callback=work, concurrency=2)
    queue.send_delay_msg("long", id="long")
    queue.start_consume()
    wait_until(lambda: seen)

    assert queue.cancel("long", running=True) == "stopping"
    wait_until(lambda: queue.counts().living == 0)  # though its thread goes on
    assert fate(queue) == {"cancelled": 1}
    queue.send_delay_msg("next", id="next")  # its worker goes on
    wait_until(lambda: seen == ["long", "next"])


@pytest.mark.parametrize("pooled", [False, True])
def test_asyncio_callback_may_clean_up_and_its_worker_goes_on(redis_url, pooled):
    seen = []

    async def work(message):
        seen.append(message.id)
        if message.id == "next":
            async with asyncio.timeout(30):  # a cancellation left behind would end it
                await asyncio.sleep(0)
            return
        try:
            await asyncio.sleep(3600)
        finally:
            assert message.cancel_requested
            await asyncio.sleep(0.01)
            seen.append("cleaned up")

    async def has_seen(what):
        return what in seen

    async def main():
        async with AsyncDelayQueue("reminders", url=redis_url, callback=work) as queue:
            consumer = AsyncWorker({queue: 1}, concurrency=1) if pooled else queue
            await queue.send_delay_msg("long", id="long")
            await consumer.start_consume()
            await until(lambda: has_seen("long"))
            assert await queue.cancel("long", running=True) == "stopping"
            await queue.send_delay_msg("next", id="next")
            await until(lambda: is_empty(queue))
            await consumer.stop_consume()
            totals = (await queue.stats()).totals
            assert (totals["cancelled"], totals["acked"]) == (1, 1)

    asyncio.run(main())
    assert seen == ["long", "cleaned up", "next"]


@pytest.mark.long
def test_blocking_callback_of_an_asyncio_queue_is_asked(redis_url):
    started, seen = threading.Event(), []

    def work(message):
        started.set()
        wait_until(lambda: message.cancel_requested)
        seen.append(message.id)
        raise ValueError("cut short")

    async def main():
        async with AsyncDelayQueue("reminders", url=redis_url, callback=work) as queue:
            await queue.send_delay_msg("long", id="long")
            await queue.start_consume()
            await asyncio.to_thread(started.wait, 30)
            assert await queue.cancel("long", running=True) == "stopping"
            await until(lambda: is_empty(queue))
            assert (await queue.stats()).totals["cancelled"] == 1

    asyncio.run(main())
    assert seen == ["long"]


@everywhere
def test_message_that_waits_is_cancelled_at_once(queue):
    queue.send_delay_msg("later", "1h", id="later")
    assert queue.cancel("later", running=True) == "cancelled"
    assert queue.cancel("later", running=True) == "gone"


@everywhere
def test_leased_message_is_asked_too(queue):
    queue.send_delay_msg("long", id="long", retries=5)
    with pytest.raises(ValueError, match="cut short"), queue.lease() as message:  # noqa: PT012 - what it is about
        assert queue.cancel("long", running=True) == "stopping"
        assert queue.get("long").cancel_requested
        assert (message.cancel_requested, message.extend(), message.cancel_requested) == (False, True, True)
        assert queue.cancel("long") == "stopping"
        raise ValueError("cut short")
    assert queue.get("long") is None
    assert fate(queue) == {"cancelled": 1}


def test_lease_says_that_one_of_its_messages_is_asked(queue):
    queue.send_many(["a", "b"])
    lease = queue.lease(n=2)
    if hasattr(lease, "messages"):
        assert not lease.cancel_requested
        queue.cancel(lease.messages[1].id, running=True)
        lease.messages[1].extend()
        assert lease.cancel_requested


@everywhere
def test_message_whose_holder_dies_is_cancelled_when_its_lease_runs_out(open_queue):
    queue = open_queue(events=True)
    queue.send_delay_msg("long", id="long", retries=5)
    lease = queue.lease("100ms")
    with lease:
        pass_by_hand = queue.cancel("long", running=True)
        other = open_queue(callback=lambda message: None)
        other.start_consume()
        wait_until(lambda: queue.counts().living == 0)
    assert pass_by_hand == "stopping"
    assert fate(queue) == {"cancelled": 1}
    assert [event.kind for event in queue.events()][-1] == "cancelled"


@pytest.mark.long
@threads
def test_what_follows_is_cancelled_too_unless_it_is_sent_later(open_queue):
    queue = open_queue()

    def end(message):
        raise ValueError(message.payload)

    started = cooperative(queue, end)
    queue.send_delay_msg(1, id="visit")
    queue.start_consume()
    assert started.wait(30)
    wait_until(lambda: queue.send_delay_msg(2, "1h", id="visit", replace="after").status == "after")
    assert queue.cancel("visit", running=True) == "stopping"
    assert queue.counts().successors == 0
    if queue.send_delay_msg(3, "1h", id="visit", replace="after").status == "after":
        wait_until(lambda: queue.get("visit").state == "pending")
    assert queue.get("visit").payload == 3
    wait_until(lambda: fate(queue) == {"cancelled": 1})


@pytest.mark.long
@threads
def test_message_of_a_batch_is_asked_and_the_others_go_on(open_queue):
    queue = open_queue()

    started = []

    def work(messages):
        started.extend(messages)
        wait_until(lambda: any(message.cancel_requested for message in messages))
        return [False if message.cancel_requested else None for message in messages]

    queue.batch_callback(work, most=3)
    ids = queue.send_many([1, 2, 3]).ids
    queue.start_consume()
    wait_until(lambda: len(started) == 3)
    assert queue.cancel(ids[1], running=True) == "stopping"
    wait_until(lambda: queue.counts().living == 0)
    assert fate(queue) == {"acked": 2, "cancelled": 1}


@threads
def test_a_stop_meanwhile_does_not_bring_it_back(open_queue, gate):
    started = threading.Event()

    def work(message):
        started.set()
        gate.wait(30)

    queue = open_queue(callback=work)
    queue.send_delay_msg("long", id="long", retries=5)
    queue.start_consume()
    assert started.wait(30)
    assert queue.cancel("long", running=True) == "stopping"
    queue.stop_consume(grace=0)  # which cuts the callback off
    open_queue().callback(lambda message: None)
    other = open_queue(callback=lambda message: None)
    other.run(burst=True)
    assert queue.get("long") is None
    assert fate(queue) == {"cancelled": 1}


def test_running_must_be_a_bool(queue):
    queue.send_delay_msg("x", "1h", id="x")
    with pytest.raises(ConfigurationError, match="running must be True or False"):
        queue.cancel("x", running="yes")
    assert queue.counts().pending == 1
