"""Outbox and inbox of a queue over partitions: each id has its partition, whatever their number is by then."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from delayq import AsyncDelayQueue, ConfigurationError, DelayQueue, State, outbox
from delayq.outbox import aio
from delayq.outbox.tables import outbox as table
from delayq.queue.placing.repartitioning import change_partitions
from tests.support.waiting import wait_until

PARTITIONS = 4


@pytest.fixture
def queue(redis_url):
    """A queue over four partitions."""
    with DelayQueue("orders", url=redis_url, partitions=PARTITIONS) as queue:
        queue.open()
        yield queue


def grow(redis_url, to):
    """Change the number of partitions by another process's connection."""
    with DelayQueue("other", url=redis_url) as mover:
        mover.executor.perform(change_partitions("delayq", "orders", to))


def ids(queue):
    return sorted(one.id for state in (State.PENDING, State.READY) for one in queue.list(state, limit=1000).messages)


def test_messages_go_to_their_partitions(engine, queue, relay):
    with engine.begin() as connection:
        sent = [outbox.send(connection, queue, n, delay=60) for n in range(40)]
        sent += [outbox.send(connection, queue, n, id=f"own-{n}", retries=7, name="pay") for n in range(40)]
    assert relay(queue) == 80
    assert ids(queue) == sorted(sent)
    assert len({queue.partition_of(id).name for id in sent}) == PARTITIONS
    found = queue.get("own-7")
    assert (found.payload, found.retries_left, found.name) == (7, 7, "pay")


def test_operations_of_an_id_keep_their_order(engine, queue, relay):
    with engine.begin() as connection:
        for n in range(20):
            outbox.send(connection, queue, n, delay=60, id=f"cancelled-{n}", key=f"account-{n}")
            outbox.send(connection, queue, n, delay=60, id=f"moved-{n}", key=f"account-{n}")
            outbox.send(connection, queue, n, delay=60, id=f"replaced-{n}")
            outbox.cancel(connection, queue, f"cancelled-{n}")
            outbox.reschedule(connection, queue, f"moved-{n}", delay="1d")
            outbox.send(connection, queue, -n, delay=60, id=f"replaced-{n}", replace=True)
    assert relay(queue) == 120
    assert ids(queue) == sorted(f"{kind}-{n}" for kind in ("moved", "replaced") for n in range(20))
    assert all(queue.get(f"moved-{n}").due > datetime.now(UTC) + timedelta(hours=23) for n in range(20))
    assert [queue.get(f"replaced-{n}").payload for n in range(20)] == [-n for n in range(20)]


def test_row_that_was_sent_and_not_deleted_is_sent_once(engine, queue, relay):
    """Each partition has a dedupe window of its own."""
    with engine.begin() as connection:
        for n in range(40):
            outbox.send(connection, queue, n, id=f"own-{n}" if n % 2 else None)
    with engine.connect() as connection:
        kept = [row._asdict() for row in connection.execute(select(table))]
    assert relay(queue) == 40
    settled = 0
    while settled < 30:
        with queue.lease(n=30 - settled) as messages:
            settled += len(messages)
    with engine.begin() as connection:
        connection.execute(table.insert(), kept)
    assert relay(queue) == 40
    assert queue.counts().living == 10


def test_relay_follows_a_number_of_partitions_that_changes(engine, queue, relay, redis_url):
    stale = outbox.relay(engine, queue)
    with engine.begin() as connection:
        for n in range(30):
            outbox.send(connection, queue, n, delay=60, id=f"before-{n}")
    assert stale.run(burst=True) == 30
    grow(redis_url, 7)
    with engine.begin() as connection:
        for n in range(30):
            outbox.send(connection, queue, n, delay=60, id=f"after-{n}")
            outbox.send(connection, queue, n, delay=60, id=f"before-{n}", replace=True)
            outbox.reschedule(connection, queue, f"before-{n}", delay="1d")
    assert stale.run(burst=True) == 90 + 30
    assert len(queue.partitions) == 7
    assert ids(queue) == sorted(f"{when}-{n}" for when in ("before", "after") for n in range(30))
    assert all(queue.get(f"before-{n}").due > datetime.now(UTC) + timedelta(hours=23) for n in range(30))


def test_row_of_a_newer_version_is_refused_alone(engine, queue, relay):
    with engine.begin() as connection:
        for n in range(6):
            outbox.send(connection, queue, n)
        connection.execute(table.update().where(table.c.seq % 6 == 0).values(operation="swap"))
    assert relay(queue) == 5
    with engine.connect() as connection:
        assert "a newer delayq wants to swap" in outbox.refused(connection)[0].reason


def test_running_relay_and_eager_session_send(engine, queue):
    with Session(engine) as session, session.begin():
        id = outbox.send(session, queue, 1, eager=True)
    assert queue.get(id) is not None
    with outbox.relay(engine, queue), engine.begin() as connection:
        id = outbox.send(connection, queue, 2)
        connection.commit()
        wait_until(lambda: queue.get(id) is not None)


def test_asyncio(make_async_engine, redis_url):
    async def main():
        engine = make_async_engine()
        async with AsyncDelayQueue("orders", url=redis_url, partitions=PARTITIONS) as queue:
            async with engine.begin() as connection:
                for n in range(20):
                    await aio.send(connection, queue, n, delay=60, id=f"own-{n}")
                for n in range(10):
                    await aio.cancel(connection, queue, f"own-{n}")
            assert await aio.relay(engine, queue).run(burst=True) == 30
            assert (await queue.counts()).living == 10
        await engine.dispose()

    asyncio.run(main())


def test_effect_happens_once_also_if_the_message_has_moved(engine, queue, redis_url):
    def effects():
        done = {}
        with queue.lease("1h", n=100) as messages:
            for message in messages:
                with engine.begin() as connection:
                    done[message.id] = outbox.once(connection, message)
                message.nack(delay=0, error="acknowledgement lost")
        return done

    for n in range(20):
        queue.send(n, id=f"own-{n}", retries=5)
    first = {}
    while len(first) < 20:
        first |= effects()
    grow(redis_url, 7)
    second = {}
    while len(second) < 20:
        second |= effects()
    assert (set(first.values()), set(second.values())) == ({True}, {False})


def test_send_into_a_transaction_of_redis_is_refused(queue, redis_client):
    with redis_client.pipeline() as pipeline, pytest.raises(ConfigurationError, match="without partitions"):
        queue.send_into(pipeline, 1)
