"""A refused login ends a running consumer with the reason."""

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


def test_consumer_whose_login_is_refused_ends_with_the_reason(server):
    with DelayQueue("reminders", url=server.url, callback=print, tick="50ms") as queue:
        consuming = queue.start_consume()
        wait_until(lambda: listening(server))
        lock_out(server)
        with pytest.raises(ServerError, match="Redis refused the connection"):
            consuming.wait(30)
        assert not consuming.running


def test_asyncio_consumer_whose_login_is_refused_ends_with_the_reason(server):
    async def scene():
        async with AsyncDelayQueue("reminders", url=server.url, callback=print, tick="50ms") as queue:
            consuming = await queue.start_consume()
            await asyncio.to_thread(wait_until, lambda: listening(server))
            lock_out(server)
            with pytest.raises(ServerError, match="Redis refused the connection"):
                await consuming.wait(30)
            assert not consuming.running

    asyncio.run(scene())
