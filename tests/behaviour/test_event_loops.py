"""Queues and event loops: the next one once the first is closed, and blocking sends in one."""

import asyncio
import gc

import pytest
import redis

from delayq import AsyncDelayQueue, AsyncWorker, DelayQueue
from delayq.queue.sending import group_commit
from delayq.streams import AsyncStreamQueue, StreamQueue


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # at exit
@pytest.mark.parametrize("kind", ["queue", "stream", "client", "results"])
def test_queue_goes_on_in_the_next_event_loop_once_the_first_is_closed(redis_url, kind, caplog):
    """As a module-level queue does in scripts, notebooks, and views that Django runs in a loop each."""
    client = redis.asyncio.from_url(redis_url) if kind == "client" else None
    if kind == "stream":
        queue = AsyncStreamQueue("reminders", url=redis_url)
    else:
        queue = AsyncDelayQueue("reminders", redis=client) if client else AsyncDelayQueue("reminders", url=redis_url)
    seen = []
    queue.callback(lambda message: seen.append(message.payload))

    async def main(number):
        sends = [queue.send(number) if kind == "stream" else queue.send_delay_msg(number) for _ in range(20)]
        await asyncio.gather(*sends)
        if kind == "results":
            sent = await queue.send_delay_msg(number, retention="1h")
            waiting = asyncio.create_task(queue.result(sent.id))
            await queue.run(burst=True)
            assert await waiting is None
        await AsyncWorker({queue: 1}).run(burst=True)
        assert await queue.lease(n=1, block="0.01s") is not None

    for number in range(3):
        asyncio.run(main(number))
    assert sorted(set(seen)) == [0, 1, 2]

    async def count():
        counts = await queue.counts()
        await queue.close()
        return counts

    assert asyncio.run(count()) is not None
    if client:
        client.connection_pool.reset()
    gc.collect()  # here, and not in the next test


def blocking(caplog):
    return [one for one in caplog.messages if "a blocking send in a running event loop" in one]


@pytest.mark.parametrize("kind", [DelayQueue, StreamQueue])
def test_blocking_send_in_an_event_loop_is_warned_of_once(redis_url, caplog, monkeypatch, kind):
    monkeypatch.setattr(group_commit, "_warned", [])
    with kind("reminders", url=redis_url) as queue:
        send = queue.send if kind is StreamQueue else queue.send_delay_msg

        async def main():
            send("first")
            send("second")
            queue.send_many(["third"])

        send("outside")
        assert not blocking(caplog)
        asyncio.run(main())
    assert len(blocking(caplog)) == 1


@pytest.mark.parametrize("kind", [AsyncDelayQueue, AsyncStreamQueue])
def test_sends_of_an_asyncio_queue_are_not_warned_of(redis_url, caplog, monkeypatch, kind):
    monkeypatch.setattr(group_commit, "_warned", [])

    async def main():
        async with kind("reminders", url=redis_url) as queue:
            await (queue.send if kind is AsyncStreamQueue else queue.send_delay_msg)("first")
            await queue.send_many(["second"])

    asyncio.run(main())
    assert not blocking(caplog)
