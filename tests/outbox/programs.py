"""The programs of a pipeline from row to row: what writes rows, relays and consumes, each to be killed anywhere."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, event, func, insert, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from delayq import DelayQueue, outbox

tables = MetaData()
made = Table("made", tables, Column("n", Integer, primary_key=True))
"""What a program has committed together with a send."""
effects = Table(
    "effects", tables, Column("seq", Integer, primary_key=True), Column("n", Integer), Column("id", String(40))
)
"""What callbacks have done: a row for each time."""
LEASE = 0.5


def connect(url: str) -> Any:
    """Return an engine without a pool; of SQLite one that survives kills, if not a power cut, and waits for others."""
    if not url.startswith("sqlite"):
        return create_engine(url, poolclass=NullPool)
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": 60})

    @event.listens_for(engine, "connect")
    def _(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=OFF")

    return engine


def jobs(redis_url: str, **options: Any) -> DelayQueue[Any]:
    """Return the queue."""
    return DelayQueue("jobs", url=redis_url, lease=LEASE, default_retries=1000, nack_delay=0.05, **options)


def write(url: str, redis_url: str, count: str, seed: str) -> None:
    """Commit rows and their sends, up to so many, in transactions of random sizes; a fifth is rolled back."""
    engine, queue, draw, most = connect(url), jobs(redis_url), random.Random(int(seed)), int(count)
    with engine.connect() as connection:
        while True:
            first = (connection.scalar(select(func.max(made.c.n))) or 0) + 1
            if first > most:
                return
            numbers = range(first, min(most + 1, first + draw.randint(1, 60)))
            rolls_back = draw.random() < 0.2
            for n in numbers:
                connection.execute(insert(made), {"n": n})
                payload = -n if rolls_back else n
                outbox.send(connection, queue, payload, id=f"job-{n}" if n % 2 and not rolls_back else None)
            if rolls_back:
                connection.rollback()
            else:
                connection.commit()


def relay(url: str, redis_url: str) -> None:
    """Relay until killed."""
    outbox.relay(connect(url), jobs(redis_url)).run()


def consume(url: str, redis_url: str) -> None:
    """Do what messages say until killed, a batch in a transaction."""
    engine, queue = connect(url), jobs(redis_url)

    @queue.batch_callback(most=200)
    def _(messages: list[Any]) -> None:
        with engine.begin() as connection:
            fresh = [one for one in messages if outbox.once(connection, one)]
            if fresh:
                connection.execute(insert(effects), [{"n": one.payload, "id": one.id} for one in fresh])

    queue.run()


def persist(work: Callable[..., None], *arguments: str) -> None:
    """Work, and begin anew where the database or Redis has gone, as a supervisor would."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        try:
            work(*arguments)
        except SQLAlchemyError:
            time.sleep(0.05)
        else:
            return
