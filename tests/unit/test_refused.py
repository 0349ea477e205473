"""A login that is refused while a consumer runs ends it with the reason: it neither idles alive nor fails twice."""

import asyncio

import pytest
import redis

from delayq import AsyncDelayQueue, DelayQueue, ServerError
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults


@pytest.fixture
def server(start_redis):
    server = start_redis(tcp=True)
    yield server
    with redis.Redis.from_url(server.url, password="changed") as client:
        client.config_set("requirepass", "")


def lock_out(server):
    with server.client() as client:
        client.config_set("requirepass", "changed")
        client.execute_command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")


def listening(server):
    with server.client() as client:
        return client.info("clients")["blocked_clients"]


def test_a_consumer_that_is_locked_out_ends_with_the_reason(server):
    with DelayQueue("reminders", url=server.url, callback=print, tick="50ms") as queue:
        consuming = queue.start_consume()
        wait_until(lambda: listening(server))
        lock_out(server)
        with pytest.raises(ServerError, match="Redis refused the connection"):
            consuming.wait(10)
        assert not consuming.running


def test_an_asyncio_consumer_that_is_locked_out_ends_with_the_reason(server):
    async def scene():
        async with AsyncDelayQueue("reminders", url=server.url, callback=print, tick="50ms") as queue:
            consuming = await queue.start_consume()
            await asyncio.to_thread(wait_until, lambda: listening(server))
            lock_out(server)
            with pytest.raises(ServerError, match="Redis refused the connection"):
                await consuming.wait(10)
            assert not consuming.running

    asyncio.run(scene())
