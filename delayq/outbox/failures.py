"""What a database refuses, as an error that says what to do; all else of SQLAlchemy passes as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, InvalidRequestError, SQLAlchemyError
from sqlalchemy.orm import Session, scoped_session

from delayq.errors import ConfigurationError, OutboxError, short_repr
from delayq.outbox.relaying.row_store import NO_TABLE, is_told

Database = Connection | Session | scoped_session[Any]
"""A connection of SQLAlchemy Core, or a session of its ORM."""
_NO_LOCKS = ("53200",)


def connection_of(db: Any) -> Connection:
    """Return the connection whose transaction a row belongs to."""
    if isinstance(db, scoped_session):
        db = db()
    if isinstance(db, Session):
        return db.connection()
    if isinstance(db, Connection):
        return db
    hint = ", see delayq.outbox.aio" if type(db).__name__.startswith("Async") else ""
    raise ConfigurationError(f"db must be a connection or a session of SQLAlchemy, not {short_repr(db)}{hint}")


@contextmanager
def told() -> Iterator[None]:
    """Raise `OutboxError` for what is a mistake in the use of an outbox: an ended transaction, no table, a large row.

    Deadlocks, lost connections and the like stay errors of SQLAlchemy: programs know how to repeat a transaction.
    """
    try:
        yield
    except (InvalidRequestError, DBAPIError) as error:
        if (text := _explained(error)) is not None:
            raise OutboxError(text) from error
        raise


def is_missing_table(error: SQLAlchemyError) -> bool:
    """Return whether a statement has failed because there is no such table."""
    return is_told(getattr(error, "orig", None), NO_TABLE)


def _explained(error: SQLAlchemyError) -> str | None:
    if not isinstance(error, DBAPIError):
        return f"the transaction takes no rows any more: {error}"
    if is_missing_table(error):
        return "the database has no tables of delayq: call outbox.create(engine), or migrate it"
    if is_told(error.orig, _NO_LOCKS):
        return "too many ids of your own in one transaction: raise max_locks_per_transaction, or send them in several"
    if isinstance(error, DataError):
        return f"the database refuses the row: {error.orig}"
    return None
