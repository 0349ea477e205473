"""The threads and tasks of a consumer itself: where there is no room for them, and when one dies."""

import asyncio
import threading
import time
from contextlib import suppress
from functools import wraps

import pytest

from delayq import AsyncDelayQueue, ConsumerFailedError, DelayQueue, TooManyThreadsError, Worker
from delayq.streams import StreamQueue
from delayq.worker.drivers import own_threads, wakeup, work_buffer
from tests.support.waiting import wait_until


def in_event_loop(test):
    """Run a test that is a coroutine function."""

    @wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run


async def until(condition):
    """Wait for a condition of the event loop."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.01)


KINDS = ["queue", "worker", "stream"]


@pytest.fixture
def room(monkeypatch):
    """How many more threads may start; None for any number."""
    left, start = [None], threading.Thread.start

    def start_if_room(thread):
        if left[0] == 0:
            raise RuntimeError("can't start new thread")
        if left[0] is not None:
            left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_room)
    monkeypatch.setattr(own_threads, "TRY_EVERY", 0.05)
    monkeypatch.setattr(own_threads, "START_WITHIN", 0.2)
    return left


@pytest.fixture
def consumer(request):
    """Make something that consumes, and a function that sends to it."""
    opened = []

    def make(kind, callback, **options):
        url = f"memory://{request.node.name}"
        queue = StreamQueue("q", url=url) if kind == "stream" else DelayQueue("q", url=url, grace="1s", **options)
        queue.callback(callback)
        worker = Worker({queue: 1}, concurrency=options.get("concurrency", 2)) if kind == "worker" else queue
        opened.append(worker)
        return worker, queue

    yield make
    for one in opened:
        with suppress(ConsumerFailedError):
            one.stop_consume(0)


@pytest.mark.parametrize("kind", ["queue", "worker"])
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_consumer_goes_on_with_the_threads_there_is_room_for(consumer, room, caplog, kind, threads):
    """One is the loop, without even the listener; two have no worker."""
    done, told, all_run = [], [], threading.Barrier(4)

    def work(message):
        if message.payload == "last":
            all_run.wait(10)
        done.append(message.id)

    worker, queue = consumer(kind, work, concurrency=4)
    room[0] = threads
    queue.send_many(range(8))
    consuming = worker.start_consume(on_health_change=told.append)
    wait_until(lambda: told and isinstance(told[0], TooManyThreadsError))
    assert consuming.running
    assert not consuming.healthy
    if threads > 2:
        wait_until(lambda: len(done) == 8)
    room[0] = None
    queue.send_many(["last"] * 4)  # four at a time, so there are all threads again
    wait_until(lambda: len(done) == 12)
    wait_until(lambda: consuming.healthy)
    assert told[1:] == [None]
    logged = [record.getMessage() for record in caplog.records if "room" in record.getMessage()]
    assert len(logged) <= 4  # once for each shortage, and for its end
    assert "no room for one more thread (can't start new thread)" in logged[0]


@pytest.mark.long
@in_event_loop
async def test_blocking_callbacks_of_asyncio_wait_for_a_thread(room, request):
    seen = []
    async with AsyncDelayQueue("q", url=f"memory://{request.node.name}", concurrency=3) as queue:
        queue.callback(lambda message: seen.append(message.attempt))
        room[0] = 0
        await queue.send_many(range(3), retries=0)
        told = []
        consuming = await queue.start_consume(on_health_change=told.append)
        await until(lambda: told)
        assert not seen
        room[0] = None
        await until(lambda: len(seen) == 3)
        assert seen == [1, 1, 1]
        await until(lambda: consuming.healthy)


def test_consumer_without_room_for_its_loop_does_not_start(consumer, room):
    worker, _ = consumer("queue", print)
    room[0] = 0
    with pytest.raises(TooManyThreadsError, match="no room for thread"):
        worker.start_consume()
    room[0] = None
    assert worker.start_consume().running


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["worker", "listener"])
def test_dead_thread_ends_the_consumer_with_an_error(consumer, monkeypatch, caplog, kind, what):
    def die(*_, **__):
        raise ZeroDivisionError("in our own code")

    worker, queue = consumer(kind, lambda message: None)
    if what == "worker":
        monkeypatch.setattr(work_buffer.WorkBuffer, "complete", die)
        queue.send("x") if kind == "stream" else queue.send_delay_msg("x")
    else:
        monkeypatch.setattr(wakeup._Waits, "next", die)
    consuming = worker.start_consume()
    with pytest.raises(ConsumerFailedError, match="has died: ZeroDivisionError: in our own code") as raised:
        consuming.wait(10)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert not consuming.healthy
    assert any(
        record.getMessage().startswith("thread ") and "has died" in record.getMessage() for record in caplog.records
    )


@pytest.mark.parametrize("what", ["worker", "listener"])
@in_event_loop
async def test_dead_task_ends_the_consumer_with_an_error(monkeypatch, caplog, request, what):
    def die(*_, **__):
        raise ZeroDivisionError("in our own code")

    async with AsyncDelayQueue("q", url=f"memory://{request.node.name}", grace="1s") as queue:

        @queue.callback
        async def work(message):
            pass

        if what == "worker":
            monkeypatch.setattr(work_buffer.WorkBuffer, "complete", die)
            await queue.send_delay_msg("x")
        else:
            monkeypatch.setattr(wakeup._Waits, "next", die)
        consuming = await queue.start_consume()
        with pytest.raises(ConsumerFailedError, match="has died: ZeroDivisionError: in our own code"):
            await consuming.wait(10)
        assert not consuming.healthy
    assert any(
        record.getMessage().startswith("task ") and "has died" in record.getMessage() for record in caplog.records
    )


def test_loop_that_exits_ends_the_consumer_with_an_error(consumer, monkeypatch):
    worker, _ = consumer("queue", print)

    def leave(*_):
        raise SystemExit

    monkeypatch.setattr("delayq.worker.loop.consumer_loop.ConsumerLoop._plan", leave)
    with pytest.raises(ConsumerFailedError, match="has died: SystemExit"):
        worker.start_consume().wait(10)


@pytest.mark.parametrize("seconds", [0, 0.02], ids=["quick", "slow"])
@in_event_loop
async def test_a_worker_task_outlives_a_cancellation_that_its_callback_did_not_see(request, seconds):
    seen = []
    async with AsyncDelayQueue("q", url=f"memory://{request.node.name}", concurrency=1) as queue:

        @queue.callback
        async def work(message):
            seen.append(message.payload)
            time.sleep(seconds)  # noqa: ASYNC251 - if that is long, its worker lets others go on first
            asyncio.current_task().cancel()  # and awaits nothing: the next wait is the worker's own

        await queue.start_consume()
        for number in range(3):
            await queue.send_delay_msg(number)
            await until(lambda number=number: len(seen) > number)


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="needs eager tasks, of Python 3.12")
@pytest.mark.parametrize("pauses", [False, True])
def test_eager_tasks_settle_messages(request, pauses):
    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with AsyncDelayQueue("q", url=f"memory://{request.node.name}", concurrency=2) as queue:

            @queue.callback
            async def work(message):
                if pauses:
                    await asyncio.sleep(0)

            await queue.send_many(range(5))
            await queue.run(burst=True)
            return (await queue.stats()).totals["acked"]

    assert asyncio.run(main()) == 5
