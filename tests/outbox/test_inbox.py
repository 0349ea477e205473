"""The inbox: the effect of a message happens once, with its transaction."""

import pytest
from sqlalchemy import func, select

from delayq import DelayQueue, outbox
from delayq.errors import OutboxError
from delayq.outbox.tables import inbox


def take(queue):
    lease = queue.lease()
    return lease, lease.__enter__()


def test_second_delivery_has_no_effect(engine, orders, relay):
    with engine.begin() as connection:
        outbox.send(connection, orders, 1, id="one")
    relay()
    with orders.lease() as message:
        with engine.begin() as connection:
            assert outbox.once(connection, message)
            assert not outbox.once(connection, message)
        with engine.begin() as connection:
            assert not outbox.once(connection, message)


def test_rolled_back_effect_may_happen_again(engine, orders, relay):
    with engine.begin() as connection:
        outbox.send(connection, orders, 1)
    relay()
    with orders.lease() as message, engine.connect() as connection:
        assert outbox.once(connection, message)
        connection.rollback()
        assert outbox.once(connection, message)


def test_id_that_is_sent_anew_has_its_effect_again(engine, redis_url):
    with DelayQueue("orders", url=redis_url) as queue:
        for _ in range(2):
            with engine.begin() as connection:
                outbox.send(connection, queue, 1, id="daily")
            outbox.relay(engine, queue).run(burst=True)
            with queue.lease() as message, engine.begin() as connection:
                assert outbox.once(connection, message)
                assert not outbox.once(connection, message)
            queue.forget("daily")


def test_same_id_of_two_queues_has_two_effects(engine, orders, redis_url):
    with DelayQueue("others", url=redis_url) as others:
        orders.send(1, id="same")
        others.send(1, id="same")
        with orders.lease() as one, others.lease() as other, engine.begin() as connection:
            assert outbox.once(connection, one)
            assert outbox.once(connection, other)


def test_autocommit_is_refused(engine, orders):
    orders.send(1)
    with orders.lease() as message, engine.connect() as plain:
        connection = plain.execution_options(isolation_level="AUTOCOMMIT")
        with pytest.raises(OutboxError, match="needs a transaction"):
            outbox.once(connection, message)


def test_prune_forgets_what_is_older(engine, orders):
    orders.send(1)
    with orders.lease() as message, engine.begin() as connection:
        outbox.once(connection, message)
        assert outbox.prune(connection, "1h") == 0
        connection.execute(inbox.update().values(inserted=inbox.c.inserted - 7_200_000))
        assert outbox.prune(connection, "1h") == 1
        assert connection.scalar(select(func.count()).select_from(inbox)) == 0
