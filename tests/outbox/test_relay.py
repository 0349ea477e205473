"""The relay: it waits for commits, works alone, goes on after failures, and leaves aside what Redis refuses."""

import threading
import time

import pytest
from sqlalchemy import create_engine, event, insert, select
from sqlalchemy.orm import Session

from delayq import DelayQueue, outbox
from delayq.errors import ServerError
from delayq.outbox.relaying.relay_steps import HEARTBEAT
from delayq.outbox.rows import send_row
from delayq.outbox.tables import outbox as table
from tests.support.waiting import wait_until


@pytest.fixture
def statements(engine):
    """The statements that an engine has executed."""
    found = []
    event.listen(engine, "before_cursor_execute", lambda *args: found.append(args[2]))
    return found


def test_running_relay_sends_what_is_committed(engine, orders):
    with outbox.relay(engine, orders):
        for n in range(3):
            with engine.begin() as connection:
                id = outbox.send(connection, orders, n)
            wait_until(lambda id=id: orders.get(id) is not None, timeout=5)


def test_idle_relay_asks_little(engine, orders, statements):
    with outbox.relay(engine, orders):
        with engine.begin() as connection:
            id = outbox.send(connection, orders, 1)
        wait_until(lambda: orders.get(id) is not None and not rows_of(engine))
        wait_until(lambda: statements[-1].lstrip().startswith("SELECT"))
        time.sleep(0.3)  # until the last commit is told
        statements.clear()
        time.sleep(2)
    # PostgreSQL tells of commits, so there is a heartbeat alone; SQLite is looked at every 200 ms.
    assert len(statements) <= (2 if engine.dialect.name == "postgresql" else 10)
    assert HEARTBEAT > 2


def test_of_two_relays_one_works_and_the_other_takes_over(engine, orders):
    sent = []
    first, second = outbox.relay(engine, orders), outbox.relay(engine, orders)
    with second, first:
        for n in range(50):
            with engine.begin() as connection:
                sent.append(outbox.send(connection, orders, n))
            if n == 25:
                first.stop()
        wait_until(lambda: orders.counts().living == 50, timeout=5)
        wait_until(lambda: not rows_of(engine))
    assert first._steps.moved + second._steps.moved == 50


def test_rows_that_another_relay_works_on_are_left_to_it(engine, orders):
    other = outbox.relay(engine, orders)
    with engine.connect() as connection:
        other._store.open(connection, ["orders"], listens=False)
        with engine.begin() as writing:
            outbox.send(writing, orders, 1)
        taken = other._store.take(connection, ["orders"])
        assert len(taken.rows["orders"]) == 1
        assert outbox.relay(engine, orders).run(burst=True) == 0
        connection.rollback()
        other._store.close()
    assert outbox.relay(engine, orders).run(burst=True) == 1


def test_relay_goes_on_when_redis_is_back(engine, start_redis):
    server = start_redis("--appendonly", "yes")
    with DelayQueue("orders", url=server.url) as queue, outbox.relay(engine, queue) as relay:
        with engine.begin() as connection:
            first = outbox.send(connection, queue, 1)
        wait_until(lambda: relay._steps.moved == 1)
        server.kill()
        with engine.begin() as connection:
            second = outbox.send(connection, queue, 2)
        wait_until(lambda: relay._steps.error is not None)
        server.start()
        wait_until(lambda: relay._steps.moved == 2)
        assert {first, second} <= {one.id for one in queue.list("ready").messages + queue.list("pending").messages}


def test_full_queue_holds_up_no_other(engine, redis_url, relay, orders):
    with DelayQueue("full", url=redis_url, max_length=1) as full:
        full.send("there")
        with engine.begin() as connection:
            outbox.send(connection, full, 1)
            outbox.send(connection, orders, 1)
        with outbox.relay(engine, full, orders) as running:
            wait_until(lambda: orders.counts().living == 1)
            full.purge()
            wait_until(lambda: running._steps.moved == 2, timeout=10)


