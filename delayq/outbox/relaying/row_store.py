"""What a relay does in the database: takes rows that it alone works on, deletes what is done, keeps what is refused.

The statements are left to those who have a library for it: SQLAlchemy in `outbox/store.py`, Django in its own app.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from delayq.outbox.rows import NOTHING, Taken, TakenRow

MAX_ROWS = 1000
"""Rows that are taken, sent and deleted in one transaction."""
MAX_BYTES = 4 << 20
"""Bytes of payloads in a batch, after which the next one takes fewer rows."""
FOLLOWS = "follows a row of its id that was refused"
FROZEN = "30s"
"""How long a relay may stop in the middle of a batch until PostgreSQL lets another one work."""

NO_TABLE = ("42P01", "no such table", "1146")
"""How PostgreSQL, SQLite and MySQL say that there is no such table."""


def is_told(cause: BaseException | None, marks: tuple[str, ...]) -> bool:
    """Return whether the error of a driver has one of these codes, or texts where it has no code."""
    code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return code in marks if code else any(mark in str(cause) for mark in marks)


class RowStore(ABC):
    """The rows of an outbox, for a relay whose every method gets its one connection, which does not autocommit."""

    def __init__(self) -> None:
        """Know nothing of the database yet."""
        self._most = 250
        """Rows to take next: fewer where they are large."""
        self._files: dict[str, IO[bytes]] = {}
        """The locks of SQLite: its own would keep programs from writing while Redis is slow."""

    def open(self, connection: Any, names: Iterable[str], *, listens: bool) -> None:
        """Add the rows to lock where they are missing, and with `listens` have PostgreSQL tell of commits."""
        known = self._known(connection)
        for name in names:
            if name not in known:
                self._add(connection, name)
        if listens:
            self._listen(connection)

    def take(self, connection: Any, names: Sequence[str]) -> Taken:
        """Take the next rows of queues, in order, unless another relay works on them; `settle` ends the transaction."""
        mine = self._locked(connection, names)
        held = len(mine) < len(names)
        found = self._next(connection, mine, self._most) if mine else []
        if not found:
            connection.rollback()
            return NOTHING._replace(held=held)
        more = len(found) == self._most
        size = sum(len(row[6]) for row in found)
        self._most = max(1, self._most // 2) if size > MAX_BYTES else min(MAX_ROWS, 2 * self._most)
        refused = self._refused(connection)
        rows: dict[str, list[TakenRow]] = {}
        following: list[int] = []
        for queue, *values, _ in found:
            row = TakenRow._make(values)
            if refused and refused.get((queue, row.id), row.seq) < row.seq:
                following.append(row.seq)
            else:
                rows.setdefault(queue, []).append(row)
        if self._kind(connection) == "sqlite":
            connection.rollback()  # the file is locked; programs may write
        self._mark(connection, dict.fromkeys(following, FOLLOWS))
        return Taken(rows, found[0][-1], more, held)

    def settle(self, connection: Any, done: Sequence[int], refused: Mapping[int, str]) -> None:
        """Delete rows that are done, note why others are refused, and commit."""
        if done:
            self._delete(connection, done)
        self._mark(connection, refused)
        connection.commit()

    def close(self) -> None:
        """Let another relay work."""
        while self._files:
            self._files.popitem()[1].close()

    def _locked(self, connection: Any, names: Sequence[str]) -> list[str]:
        """Return those of the queues that no other relay works on until the end of the transaction."""
        kind = self._kind(connection)
        if kind == "sqlite":
            file = self._file(connection)
            return [name for name in names if file is None or self._lock_file(f"{file}-relay-{name}", name)]
        if kind != "postgresql" and not self._next(connection, names, 1):
            return list(names)  # polled: one query while there is nothing
        return self._lock(connection, names)

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

    @abstractmethod
    def _kind(self, connection: Any) -> str:
        """Return what the database is: `postgresql`, `sqlite`, `mysql` and so on."""

    @abstractmethod
    def _file(self, connection: Any) -> str | None:
        """Return the file of an SQLite; None for one in memory, which has no other relay."""

    @abstractmethod
    def _known(self, connection: Any) -> set[str]:
        """Return the queues that have a row to lock; raise `OutboxError` if there is no table."""

    @abstractmethod
    def _add(self, connection: Any, name: str) -> None:
        """Commit a row to lock, unless another relay has added it meanwhile."""

    @abstractmethod
    def _lock(self, connection: Any, names: Sequence[str]) -> list[str]:
        """Return those of the queues whose rows could be locked at once."""

    @abstractmethod
    def _next(self, connection: Any, names: Sequence[str], most: int) -> Sequence[Any]:
        """Return rows that are not refused: the queue, the values of a `TakenRow`, and the time of the database."""

    @abstractmethod
    def _refused(self, connection: Any) -> dict[tuple[str, str], int]:
        """Return the first refused row by queue and id."""

    @abstractmethod
    def _mark(self, connection: Any, refused: Mapping[int, str]) -> None:
        """Note why rows are refused, if there are any."""

    @abstractmethod
    def _delete(self, connection: Any, seqs: Sequence[int]) -> None:
        """Delete rows."""

    @abstractmethod
    def _listen(self, connection: Any) -> None:
        """Have PostgreSQL tell of commits, and let no relay be frozen in a transaction for longer than `FROZEN`."""
