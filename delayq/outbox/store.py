"""What a relay does in the database: takes rows that it alone works on, deletes what is done, keeps what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

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
from delayq.outbox.rows import NOTHING, Taken, TakenRow
from delayq.outbox.tables import CHANNEL, database_now, outbox, relays

MAX_ROWS = 1000
"""Rows that are taken, sent and deleted in one transaction."""
MAX_BYTES = 4 << 20
"""Bytes of payloads in a batch, after which the next one takes fewer rows."""
FOLLOWS = "follows a row of its id that was refused"
_FROZEN = "30s"
"""How long a relay may stop in the middle of a batch until PostgreSQL lets another one work."""

_names: BindParameter[Any] = bindparam("names", expanding=True)
_seqs: BindParameter[Any] = bindparam("seqs", expanding=True)
_lock = select(relays.c.queue).where(relays.c.queue.in_(_names)).with_for_update(skip_locked=True)
_waiting = outbox.c.refused.is_(None) & outbox.c.queue.in_(_names)
_peek = select(outbox.c.seq).where(_waiting).limit(1)
_rows = (
    select(outbox.c.queue, *(outbox.c[name] for name in TakenRow._fields), database_now())
    .where(_waiting)
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


class Store:
    """The rows of an outbox, for a relay whose every method gets its one connection."""

    def __init__(self) -> None:
        """Know nothing of the database yet."""
        self._most = 250
        """Rows to take next: fewer where they are large."""
        self._files: dict[str, IO[bytes]] = {}
        """The locks of SQLite: its own would keep programs from writing while Redis is slow."""

    def open(self, connection: Connection, names: Iterable[str], *, listens: bool) -> None:
        """Add the rows to lock where they are missing, and with `listens` have PostgreSQL tell of commits."""
        with told():
            known = set(connection.scalars(select(relays.c.queue)))
            connection.rollback()
            for name in names:
                if name not in known:
                    with suppress(IntegrityError):  # another relay has added it meanwhile
                        connection.execute(insert(relays), {"queue": name})
                    connection.commit()
        if listens:
            connection.exec_driver_sql(f"SET idle_in_transaction_session_timeout = '{_FROZEN}'")
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
            connection.commit()

    def take(self, connection: Connection, names: Sequence[str]) -> Taken:
        """Take the next rows of queues, in order, unless another relay works on them; `settle` ends the transaction."""
        mine = self._locked(connection, names)
        if not mine:
            connection.rollback()
            return NOTHING._replace(held=len(mine) < len(names))
        found = connection.execute(_rows, {"names": mine, "most": self._most}).all()
        more, held = len(found) == self._most, len(mine) < len(names)
        if not found:
            connection.rollback()
            return NOTHING._replace(held=held)
        size = sum(len(row[6]) for row in found)
        self._most = max(1, self._most // 2) if size > MAX_BYTES else min(MAX_ROWS, 2 * self._most)
        refused = {(queue, id): seq for queue, id, seq in connection.execute(_refused)}
        rows: dict[str, list[TakenRow]] = {}
        following: list[int] = []
        for queue, *values, _ in found:
            row = TakenRow._make(values)
            if refused and refused.get((queue, row.id), row.seq) < row.seq:
                following.append(row.seq)
            else:
                rows.setdefault(queue, []).append(row)
        if connection.dialect.name == "sqlite":
            connection.rollback()  # the file is locked; programs may write
        self._refuse(connection, dict.fromkeys(following, FOLLOWS))
        return Taken(rows, found[0][-1], more, held)

    def settle(self, connection: Connection, done: Sequence[int], refused: dict[int, str]) -> None:
        """Delete rows that are done, note why others are refused, and commit."""
        if done:
            is_postgresql = connection.dialect.name == "postgresql"
            connection.execute(_delete_array if is_postgresql else _delete, {"seqs": done})
        self._refuse(connection, refused)
        connection.commit()

    def close(self) -> None:
        """Let another relay work."""
        while self._files:
            self._files.popitem()[1].close()

    def _refuse(self, connection: Connection, refused: dict[int, str]) -> None:
        if refused:
            connection.execute(_refuse, [{"row": seq, "reason": reason} for seq, reason in refused.items()])

    def _locked(self, connection: Connection, names: Sequence[str]) -> list[str]:
        """Return those of the queues that no other relay works on until the end of the transaction."""
        if connection.dialect.name == "sqlite":
            database = connection.engine.url.database
            on_disk = database and database != ":memory:" and not database.startswith("file:")
            return [name for name in names if not on_disk or self._lock_file(f"{database}-relay-{name}", name)]
        if connection.dialect.name != "postgresql" and not connection.execute(_peek, {"names": names}).all():
            return list(names)  # polled: one query while there is nothing
        return list(connection.scalars(_lock, {"names": names}))

    def _lock_file(self, path: str, name: str) -> bool:
        """Lock a file for as long as this relay lives: the system lets it go when its process ends."""
        if name in self._files:
            return True
        import fcntl  # SQLite's relays run on one machine

        file = Path(path).open("ab")  # noqa: SIM115 - it stays open
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        self._files[name] = file
        return True
