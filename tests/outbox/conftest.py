"""Databases of the outbox's tests: SQLite in a file, and a PostgreSQL for each pytest process."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from delayq import DelayQueue, outbox
from tests.support.postgres import Postgres, find_program


@pytest.fixture(scope="session")
def postgres():
    if find_program("initdb") is None:
        pytest.skip("no PostgreSQL: scripts/ensure-postgres")
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path):
    """The URL of an empty database with the tables of delayq."""
    if request.param == "sqlite":
        url = make_url(f"sqlite:///{tmp_path}/app.db")
    else:
        url = request.getfixturevalue("postgres").url()
    engine = create_engine(url, poolclass=NullPool)
    outbox.metadata.drop_all(engine)
    outbox.create(engine)
    engine.dispose()
    return url


@pytest.fixture
def engine(database_url):
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def make_async_engine(database_url):
    """Make an engine for asyncio on the same database; on PostgreSQL with one of two drivers."""

    def make(driver="asyncpg"):
        chosen = "sqlite+aiosqlite" if database_url.drivername == "sqlite" else f"postgresql+{driver}"
        return create_async_engine(database_url.set(drivername=chosen), poolclass=NullPool)

    return make


@pytest.fixture
def orders(redis_url):
    """The queue that the tests send to."""
    with DelayQueue("orders", url=redis_url) as queue:
        yield queue


@pytest.fixture
def relay(engine, orders):
    """`relay()` sends all that was committed, and returns how many rows that were."""
    return lambda *queues: outbox.relay(engine, *(queues or [orders])).run(burst=True)
