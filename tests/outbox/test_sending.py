"""What a transaction commits is sent, and what it rolls back is not."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import create_engine, event, func, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.schema import CreateTable

from delayq import ConfigurationError, DelayQueue, PayloadError, PayloadTooLargeError, State, outbox
from delayq.errors import OutboxError
from delayq.outbox.rows import OutboxRow
from delayq.outbox.store import _lock, _rows
from delayq.outbox.tables import inbox, relays
from delayq.outbox.tables import outbox as table
from delayq.outbox.writing import _insert
from tests.support.waiting import wait_until


def rows(engine):
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(table))


def ids(queue):
    return sorted(one.id for state in (State.PENDING, State.READY) for one in queue.list(state).messages)


def test_committed_message_is_sent_with_its_options(engine, orders, relay):
    with engine.begin() as connection:
        id = outbox.send(
            connection, orders, {"n": 1}, delay="1h", retries=7, headers={"a": "b"}, name="pay", priority=3
        )
        assert orders.get(id) is None
    assert relay() == 1
    found = orders.get(id)
    assert (found.payload, found.retries_left, found.headers, found.name, found.priority) == (
        *({"n": 1}, 7, {"a": "b"}, "pay", 3),
    )
    assert timedelta(minutes=59) < found.due - datetime.now(UTC) <= timedelta(hours=1)
    assert rows(engine) == 0


def test_rolled_back_message_is_not_sent(engine, orders, relay):
    with engine.connect() as connection:
        outbox.send(connection, orders, 1)
        connection.rollback()
    assert relay() == 0
    assert ids(orders) == []


def test_savepoint_takes_back_only_what_is_within(engine, orders, relay):
    with Session(engine) as session, session.begin():
        first = outbox.send(session, orders, 1)
        with session.begin_nested() as savepoint:
            outbox.send(session, orders, 2)
            savepoint.rollback()
        with session.begin_nested():
            third = outbox.send(session, orders, 3)
    assert relay() == 2
    assert ids(orders) == sorted([first, third])


def test_row_in_autocommit_is_committed_at_once(engine, orders, relay):
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        id = outbox.send(connection, orders, 1, id="one")
        assert relay() == 1
        assert ids(orders) == [id]


def test_scoped_session_is_taken(engine, orders, relay):
    session = scoped_session(sessionmaker(engine))
    outbox.send(session, orders, 1)
    session.commit()
    session.remove()
    assert relay() == 1


def test_time_is_kept_and_delay_counts_from_the_insert(engine, orders, relay):
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    with engine.begin() as connection:
        outbox.send(connection, orders, 1, at=at, id="at")
        outbox.send(connection, orders, 1, delay=3600, id="delay")
        outbox.send(connection, orders, 1, delay=60, id="past")
        connection.execute(table.update().values(inserted=table.c.inserted - 600_000))
    assert relay() == 3
    assert orders.get("at").due == at
    left = (orders.get("delay").due - datetime.now(UTC)).total_seconds()
    assert 2990 < left <= 3000
    assert orders.get("past").due <= datetime.now(UTC)


def test_clock_of_the_database_a_day_wrong_makes_no_difference(postgres, engine, orders, relay):
    if engine.dialect.name != "postgresql":
        pytest.skip("SQLite has the clock of the machine")
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA IF NOT EXISTS wrong"))
        made = "CREATE OR REPLACE FUNCTION wrong.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql AS"
        connection.execute(text(f"{made} $$SELECT pg_catalog.clock_timestamp() - interval '1 day'$$"))
    late = create_engine(postgres.url(), connect_args={"options": "-c search_path=wrong,pg_catalog,public"})
    with late.begin() as connection:
        outbox.send(connection, orders, 1, delay=3600, id="delay")
        inserted = connection.scalar(select(table.c.inserted))
        assert time.time() - inserted / 1000 > 86_000, "the test has not changed the clock"
    assert outbox.relay(late, orders).run(burst=True) == 1
    late.dispose()
    assert 3590 < (orders.get("delay").due - datetime.now(UTC)).total_seconds() <= 3600


def test_replaced_cancelled_and_rescheduled(engine, orders, relay):
    with engine.begin() as connection:
        for id in ("replaced", "cancelled", "moved"):
            outbox.send(connection, orders, 1, delay=60, id=id)
        outbox.send(connection, orders, 2, delay=60, id="replaced", replace=True)
        outbox.cancel(connection, orders, "cancelled")
        outbox.reschedule(connection, orders, "moved", delay="1d")
    assert relay() == 6
    assert ids(orders) == ["moved", "replaced"]
    assert orders.get("replaced").payload == 2
    assert orders.get("moved").due > datetime.now(UTC) + timedelta(hours=23)


def test_three_operations_in_three_transactions_keep_their_order(engine, orders, relay):
    operations = [
        lambda db: outbox.send(db, orders, 1, delay=60, id="one"),
        lambda db: outbox.reschedule(db, orders, "one", delay="2d"),
        lambda db: outbox.cancel(db, orders, "one"),
    ]
    for operation in operations:
        with engine.begin() as connection:
            operation(connection)
    assert relay() == 3
    assert ids(orders) == []


def test_later_operation_on_an_id_waits_for_the_transaction_of_the_earlier(engine, orders, relay):
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    started, done = threading.Event(), []

    def cancel():
        with engine.begin() as connection:
            started.set()
            outbox.cancel(connection, orders, "one")
        done.append(1)

    with engine.begin() as connection:
        outbox.send(connection, orders, 1, delay=60, id="one")
        later = threading.Thread(target=cancel)
        later.start()
        started.wait(20)
        waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        wait_until(lambda: connection.scalar(waiting) == 1)
        assert relay() == 0
        assert not done
    later.join()
    assert relay() == 2
    assert ids(orders) == []


def test_same_id_in_two_queues_is_two_messages(engine, orders, relay, redis_url):
    with DelayQueue("others", url=redis_url) as others, DelayQueue("orders", url=redis_url, prefix="two") as twin:
        with engine.begin() as connection:
            for queue in (orders, others, twin):
                outbox.send(connection, queue, queue.prefix + queue.name, id="same")
        assert relay(orders, others, twin) == 3
        assert [queue.get("same").payload for queue in (orders, others, twin)] == [
            "delayqorders", "delayqothers", "twoorders",
        ]  # fmt: skip


def test_relay_leaves_the_rows_of_other_queues(engine, orders, relay, redis_url):
    with DelayQueue("others", url=redis_url) as others:
        with engine.begin() as connection:
            outbox.send(connection, others, 1)
        assert relay() == 0
        assert relay(others) == 1


def test_row_that_was_sent_and_not_deleted_is_sent_once(engine, orders, relay):
    with engine.begin() as connection:
        for n in range(10):
            outbox.send(connection, orders, n, id=f"own-{n}")
        outbox.send(connection, orders, 10)
    with engine.connect() as connection:
        kept = [row._asdict() for row in connection.execute(select(table))]
    assert relay() == 11
    for _ in range(5):
        with orders.lease(n=1) as messages:
            assert len(messages) == 1
    with engine.begin() as connection:
        connection.execute(table.insert(), kept)
    assert relay() == 11
    assert orders.counts().living == 6


def test_more_rows_than_a_batch_and_large_ones(engine, orders, relay):
    with engine.begin() as connection:
        for n in range(30):
            outbox.send(connection, orders, "x" * 500_000, id=f"large-{n}")
        for _ in range(2500):
            outbox.send(connection, orders, 1)
    assert relay() == 2530
    assert orders.counts().living == 2530


BAD = [
    ({"delay": -1}, "delay"),
    ({"id": "a b"}, "id must be"),
    ({"delay": 1, "at": datetime.now(UTC)}, "not both"),
    ({"unknown": 1}, "unknown"),
    ({"id": "a", "replace": "after"}, "replace=True"),
    ({"id": "a", "debounce": 1}, "takes no debounce"),
    ({"id": "a", "debounce": 1, "collect": 2}, "takes no debounce"),
    ({"retries": -1}, "retries"),
]


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_option_raises_in_the_transaction_and_leaves_it_well(engine, orders, relay, options, words):
    with engine.begin() as connection:
        id = outbox.send(connection, orders, 1)
        with pytest.raises(ConfigurationError, match=words):
            outbox.send(connection, orders, 2, **options)
    assert relay() == 1
    assert ids(orders) == [id]


def test_bad_payload_raises_in_the_transaction(engine, redis_url):
    small = DelayQueue("small", url=redis_url, max_payload=10)
    with engine.begin() as connection:
        with pytest.raises(PayloadTooLargeError):
            outbox.send(connection, small, "x" * 20)
        with pytest.raises(PayloadError):
            outbox.send(connection, small, object())
    assert rows(engine) == 0


def test_ended_transaction_is_refused(engine, orders):
    with engine.connect() as connection, connection.begin() as transaction:
        transaction.commit()
        with pytest.raises(OutboxError, match="takes no rows any more"):
            outbox.send(connection, orders, 1)
    with pytest.raises(OutboxError, match="takes no rows any more"):
        outbox.send(connection, orders, 1)
    assert rows(engine) == 0


def test_failed_transaction_is_refused(engine, orders):
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite goes on after a failed statement")
    with Session(engine) as session:
        with pytest.raises(DBAPIError):
            session.execute(text("SELECT nothing"))
        with pytest.raises(DBAPIError, match="aborted"):
            outbox.send(session, orders, 1)


def test_missing_tables_are_named(engine, orders, relay):
    outbox.metadata.drop_all(engine)
    with engine.connect() as connection, pytest.raises(OutboxError, match=r"call outbox.create\(engine\)"):
        outbox.send(connection, orders, 1)
    with pytest.raises(OutboxError, match=r"call outbox.create\(engine\)"):
        relay()
    outbox.create(engine)
    outbox.create(engine)
    assert relay() == 0


def test_what_is_no_database_or_queue_is_refused(engine, orders):
    with pytest.raises(ConfigurationError, match="db must be"):
        outbox.send(engine, orders, 1)
    with engine.connect() as connection, pytest.raises(ConfigurationError, match="sends to a DelayQueue"):
        outbox.send(connection, "orders", 1)
    with pytest.raises(ConfigurationError, match="engine must be"):
        outbox.relay("sqlite://", orders)
    with pytest.raises(ConfigurationError, match="name the queues"):
        outbox.relay(engine)
    with pytest.raises(ConfigurationError, match="sends to a DelayQueue"):
        outbox.relay(engine, "orders")


def test_eager_message_is_sent_right_after_the_commit(engine, orders):
    with Session(engine) as session:
        with session.begin():
            id = outbox.send(session, orders, 1, eager=True)
            with session.begin_nested():
                outbox.send(session, orders, 2, eager=True)
            assert ids(orders) == []
        assert len(ids(orders)) == 2
        assert orders.get(id) is not None
        outbox.send(session, orders, 3, eager=True)
        session.rollback()
        assert len(ids(orders)) == 2
    assert rows(engine) == 0


def test_eager_send_without_redis_is_left_to_a_relay(engine, relay, orders):
    with DelayQueue("orders", url="redis://127.0.0.1:1/0") as unreachable, Session(engine) as session, session.begin():
        outbox.send(session, unreachable, 1, eager=True)
    assert rows(engine) == 1
    assert relay() == 1


def test_eager_needs_a_session(engine, orders):
    with engine.connect() as connection, pytest.raises(ConfigurationError, match="eager needs a session"):
        outbox.send(connection, orders, 1, eager=True)


def test_relay_wants_few_queries(engine, orders, relay):
    statements = []
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    with engine.begin() as connection:
        for _ in range(1000):
            outbox.send(connection, orders, 1)
    statements.clear()
    assert relay() == 1000
    assert len(statements) < 40


def test_statements_compile_for_mysql():
    dialect = mysql.dialect()
    texts = [str(_insert.compile(dialect=dialect, column_keys=OutboxRow._fields))]
    texts += [str(one.compile(dialect=dialect)) for one in (_lock, _rows)]
    made = [str(CreateTable(one).compile(dialect=dialect)) for one in (table, relays, inbox)]
    assert "UNIX_TIMESTAMP(NOW(6))" in texts[0]
    assert texts[1].endswith("FOR UPDATE SKIP LOCKED")
    assert "LONGBLOB" in made[0]
    assert all("utf8mb4_bin" in one for one in made)
