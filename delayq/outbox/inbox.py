"""The inbox: what a message does to a database happens once, however often the message is delivered."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Insert, delete
from sqlalchemy.dialects.mysql import insert as mysql_insert
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from delayq.broker.keys import whole_name
from delayq.errors import OutboxError
from delayq.outbox.failures import Database, connection_of, told
from delayq.outbox.rows import LIFE
from delayq.outbox.tables import database_now, inbox
from delayq.values.times import Duration, to_millis

_INSERTS: dict[str, Insert] = {
    "postgresql": postgresql_insert(inbox).on_conflict_do_nothing(),
    "sqlite": sqlite_insert(inbox).on_conflict_do_nothing(),
    "mysql": mysql_insert(inbox).prefix_with("IGNORE"),
    "mariadb": mysql_insert(inbox).prefix_with("IGNORE"),
}


def once(db: Database, message: Any) -> bool:
    """Return whether a message has yet to have its effect, which belongs into the same transaction of `db`.

    False if this life of the message has had its effect already: acknowledge it, and do nothing. If the transaction is
    rolled back, it has not. Of two deliveries at a time, the second waits for the first. A message that the outbox
    sends has a new life with each send; any other has one as long as its row is kept, see `prune`. Raises `OutboxError`
    for a connection that commits each statement by itself, for which there is no such thing.
    """
    with told():
        connection = connection_of(db)
        if is_autocommit(connection):
            raise OutboxError("once needs a transaction, with which its row is committed: this is autocommit")
        row = {"queue": whole_name(message.queue), "id": message.id, "life": message.headers.get(LIFE, "")[:32]}
        how = {"preserve_rowcount": True}  # for an insert, SQLAlchemy does not look at it by itself
        return connection.execute(_INSERTS[connection.dialect.name], row, execution_options=how).rowcount == 1


def is_autocommit(connection: Connection) -> bool:
    """Return whether a connection commits each statement by itself."""
    chosen = connection.get_execution_options().get("isolation_level")
    return (chosen or connection.default_isolation_level or "").upper() == "AUTOCOMMIT" or (
        connection.get_isolation_level() == "AUTOCOMMIT"
    )


def prune(db: Database, older: Duration) -> int:
    """Forget what has had its effect longer ago; returns how many rows were deleted.

    Keep them for longer than a message can be delivered again: retries, and entries of the dead letter that are
    redriven.
    """
    with told():
        before = database_now() - to_millis(older, "older")
        return connection_of(db).execute(delete(inbox).where(inbox.c.inserted < before)).rowcount
