"""The outbox with asyncio: sessions, connections, the relay as a task."""

import asyncio

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker

from delayq import AsyncDelayQueue, ConfigurationError, DelayQueue, outbox
from delayq.outbox import aio


@pytest.fixture(params=["asyncpg", "psycopg_async"])
def run(request, make_async_engine, redis_url, database_url):
    """Run a function with an engine and a queue in an event loop; on SQLite once."""
    if database_url.drivername == "sqlite" and request.param != "asyncpg":
        pytest.skip("SQLite has one driver")

    def run(function):
        async def main():
            engine = make_async_engine(request.param)
            try:
                async with AsyncDelayQueue("orders", url=redis_url) as queue:
                    await function(engine, queue)
            finally:
                await engine.dispose()

        asyncio.run(main())

    return run


async def until(condition):
    for _ in range(1000):
        if await condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not within 5 s")


def test_session_and_connection_send_what_they_commit(run):
    async def main(engine, queue):
        async with AsyncSession(engine) as session, session.begin():
            await aio.send(session, queue, 1, id="one", delay=60)
            await aio.send(session, queue, 1, id="two", delay=60)
        async with engine.begin() as connection:
            await aio.reschedule(connection, queue, "one", delay="1d")
            await aio.cancel(connection, queue, "two")
            assert (await aio.backlog(connection))["orders"].waiting == 4
        async with AsyncSession(engine) as session:
            await aio.send(session, queue, 1, id="rolled-back")
        assert await aio.relay(engine, queue).run(burst=True) == 4
        assert [one.id for one in (await queue.list("pending")).messages] == ["one"]

    run(main)


def test_relay_runs_as_a_task_and_hears_of_commits(run):
    async def main(engine, queue):
        async with aio.relay(engine, queue):
            for _ in range(3):
                await asyncio.sleep(0.05)
                async with engine.begin() as connection:
                    id = await aio.send(connection, queue, 1)
                await until(lambda id=id: queue.get(id))

    run(main)


def test_eager_send_of_an_async_session(run):
    async def main(engine, queue):
        async with AsyncSession(engine) as session, session.begin():
            id = await aio.send(session, queue, 1, eager=True)
            assert await queue.get(id) is None
        assert await queue.get(id) is not None

    run(main)


def test_effect_happens_once(run):
    async def main(engine, queue):
        await queue.send(1)
        async with queue.lease() as message, engine.begin() as connection:
            assert await aio.once(connection, message)
            assert not await aio.once(connection, message)
            assert await aio.prune(connection, "1h") == 0

    run(main)


def test_scoped_session_and_what_is_no_session(run, redis_url):
    async def main(engine, queue):
        await aio.create(engine)
        scoped = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
        await aio.send(scoped, queue, 1)
        await scoped.commit()
        await scoped.remove()
        assert await aio.relay(engine, queue).run(burst=True) == 1
        with pytest.raises(ConfigurationError, match="db must be an AsyncConnection"):
            await aio.send(engine, queue, 1)
        with pytest.raises(ConfigurationError, match=r"delayq\.outbox\.aio"):
            outbox.send(AsyncSession(engine), queue, 1)
        with pytest.raises(ConfigurationError, match=r"delayq\.outbox\.aio"):
            outbox.relay(engine, queue)
        with pytest.raises(ConfigurationError, match="this relay sends to a AsyncDelayQueue"):
            aio.relay(engine, DelayQueue("blocking", url=redis_url))

    run(main)
