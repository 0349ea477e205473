"""The outbox: what a relay adds to a bare loop over the rows, how soon a commit is delivered, and what idling costs.

On a throwaway PostgreSQL, as the tests start one, and on SQLite for the polls.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, create_engine, delete, event, insert, select

from delayq import DelayQueue, outbox
from delayq.outbox.rows import send_row
from delayq.outbox.tables import outbox as table
from measure.bench_server import QUEUE, TEXT, BenchServer
from measure.figure import MILLISECONDS, RATE, Figure, Measurement, Reading, at_least, at_most

ROWS = 50_000
BATCH = 1000
"""Rows that the bare loop takes, deletes and commits at a time, as the relay does."""
COMMITS = 300
IDLE = 4.0
"""Seconds in which the queries of an idle relay are counted."""


def relaying(server: BenchServer) -> Iterator[Reading]:
    """Rows per second, commits until a message can be claimed, and queries per second of idle relays."""
    server.empty()
    with DelayQueue(QUEUE, url=server.url) as queue, _postgres() as engine, _sqlite() as polled:
        n = server.many(ROWS)
        _write(engine, queue, n)
        began = time.perf_counter()
        _bare(engine)
        bare = n / (time.perf_counter() - began)
        _write(engine, queue, n)
        began = time.perf_counter()
        outbox.relay(engine, queue).run(burst=True)
        yield Reading("outbox_relay", n / (time.perf_counter() - began), bare, note=f"{n:,} rows")
        server.empty()
        yield Reading("outbox_commit", _latency(engine, queue))
        yield Reading("outbox_idle_told", _idle(engine, queue))
        yield Reading("outbox_idle_polled", _idle(polled, queue))


def _write(engine: Engine, queue: DelayQueue[str], n: int) -> None:
    with engine.begin() as connection:
        connection.execute(insert(table), [send_row(queue, TEXT)[0]._asdict() for _ in range(n)])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE delayq_outbox")


def _bare(engine: Engine) -> None:
    """Take, delete and commit all rows in batches, and do nothing with them."""
    take = select(table).order_by(table.c.seq).limit(BATCH)
    with engine.connect() as connection:
        while rows := connection.execute(take).all():
            connection.execute(delete(table).where(table.c.seq.in_([row.seq for row in rows])))
            connection.commit()


def _latency(engine: Engine, queue: DelayQueue[str]) -> float:
    """Return the 99th percentile of the milliseconds from a commit to the claim of its message."""
    took: list[float] = []
    with outbox.relay(engine, queue):
        for _ in range(COMMITS):
            with engine.begin() as connection:
                outbox.send(connection, queue, TEXT)
            began = time.perf_counter()
            with queue.lease(block=10) as message:
                took.append(1000 * (time.perf_counter() - began))
                if message is None:
                    raise RuntimeError("a committed message was not delivered within 10 s")
    return statistics.quantiles(took, n=100)[98]


def _idle(engine: Engine, queue: DelayQueue[str]) -> float:
    """Return the queries per second of a relay that has nothing to do."""
    queries: list[float] = []
    event.listen(engine, "before_cursor_execute", lambda *_: queries.append(time.perf_counter()))
    with outbox.relay(engine, queue):
        time.sleep(1)
        begun = time.perf_counter()
        time.sleep(IDLE)
    return sum(at > begun for at in queries) / IDLE


@contextmanager
def _postgres() -> Iterator[Engine]:
    sys.path.append(str(Path(__file__).parents[2]))
    from tests.support.postgres import Postgres  # `tests` is no installed package

    server = Postgres()
    engine = create_engine(server.url())
    try:
        outbox.create(engine)
        yield engine
    finally:
        engine.dispose()
        server.stop()


@contextmanager
def _sqlite() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(f"sqlite:///{folder}/app.db")
        outbox.create(engine)
        yield engine
        engine.dispose()


def measurements() -> list[Measurement]:
    """Return the measurements of this module."""
    told, polled = "queries of an idle relay, PostgreSQL", "queries of an idle relay, SQLite"
    figures = [
        Figure("outbox_relay", "rows relayed", at_least(0.5, "the bare loop"), reference_name="bare loop"),
        Figure("outbox_commit", "from commit to claim, 99 %", at_most(50, MILLISECONDS), MILLISECONDS, cost=True),
        Figure("outbox_idle_told", told, at_most(0.3, RATE), RATE, cost=True),
        Figure("outbox_idle_polled", polled, at_most(5, RATE), RATE, cost=True),
    ]
    return [Measurement("outbox", relaying, figures)]
