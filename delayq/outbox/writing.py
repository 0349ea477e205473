"""Writes rows of the outbox in the transaction of the caller."""

from __future__ import annotations

from datetime import datetime
from hashlib import blake2b
from typing import Any, TypeVar, Unpack

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session, scoped_session

from delayq.errors import ConfigurationError
from delayq.outbox.failures import Database, connection_of, told
from delayq.outbox.relaying.notifications import CHANNEL
from delayq.outbox.rows import OutboxRow, cancel_row, reschedule_row, send_row
from delayq.outbox.tables import outbox
from delayq.queue.delay_base import DelayBase
from delayq.queue.sending.message_options import SendOptions
from delayq.values.times import Duration

T = TypeVar("T")
_insert = insert(outbox)
_notifying = insert(outbox).returning(func.pg_notify(CHANNEL, ""))


def send(
    db: Database,
    queue: DelayBase[T, Any],
    payload: T,
    delay: Duration | None = None,
    *,
    at: datetime | None = None,
    retries: int | None = None,
    eager: bool = False,
    **options: Unpack[SendOptions],
) -> str:
    """Send a message if, and once, the transaction of `db` commits; returns its id.

    Message and options are checked and encoded here, and `ConfigurationError` or `PayloadError` leave the transaction
    as it was. The delay counts from now, by the clock of the database; a relay sends what is left of it. A message of
    a committed transaction is sent exactly once, as long as the relay is back within the `dedupe_window` of the queue,
    which is a day unless it has one. Options that cannot be repeated are refused: `debounce`, `collect`, `group` and
    `replace="after"`.

    A transaction that sends, cancels or reschedules an id of your own waits for others that do so with the same id, so
    that their order is that of the calls. With `eager`, which needs a session, the process also does what a relay would
    do right after the commit, unless a relay is at work. Raises `OutboxError` for a transaction that has ended, and if
    there is no table; other errors are those of SQLAlchemy.
    """
    row, is_own = send_row(queue, payload, delay, at=at, retries=retries, options=options)
    write(db, row, ordered=is_own)
    if eager:
        _send_eagerly(db, queue)
    return row.id


def cancel(db: Database, queue: DelayBase[Any, Any], id: str) -> None:
    """Cancel a message once the transaction of `db` commits, unless it is being processed by then; see `send`."""
    write(db, cancel_row(queue, id), ordered=True)


def reschedule(
    db: Database,
    queue: DelayBase[Any, Any],
    id: str,
    delay: Duration | None = None,
    at: datetime | None = None,
) -> None:
    """Set a new due time, once the transaction of `db` commits, for a message that is not being processed by then.

    The delay counts from now, by the clock of the database; see `send`.
    """
    write(db, reschedule_row(queue, id, delay, at), ordered=True)


def write(db: Database, row: OutboxRow, *, ordered: bool) -> None:
    """Insert a row; an `ordered` one after those of its id in all other transactions, for whose ends it waits."""
    with told():
        connection = connection_of(db)
        if connection.dialect.name != "postgresql":
            connection.execute(_insert, row._asdict())  # SQLite has one writer at a time
            return
        if ordered:
            connection.execute(select(func.pg_advisory_xact_lock(_lock_of(row))))
        connection.execute(_notifying, row._asdict())


def _lock_of(row: OutboxRow) -> int:
    digest = blake2b(f"delayq {row.queue} {row.id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _send_eagerly(db: Database, queue: DelayBase[Any, Any]) -> None:
    from delayq.outbox.eager import relay_after_commit  # not every program is eager

    session = db() if isinstance(db, scoped_session) else db
    if not isinstance(session, Session):
        raise ConfigurationError("eager needs a session: SQLAlchemy does not tell of the commits of a connection")
    relay_after_commit(session, queue)
