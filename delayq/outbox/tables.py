"""The tables of the outbox and the inbox, for any database that SQLAlchemy knows; tried on PostgreSQL and SQLite."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects.mysql import LONGBLOB, VARCHAR
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from delayq.outbox.rows import NOW


class database_now(FunctionElement[int]):  # noqa: N801 - the name of a function of SQL
    """The time of the database (ms since 1970), of the statement and not of its transaction."""

    type = BigInteger()
    inherit_cache = True


@compiles(database_now, *NOW)
def _compile_now(_: Any, compiler: Any, **__: Any) -> str:
    return NOW[compiler.dialect.name]


def _name(length: int) -> Any:
    """Return the type of a text whose case matters, also in MySQL."""
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(exact, "mysql", "mariadb")


def _bytes() -> Any:
    return LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")


metadata = MetaData()
"""The tables of delayq: add it to the `target_metadata` of Alembic, and a migration that it generates makes them."""

outbox = Table(
    "delayq_outbox",
    metadata,
    Column("seq", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    Column("queue", _name(257), nullable=False),
    Column("id", _name(128), nullable=False),
    Column("operation", String(10), nullable=False),
    Column("due", String(24), nullable=False),
    Column("retries", BigInteger(), nullable=False),
    Column("payload", _bytes(), nullable=False),
    Column("headers", _bytes(), nullable=False),
    Column("attributes", _bytes(), nullable=False),
    Column("inserted", BigInteger(), nullable=False, default=database_now()),
    Column("refused", Text(), nullable=True),
    sqlite_autoincrement=True,
)
"""What is to be sent. A row with the reason `refused` stays, and with it the later rows of its id."""
Index(
    "delayq_outbox_refused",
    outbox.c.queue,
    outbox.c.id,
    postgresql_where=outbox.c.refused.is_not(None),
    sqlite_where=outbox.c.refused.is_not(None),
)

relays = Table("delayq_outbox_relay", metadata, Column("queue", _name(257), primary_key=True))
"""A row for each queue, which the relay that works on it has locked."""

inbox = Table(
    "delayq_inbox",
    metadata,
    Column("queue", _name(257), primary_key=True),
    Column("id", _name(128), primary_key=True),
    Column("life", String(32), primary_key=True),
    Column("inserted", BigInteger(), nullable=False, default=database_now()),
)
"""What has had its effect, see `once`."""


def create(bind: Engine | Connection) -> None:
    """Create the tables of outbox and inbox where they are missing; with an `AsyncEngine`, `aio.create`."""
    metadata.create_all(bind)
