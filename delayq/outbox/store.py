"""The statements of a relay, by SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    Connection,
    any_,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from delayq.outbox.failures import told
from delayq.outbox.relaying.notifications import CHANNEL
from delayq.outbox.relaying.row_store import FROZEN, RowStore
from delayq.outbox.rows import TakenRow
from delayq.outbox.tables import database_now, outbox, relays

_names: BindParameter[Any] = bindparam("names", expanding=True)
_seqs: BindParameter[Any] = bindparam("seqs", expanding=True)
_lock = select(relays.c.queue).where(relays.c.queue.in_(_names)).with_for_update(skip_locked=True)
_rows = (
    select(outbox.c.queue, *(outbox.c[name] for name in TakenRow._fields), database_now())
    .where(outbox.c.refused.is_(None) & outbox.c.queue.in_(_names))
    .order_by(outbox.c.seq)
    .limit(bindparam("most"))
)
_refused = (
    select(outbox.c.queue, outbox.c.id, func.min(outbox.c.seq))
    .where(outbox.c.refused.is_not(None))
    .group_by(outbox.c.queue, outbox.c.id)
)
_delete = delete(outbox).where(outbox.c.seq.in_(_seqs))
_delete_array = delete(outbox).where(outbox.c.seq == any_(bindparam("seqs", type_=ARRAY(BigInteger))))
"""The same for PostgreSQL, which reads one array faster than 1,000 parameters."""
_refuse = update(outbox).where(outbox.c.seq == bindparam("row")).values(refused=bindparam("reason"))


class Store(RowStore):
    """The rows of an outbox, for a relay that has a connection of SQLAlchemy."""

    def _kind(self, connection: Connection) -> str:
        return connection.dialect.name

    def _file(self, connection: Connection) -> str | None:
        database = connection.engine.url.database
        return database if database and database != ":memory:" and not database.startswith("file:") else None

    def _known(self, connection: Connection) -> set[str]:
        with told():
            known = set(connection.scalars(select(relays.c.queue)))
            connection.rollback()
        return known

    def _add(self, connection: Connection, name: str) -> None:
        with suppress(IntegrityError):
            connection.execute(insert(relays), {"queue": name})
        connection.commit()

    def _lock(self, connection: Connection, names: Sequence[str]) -> list[str]:
        return list(connection.scalars(_lock, {"names": names}))

    def _next(self, connection: Connection, names: Sequence[str], most: int) -> Sequence[Any]:
        return connection.execute(_rows, {"names": names, "most": most}).all()

    def _refused(self, connection: Connection) -> dict[tuple[str, str], int]:
        return {(queue, id): seq for queue, id, seq in connection.execute(_refused)}

    def _mark(self, connection: Connection, refused: Mapping[int, str]) -> None:
        if refused:
            connection.execute(_refuse, [{"row": seq, "reason": reason} for seq, reason in refused.items()])

    def _delete(self, connection: Connection, seqs: Sequence[int]) -> None:
        is_postgresql = connection.dialect.name == "postgresql"
        connection.execute(_delete_array if is_postgresql else _delete, {"seqs": seqs})

    def _listen(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"SET idle_in_transaction_session_timeout = '{FROZEN}'")
        connection.exec_driver_sql(f"LISTEN {CHANNEL}")
        connection.commit()
