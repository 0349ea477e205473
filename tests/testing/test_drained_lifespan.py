"""A drain enters the lifespans of its queues, as a consumer does."""

from __future__ import annotations

import asyncio

import pytest

from delayq import AsyncDelayQueue, DelayQueue
from delayq.testing import drain

pytestmark = pytest.mark.usefixtures("delayq_clock")


def test_a_drain_enters_it(delayq_url):
    seen = []

    def connect():
        yield "connection"
        seen.append("left")

    queue = DelayQueue(
        "mail", url=delayq_url, lifespan=connect, callback=lambda message: seen.append(message.resources)
    )
    queue.send_delay_msg(1, delay=60)
    drain(queue)
    queue.close()

    assert seen == ["connection", "left"]


def test_a_drain_of_an_asyncio_queue_enters_it(delayq_url):
    seen = []

    async def connect():
        yield "connection"
        seen.append("left")

    async def work(message):
        seen.append(message.resources)

    async def main():
        async with AsyncDelayQueue("mail", url=delayq_url, lifespan=connect, callback=work) as queue:
            await queue.send_delay_msg(1, delay=60)
            await drain(queue)

    asyncio.run(main())
    assert seen == ["connection", "left"]
