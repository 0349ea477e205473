"""Each message starts from the context variables of the consumer's start, whatever others have set."""

import asyncio
import decimal
from contextvars import ContextVar
from functools import wraps

import pytest

from delayq import AsyncDelayQueue, AsyncWorker, DelayQueue, Worker
from delayq.streams import AsyncStreamQueue, StreamQueue


def in_event_loop(test):
    """Run a test that is a coroutine function."""

    @wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run


tenant = ContextVar("tenant", default="none")


class Seen(list):
    """What callbacks find set, before each sets it."""

    def one(self, message):
        self.append((tenant.get(), decimal.getcontext().prec))
        tenant.set(f"of message {message.id}")
        decimal.getcontext().prec = 3

    async def one_async(self, message):
        self.one(message)
        await asyncio.sleep(0)
        assert tenant.get() == f"of message {message.id}"

    def many(self, messages):
        self.one(messages[0])

    async def many_async(self, messages):
        await self.one_async(messages[0])


@pytest.fixture
def seen():
    before = tenant.set("start")
    precision = decimal.getcontext().prec
    decimal.getcontext().prec = 9
    yield Seen()
    decimal.getcontext().prec = precision
    tenant.reset(before)


@pytest.fixture
def url(request):
    return f"memory://{request.node.name}"


@pytest.mark.parametrize("kind", ["queue", "batches", "worker", "stream"])
def test_callbacks_in_threads(seen, url, kind):
    queue = StreamQueue("q", url=url) if kind == "stream" else DelayQueue("q", url=url, concurrency=1)
    queue.batch_callback(most=1)(seen.many) if kind == "batches" else queue.callback(seen.one)
    for number in range(3):
        queue.send(number) if kind == "stream" else queue.send_delay_msg(number)
    (Worker({queue: 1}, concurrency=1) if kind == "worker" else queue).run(burst=True)
    assert seen == [("start", 9)] * 3
    assert (tenant.get(), decimal.getcontext().prec) == ("start", 9)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("kind", ["queue", "batches", "worker", "stream"])
@in_event_loop
async def test_callbacks_of_asyncio(seen, url, kind, blocking):
    queue = AsyncStreamQueue("q", url=url) if kind == "stream" else AsyncDelayQueue("q", url=url, concurrency=1)
    async with queue:
        one, many = (seen.one, seen.many) if blocking else (seen.one_async, seen.many_async)
        queue.batch_callback(most=1)(many) if kind == "batches" else queue.callback(one)
        for number in range(3):
            await (queue.send(number) if kind == "stream" else queue.send_delay_msg(number))
        await (AsyncWorker({queue: 1}, concurrency=1) if kind == "worker" else queue).run(burst=True)
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert seen[0][0] == "start"


@in_event_loop
async def test_coroutine_callback_is_cancelled_within_its_context(seen, url):
    ended = []

    async def work(message):
        tenant.set("set")
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(tenant.get())

    async with AsyncDelayQueue("q", url=url, max_consume_duration=0.2, concurrency=1) as queue:
        queue.callback(work)
        await queue.send_delay_msg("x", retries=0)
        await queue.run(burst=True)
    assert ended == ["set"]
