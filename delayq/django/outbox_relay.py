"""The relay of Django: sends what transactions of a database have committed, over a connection of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from django.db import Error, IntegrityError, connections

from delayq.django.outbox_rows import explained, now_of
from delayq.outbox.relaying.notifications import CHANNEL, wait_for_commit
from delayq.outbox.relaying.relay_loop import RelayLoop
from delayq.outbox.relaying.relay_steps import HEARTBEAT, POLL
from delayq.outbox.relaying.row_store import FROZEN, RowStore
from delayq.outbox.rows import TakenRow
from delayq.queue.delay_queue import DelayQueue

_COLUMNS = ", ".join(("queue", *TakenRow._fields))


class DjangoStore(RowStore):
    """The rows of an outbox, for a relay that has a connection of Django."""

    def _kind(self, connection: Any) -> str:
        return str(connection.vendor)

    def _file(self, connection: Any) -> str | None:
        name = str(connection.settings_dict["NAME"])
        return None if name in ("", ":memory:") or name.startswith("file:") else name

    def _known(self, connection: Any) -> set[str]:
        with explained():
            known = {name for (name,) in _read(connection, "SELECT queue FROM delayq_outbox_relay")}
            connection.rollback()
        return known

    def _add(self, connection: Any, name: str) -> None:
        with suppress(IntegrityError):
            _do(connection, "INSERT INTO delayq_outbox_relay (queue) VALUES (%s)", [[name]])
        connection.commit()

    def _lock(self, connection: Any, names: Sequence[str]) -> list[str]:
        lock = _sql("SELECT queue FROM delayq_outbox_relay WHERE queue IN", _marks(names), "FOR UPDATE SKIP LOCKED")
        return [name for (name,) in _read(connection, lock, names)]

    def _next(self, connection: Any, names: Sequence[str], most: int) -> Sequence[Any]:
        waiting = ("FROM delayq_outbox WHERE refused IS NULL AND queue IN", _marks(names), "ORDER BY seq LIMIT %s")
        return _read(connection, _sql("SELECT", _COLUMNS, ",", now_of(connection), *waiting), [*names, most])

    def _refused(self, connection: Any) -> dict[tuple[str, str], int]:
        first = "SELECT queue, id, min(seq) FROM delayq_outbox WHERE refused IS NOT NULL GROUP BY queue, id"
        return {(queue, id): seq for queue, id, seq in _read(connection, first)}

    def _mark(self, connection: Any, refused: Mapping[int, str]) -> None:
        rows = [(reason, seq) for seq, reason in refused.items()]
        _do(connection, "UPDATE delayq_outbox SET refused = %s WHERE seq = %s", rows)

    def _delete(self, connection: Any, seqs: Sequence[int]) -> None:
        if connection.vendor == "postgresql":
            _do(connection, "DELETE FROM delayq_outbox WHERE seq = ANY(%s)", [[list(seqs)]])
        else:
            _do(connection, "DELETE FROM delayq_outbox WHERE seq = %s", [(seq,) for seq in seqs])

    def _listen(self, connection: Any) -> None:
        _do(connection, f"SET idle_in_transaction_session_timeout = '{FROZEN}'", [()])
        _do(connection, f"LISTEN {CHANNEL}", [()])
        connection.commit()


class DjangoRelay(RelayLoop):
    """Sends what was committed in a database of Django to some queues, in order, and deletes it."""

    _lost = Error

    def __init__(self, alias: str, *queues: DelayQueue[Any]) -> None:
        """Relay from the database with an alias to these queues. Nothing is asked of either yet."""
        self._alias = alias
        super().__init__(DjangoStore(), *queues)

    def open(self) -> None:
        """Open the queues and look for the tables, to learn at once what is wrong."""
        super().open()
        with self._connected() as connection:
            self._store.open(connection, (), listens=False)

    def retry(self) -> None:
        """Let relays try again what Redis has refused of these queues."""
        names = list(self._steps.queues)
        again = _sql("UPDATE delayq_outbox SET refused = NULL WHERE refused IS NOT NULL AND queue IN", _marks(names))
        with self._connected() as connection:
            _do(connection, again, [names])
            connection.commit()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        connection = connections[self._alias].copy()
        kept = {name: value for name, value in connection.settings_dict["OPTIONS"].items() if name != "pool"}
        if connection.vendor == "postgresql":
            from django.db.backends.postgresql.psycopg_any import IsolationLevel

            kept["isolation_level"] = IsolationLevel.READ_COMMITTED
        elif connection.vendor == "mysql":
            kept["isolation_level"] = "read committed"
        connection.settings_dict |= {"AUTOCOMMIT": False, "OPTIONS": kept}
        try:
            yield connection
        finally:
            connection.close()

    def _listens(self, connection: Any) -> bool:
        return bool(connection.vendor == "postgresql")

    def _wait(self, connection: Any, seconds: float | None) -> None:
        if not self._listens(connection):
            self._stopped.wait(POLL if seconds is None else seconds)
            return
        with connection.wrap_database_errors:
            wait_for_commit(connection.connection, HEARTBEAT if seconds is None else seconds, self._stopped)


def _read(connection: Any, query: str, values: Sequence[Any] = ()) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return cursor.fetchall()  # type: ignore[no-any-return]  # Django has no types


def _do(connection: Any, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run a statement once for each row of values."""
    if not rows:
        return
    with connection.cursor() as cursor:
        if len(rows) == 1:
            cursor.execute(statement, rows[0])
        else:
            cursor.executemany(statement, rows)


def _sql(*parts: str) -> str:
    """Return a statement of parts that are constants: values are passed beside it."""
    return " ".join(parts)


def _marks(values: Sequence[Any]) -> str:
    return f"({', '.join(['%s'] * len(values))})"
