"""Callbacks of an asyncio queue that are no coroutine functions run in threads, and the event loop goes on."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from delayq import AsyncDelayQueue
from tests.behaviour.places import everywhere

pytestmark = everywhere

PATIENCE = 30


@pytest.fixture
def gate():
    """What blocking callbacks wait for, at the latest until the end of the test."""
    gate = threading.Event()
    yield gate
    gate.set()


def eventually(event):
    """Wait in the event loop for an event of threads."""
    return asyncio.wait_for(asyncio.to_thread(event.wait, PATIENCE), PATIENCE)


async def until(condition):
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - threads set it
            await asyncio.sleep(0.005)


def test_blocking_callback_does_not_block_the_event_loop(url, gate):
    async def main():
        seen = []

        def remind(message):
            seen.append((message.payload, gate.wait(PATIENCE)))

        async with AsyncDelayQueue("reminders", url=url, callback=remind) as queue:
            await queue.send_delay_msg("hello")
            running = asyncio.create_task(queue.run(burst=True))
            await asyncio.sleep(0.05)  # it would block in here, for the callback waits for the line after
            gate.set()
            await running
        return seen

    assert asyncio.run(main()) == [("hello", True)]


def test_as_many_blocking_callbacks_run_at_a_time_as_concurrency_says(url):
    together, threads = threading.Barrier(4), set()

    def remind(message):
        threads.add(threading.current_thread())
        together.wait(PATIENCE)

    async def main():
        async with AsyncDelayQueue("reminders", url=url, callback=remind, concurrency=4) as queue:
            await queue.send_many(range(20))
            await queue.run(burst=True)
            return (await queue.stats()).totals["acked"]

    assert asyncio.run(main()) == 20
    assert len(threads) == 4
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()  # they end with their consumer


@pytest.mark.parametrize(
    "error", [ValueError("no"), StopIteration(5), SystemExit(3), asyncio.CancelledError()], ids=type
)
def test_whatever_a_blocking_callback_raises_costs_one_attempt(url, error):
    def remind(message):
        if message.attempt == 1:
            raise error

    async def main():
        async with AsyncDelayQueue("reminders", url=url, callback=remind, nack_delay=0) as queue:
            await queue.send_delay_msg("hello")
            await queue.run(burst=True)
            return (await queue.stats()).totals

    totals = asyncio.run(main())
    assert (totals["nacked"], totals["acked"]) == (1, 1)


def test_plain_function_may_return_a_coroutine_which_runs_in_the_event_loop(url):
    async def main():
        seen = []

        async def remind(message):
            seen.append((await message.extend(), asyncio.get_running_loop()))

        async with AsyncDelayQueue("reminders", url=url, callback=lambda message: remind(message)) as queue:
            await queue.send_delay_msg("hello")
            await queue.run(burst=True)
        return seen == [(True, asyncio.get_running_loop())]

    assert asyncio.run(main())


def test_blocking_callback_sees_the_context_variables_of_its_consumer(url):
    tenant, seen = ContextVar("tenant", default="none"), []

    async def main():
        tenant.set("blue")
        callback = lambda message: seen.append(tenant.get())  # noqa: E731
        async with AsyncDelayQueue("reminders", url=url, callback=callback) as queue:
            await queue.send_delay_msg("hello")
            await queue.run(burst=True)

    asyncio.run(main())
    assert seen == ["blue"]


def test_coroutine_functions_and_blocking_ones_may_be_mixed_in_schedules(url):
    async def main():
        threads = {}
        async with AsyncDelayQueue("reminders", url=url) as queue:

            @queue.every("1h")
            def blocking(message):
                threads["blocking"] = threading.current_thread()

            @queue.every("1h")
            async def awaited(message):
                threads["awaited"] = threading.current_thread()

            await queue.schedules.apply()
            await queue.schedules.run_now("blocking")
            await queue.schedules.run_now("awaited")
            await queue.run(burst=True)
        return threads

    threads = asyncio.run(main())
    assert threads["awaited"] is threading.current_thread()
    assert threads["blocking"] is not threading.current_thread()


def test_stop_waits_for_a_blocking_callback_and_cuts_it_off_after_the_grace(url, gate):
    started, messages = threading.Event(), []

    def remind(message):
        messages.append(message)
        started.set()
        gate.wait(PATIENCE)

    async def main():
        async with AsyncDelayQueue("reminders", url=url, callback=remind, nack_delay=60) as queue:
            await queue.send_delay_msg("endless", id="m")
            await queue.start_consume()
            await eventually(started)
            stopping = asyncio.create_task(queue.stop_consume(grace="200ms"))
            await asyncio.sleep(0.01)
            assert not stopping.done()
            assert await stopping
            assert messages[0].lease_lost
            return (await queue.get("m")).snoozes

    assert asyncio.run(main()) == 1


def test_blocking_callback_may_stop_its_consumer(url):
    async def main():
        seen = []

        def remind(message):
            seen.append(message.payload)
            consuming.stop()

        async with AsyncDelayQueue("reminders", url=url, callback=remind) as queue:
            await queue.send_many(range(3))
            consuming = await queue.start_consume()
            assert await consuming.wait(PATIENCE)
            return len(seen), (await queue.counts()).ready

    assert asyncio.run(main()) == (1, 2)


@pytest.mark.long
def test_hanging_blocking_callback_is_replaced(url, gate):
    seen = []

    def remind(message):
        seen.append(message.payload)
        if message.payload == "poison" and message.attempt == 1:
            gate.wait(PATIENCE)

    async def main():
        options = {"lease": "1s", "max_consume_duration": "300ms", "callback": remind}
        async with AsyncDelayQueue("reminders", url=url, **options) as queue:
            await queue.send_many(["poison", "b", "c"])
            await queue.start_consume()
            await until(lambda: sorted(seen) == ["b", "c", "poison", "poison"])
            gate.set()

    asyncio.run(main())
