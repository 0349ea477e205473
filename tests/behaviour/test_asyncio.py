"""What only the asyncio queue has: coroutines, tasks and their cancellation."""

from __future__ import annotations

import asyncio
import time

import pytest

from delayq import AsyncDelayQueue, ConfigurationError
from tests.behaviour.places import everywhere

pytestmark = everywhere


def test_a_callback_may_be_a_coroutine_function(url):
    async def main():
        seen = []

        async def remind(message):
            await asyncio.sleep(0)
            seen.append((message.payload, await message.extend()))

        async with AsyncDelayQueue("reminders", url=url, callback=remind) as queue:
            await queue.send_delay_msg("hello")
            await queue.run(burst=True)
        return seen

    assert asyncio.run(main()) == [("hello", True)]


def test_a_callback_may_be_a_plain_function(url):
    async def main():
        seen = []
        async with AsyncDelayQueue(
            "reminders", url=url, callback=lambda message: seen.append(message.payload)
        ) as queue:
            await queue.send_delay_msg("hello")
            await queue.run(burst=True)
        return seen

    assert asyncio.run(main()) == ["hello"]


def test_second_event_loop_is_refused_each_time_until_the_queue_is_closed(url):
    queue = AsyncDelayQueue("reminders", url=url, callback=lambda message: None)

    async def claim():
        async with queue.lease() as message:
            return message

    with asyncio.Runner() as first:
        first.run(queue.send_delay_msg("first"))
        for _ in range(3):
            for act in (lambda: queue.send_delay_msg("second"), queue.counts, claim, queue.start_consume, queue.close):
                with (
                    asyncio.Runner() as second,
                    pytest.raises(ConfigurationError, match="belongs to another event loop"),
                ):
                    second.run(act())
        assert first.run(queue.counts()).living == 1
        first.run(queue.close())
    with asyncio.Runner() as third:
        assert third.run(queue.counts()).living == 1
        third.run(queue.close())


def test_event_loop_of_another_thread_is_refused_during_a_send(url):
    async def main():
        async with AsyncDelayQueue("reminders", url=url) as queue:
            sends = [asyncio.create_task(queue.send_delay_msg(n)) for n in range(20)]
            await asyncio.sleep(0)
            with pytest.raises(ConfigurationError, match="belongs to another event loop"):
                await asyncio.to_thread(lambda: asyncio.run(queue.send_delay_msg("from elsewhere")))
            await asyncio.gather(*sends)
            return (await queue.counts()).living

    assert asyncio.run(main()) == 20


def test_coroutine_callbacks_run_concurrently(url):
    async def main():
        together = asyncio.Barrier(20)

        async def remind(message):
            async with asyncio.timeout(10):
                await together.wait()

        async with AsyncDelayQueue("reminders", url=url, callback=remind, concurrency=20) as queue:
            await queue.send_many(range(20))
            await queue.run(burst=True)
            return (await queue.stats()).totals

    assert asyncio.run(main())["acked"] == 20


def test_plain_callbacks_let_other_tasks_run_between_messages(url):
    async def main():
        turns, seen = 0, []

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def work(message):
            time.sleep(0.02)
            seen.append(turns)

        async with AsyncDelayQueue("reminders", url=url, callback=work, prefetch=20) as queue:
            await queue.send_many(range(20))
            others_ = asyncio.create_task(others())
            await queue.run(burst=True)
            others_.cancel()
        return seen

    seen = asyncio.run(main())
    assert len(seen) == len(set(seen)) == 20


def test_a_lease_is_an_asynchronous_context(url):
    async def main():
        async with AsyncDelayQueue("reminders", url=url) as queue:
            await queue.send_many(range(3))
            async with queue.lease("30s") as message:
                one = message.payload
            async with queue.lease(n=5) as messages:
                rest = [message.payload for message in messages]
            return one, rest, (await queue.counts()).living

    assert asyncio.run(main()) == (0, [1, 2], 0)


def test_an_awaited_lease_is_settled_by_hand(url):
    async def main():
        async with AsyncDelayQueue("reminders", url=url) as queue:
            await queue.send_many(range(3))
            return [await message.ack() for message in await queue.lease(n=5)]

    assert asyncio.run(main()) == [True, True, True]


def test_many_tasks_can_use_a_queue_concurrently(url):
    async def main():
        async with AsyncDelayQueue("reminders", url=url) as queue:
            sent = await asyncio.gather(*(queue.send_delay_msg(number, 60) for number in range(100)))
            return len({one.id for one in sent}), (await queue.counts()).pending

    assert asyncio.run(main()) == (100, 100)


def test_cancelling_run_finishes_running_callbacks_and_releases_the_rest(url):
    async def main():
        started = asyncio.Event()

        async def remind(message):
            started.set()
            await asyncio.sleep(0.1)

        async with AsyncDelayQueue("reminders", url=url, callback=remind, prefetch=5) as queue:
            await queue.send_many(range(6))
            running = asyncio.create_task(queue.run())
            await started.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return (await queue.stats()).totals["acked"], await queue.counts()

    acked, counts = asyncio.run(main())
    assert acked == 1
    assert (counts.active, counts.ready) == (0, 5)


def test_stop_cancels_callbacks_that_exceed_the_grace_period(url):
    async def main():
        started, cancelled = asyncio.Event(), []

        async def remind(message):
            started.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(message.id)
                raise

        async with AsyncDelayQueue("reminders", url=url, callback=remind, nack_delay=60) as queue:
            await queue.send_delay_msg("endless", id="m")
            consuming = await queue.start_consume()
            await started.wait()
            assert await queue.stop_consume(grace="50ms")
            assert not consuming.running
            return cancelled, (await queue.get("m")).snoozes

    assert asyncio.run(main()) == (["m"], 1)


def test_stop_is_harmless_once_the_event_loop_is_closed(url):
    async def main():
        async with AsyncDelayQueue("reminders", url=url, callback=print) as queue:
            return await queue.start_consume()

    consuming = asyncio.run(main())
    consuming.stop()
    assert not consuming.running


def test_consumer_ends_when_its_tasks_are_cancelled(url):
    """`asyncio.run` cancels whatever is left, and so may a framework."""

    async def main():
        idle = asyncio.Event()

        async def remind(message):
            idle.set()

        async with AsyncDelayQueue("reminders", url=url, callback=remind) as queue:
            consuming = await queue.start_consume()
            await queue.send_delay_msg("hello")
            await idle.wait()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            async with asyncio.timeout(10):
                await asyncio.gather(*tasks, return_exceptions=True)
            assert not consuming.running
            with pytest.raises(asyncio.CancelledError):
                await consuming.wait()

    asyncio.run(main())


def test_a_queue_closes_while_its_consumer_is_idle(url):
    async def main():
        seen = asyncio.Event()

        async def remind(message):
            seen.set()

        async with AsyncDelayQueue("reminders", url=url, callback=remind) as queue:
            await queue.start_consume()
            await queue.send_delay_msg("hello")
            await seen.wait()
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1
