"""Looking after an outbox: what waits in it, and what to do with rows that Redis refuses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import and_, case, delete, func, select, update

from delayq.outbox.failures import Database, connection_of, told
from delayq.outbox.relaying.row_store import FOLLOWS
from delayq.outbox.tables import database_now, outbox
from delayq.values.times import from_millis


class Backlog(NamedTuple):
    """What an outbox has for one queue."""

    waiting: int
    """Rows that a relay has yet to send."""
    oldest: float
    """Seconds for which the oldest of them has waited, by the clock of the database; 0 if there is none."""
    refused: int
    """Rows that Redis refuses, and those that follow them."""


class RefusedRow(NamedTuple):
    """A row that Redis refuses."""

    seq: int
    queue: str
    id: str
    operation: str
    inserted: datetime
    reason: str


def backlog(db: Database) -> dict[str, Backlog]:
    """Return what waits in an outbox, by queue; a relay that is well leaves nothing for longer than a moment."""
    is_waiting = outbox.c.refused.is_(None)
    inserted = case((is_waiting, outbox.c.inserted))
    found = select(outbox.c.queue, func.count(inserted), func.min(inserted), func.count(), database_now()).group_by(
        outbox.c.queue
    )
    with told():
        rows = connection_of(db).execute(found.order_by(outbox.c.queue)).all()
    return {
        queue: Backlog(waiting, max(0, now - first) / 1000 if first is not None else 0.0, total - waiting)
        for queue, waiting, first, total, now in rows
    }


def refused(db: Database, *, limit: int = 1000) -> list[RefusedRow]:
    """Return the rows that Redis refuses, in order, with the reason."""
    columns = (outbox.c[name] for name in ("seq", "queue", "id", "operation", "inserted", "refused"))
    found = select(*columns).where(outbox.c.refused.is_not(None)).order_by(outbox.c.seq).limit(limit)
    with told():
        rows = connection_of(db).execute(found).all()
    return [RefusedRow._make((*row[:4], from_millis(row[4]), row[5])) for row in rows]


def retry(db: Database, seqs: Sequence[int] | None = None) -> int:
    """Let relays try refused rows again, all or those with these numbers; returns how many.

    The other refused rows of their ids are tried again, too, in order.
    """
    connection = connection_of(db)
    is_refused = outbox.c.refused.is_not(None)
    if seqs is None:
        with told():
            return connection.execute(update(outbox).where(is_refused).values(refused=None)).rowcount
    return sum(_let_go(db, row) for row in _chosen(db, seqs))


def drop(db: Database, seqs: Sequence[int]) -> int:
    """Delete refused rows with these numbers; returns how many. What followed them is tried again."""
    rows = _chosen(db, seqs)
    with told():
        dropped = connection_of(db).execute(delete(outbox).where(outbox.c.seq.in_([row[0] for row in rows]))).rowcount
    for row in rows:
        _let_go(db, row, outbox.c.refused == FOLLOWS)
    return dropped


def _chosen(db: Database, seqs: Sequence[int]) -> list[tuple[int, str, str]]:
    found = select(outbox.c.seq, outbox.c.queue, outbox.c.id)
    chosen = found.where(outbox.c.refused.is_not(None), outbox.c.seq.in_(list(seqs)))
    with told():
        return [tuple(row) for row in connection_of(db).execute(chosen)]


def _let_go(db: Database, row: tuple[int, str, str], *which: object) -> int:
    _, queue, id = row
    same = and_(outbox.c.queue == queue, outbox.c.id == id, outbox.c.refused.is_not(None), *which)  # type: ignore[arg-type]
    with told():
        return connection_of(db).execute(update(outbox).where(same).values(refused=None)).rowcount