@pytest.fixture
def refusing(orders, monkeypatch):
    """`refusing(*ids)` has Redis refuse these ids."""
    send, refused = orders.context.calls.send, set()

    def look(messages, **options):
        ids = messages.ids if hasattr(messages, "ids") else [message.id for message in messages]
        if refused.intersection(ids):
            raise ServerError("WRONGTYPE of this id")
        return send(messages, **options)

    class Calls(type(orders.context.calls)):
        __slots__ = ()

        def send(self, messages, **options):
            return look(messages, **options)

    calls = orders.context.calls
    orders.context.calls = Calls(calls.keys)
    monkeypatch.setattr(orders.producer._context, "calls", orders.context.calls)

    def refuse(*ids):
        refused.clear()
        refused.update(ids)

    return refuse


def test_refused_row_is_marked_and_holds_up_only_its_id(engine, orders, relay, refusing):
    refusing("bad")
    with engine.begin() as connection:
        outbox.send(connection, orders, 1, id="good")
        outbox.send(connection, orders, 1, id="bad", delay=60)
        outbox.reschedule(connection, orders, "bad", delay=3600)
        outbox.send(connection, orders, 1, id="better")
    assert relay() == 2
    with engine.begin() as connection:
        outbox.cancel(connection, orders, "good")
        found = outbox.refused(connection)
        assert [(one.id, one.operation, one.queue) for one in found] == [
            ("bad", "send", "orders"),
            ("bad", "reschedule", "orders"),
        ]
        assert "WRONGTYPE" in found[0].reason
        assert found[1].reason == "follows a row of its id that was refused"
        assert outbox.backlog(connection)["orders"][::2] == (1, 2)
    assert relay() == 1
    refusing()
    with engine.begin() as connection:
        assert outbox.retry(connection, [found[0].seq]) == 2
    assert relay() == 2
    assert orders.get("bad").due.timestamp() - time.time() > 3000
    assert not rows_of(engine)


def test_dropped_row_lets_those_that_follow_go(engine, orders, relay, refusing):
    orders.send(0, 10, id="bad")
    refusing("bad")
    with engine.begin() as connection:
        outbox.send(connection, orders, 1, id="bad")
        outbox.cancel(connection, orders, "bad")
    assert relay() == 0
    with engine.begin() as connection:
        (first, _) = outbox.refused(connection)
        assert outbox.drop(connection, [first.seq, 999]) == 1
    assert relay() == 1
    assert orders.get("bad") is None


def test_all_refused_rows_are_tried_again(engine, orders, relay, refusing):
    refusing("a", "b")
    with engine.begin() as connection:
        outbox.send(connection, orders, 1, id="a")
        outbox.send(connection, orders, 1, id="b")
    assert relay() == 0
    refusing()
    with engine.begin() as connection:
        assert outbox.retry(connection) == 2
    assert relay() == 2


def test_backlog_tells_how_long_rows_wait(engine, orders, relay):
    with engine.begin() as connection:
        outbox.send(connection, orders, 1)
        connection.execute(table.update().values(inserted=table.c.inserted - 60_000))
        found = outbox.backlog(connection)["orders"]
        assert found.waiting == 1
        assert 60 <= found.oldest < 70
    relay()
    with engine.connect() as connection:
        assert outbox.backlog(connection) == {}


def test_queue_without_a_dedupe_window_gets_one_of_a_day(engine, orders, relay, redis_url, redis_client):
    with DelayQueue("own", url=redis_url, dedupe_window="2h") as own, engine.begin() as connection:
        own.open()
        outbox.send(connection, orders, 1)
        outbox.send(connection, own, 1)
    relay(orders, DelayQueue("own", url=redis_url))
    assert redis_client.hget("delayq:{orders}:meta", "dedupe").startswith(b"86400000 ")
    assert redis_client.hget("delayq:{own}:meta", "dedupe").startswith(b"7200000 ")


def test_commits_are_delivered_within_50_ms(engine, orders):
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite is polled every 200 ms")
    waits = []
    with outbox.relay(engine, orders) as relay:
        for n in range(60):
            with engine.begin() as connection:
                outbox.send(connection, orders, n)
            begun = time.perf_counter()
            wait_until(lambda n=n: relay._steps.moved == n + 1, every=0.0005)
            waits.append(time.perf_counter() - begun)
    assert sorted(waits)[30] < 0.05, "by the heartbeat alone it would be seconds"


@pytest.mark.parametrize("driver", ["psycopg2", "psycopg"])
def test_psycopg_tells_of_commits(engine, orders, driver):
    if engine.dialect.name == "sqlite":
        pytest.skip("of PostgreSQL")
    pytest.importorskip(driver)
    other = create_engine(engine.url.set(drivername=f"postgresql+{driver}"))
    with outbox.relay(other, orders) as relay, Session(engine) as session:
        wait_until(lambda: relay._thread.is_alive())
        time.sleep(0.1)
        outbox.send(session, orders, 1)
        session.commit()
        wait_until(lambda: relay._steps.moved == 1, timeout=HEARTBEAT / 2)
    other.dispose()


def test_relay_connects_again_to_a_database_that_was_killed(postgres, orders):
    engine = create_engine(postgres.url(), pool_pre_ping=True)
    outbox.metadata.drop_all(engine)
    outbox.create(engine)
    with outbox.relay(engine, orders) as relay:
        with engine.begin() as connection:
            outbox.send(connection, orders, 1)
        wait_until(lambda: relay._steps.moved == 1)
        postgres.kill()
        postgres.start()
        with engine.begin() as connection:
            outbox.send(connection, orders, 1)
        wait_until(lambda: relay._steps.moved == 2)
    engine.dispose()


@pytest.mark.parametrize("level", ["SERIALIZABLE", "REPEATABLE READ", "AUTOCOMMIT"])
def test_relay_of_an_engine_with_another_isolation_sees_later_commits(engine, orders, level):
    """A relay locks and looks in READ COMMITTED, whatever the engine says."""
    if engine.dialect.name == "sqlite" and level == "REPEATABLE READ":
        pytest.skip("SQLite has no such level")
    other = create_engine(engine.url, isolation_level=level)
    with outbox.relay(other, orders) as first, outbox.relay(other, orders) as second:
        for n in range(20):
            with other.begin() as connection:
                outbox.send(connection, orders, n, id=f"own-{n}")
        wait_until(lambda: not rows_of(engine))
    assert (orders.counts().living, first._steps.moved + second._steps.moved) == (20, 20)
    other.dispose()


def test_order_of_an_id_is_kept_between_two_relays(engine, orders):
    """Each id is sent, moved and cancelled, or moved and sent again, in transactions of several threads."""
    first, second = outbox.relay(engine, orders), outbox.relay(engine, orders)

    def write(part):
        for n in range(part, 60, 3):
            for step in range(3):
                with engine.begin() as connection:
                    if step == 0:
                        outbox.send(connection, orders, n, delay=600, id=f"id-{n}")
                    elif step == 1:
                        outbox.reschedule(connection, orders, f"id-{n}", delay=1200 + n)
                    elif n % 2:
                        outbox.cancel(connection, orders, f"id-{n}")

    with first, second:
        threads = [threading.Thread(target=write, args=(part,)) for part in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: not rows_of(engine))
    found = {one.id: one.due.timestamp() - time.time() for one in orders.list("pending", limit=100).messages}
    assert sorted(found) == sorted(f"id-{n}" for n in range(0, 60, 2))
    assert all(due > 1100 for due in found.values())


def test_rows_written_by_other_means_are_relayed(engine, orders, relay):
    with engine.begin() as connection:
        row, is_own = send_row(orders, {"n": 1}, delay=5)
        connection.execute(insert(table), row._asdict())
    assert not is_own
    assert relay() == 1


def test_row_of_a_newer_version_is_refused(engine, orders, relay):
    with engine.begin() as connection:
        outbox.send(connection, orders, 1)
        outbox.send(connection, orders, 1)
        connection.execute(table.update().where(table.c.seq % 2 == 0).values(operation="swap"))
    assert relay() == 1
    with engine.connect() as connection:
        assert "a newer delayq wants to swap" in outbox.refused(connection)[0].reason


def rows_of(engine):
    with engine.connect() as connection:
        return connection.execute(select(table.c.seq)).all()
