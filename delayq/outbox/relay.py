"""The relay of SQLAlchemy: sends what transactions have committed, in a thread of its own or where it is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from delayq.errors import ConfigurationError, short_repr
from delayq.outbox.relaying.relay_loop import RelayLoop
from delayq.outbox.store import Store
from delayq.outbox.waking import listens, wait
from delayq.queue.delay_queue import DelayQueue


def relay_engine(engine: Engine) -> Engine:
    """Return an engine on the same pool, in transactions that see what was committed before each statement."""
    level = "SERIALIZABLE" if engine.dialect.name == "sqlite" else "READ COMMITTED"
    return engine.execution_options(isolation_level=level)


class OutboxRelay(RelayLoop):
    """Sends what was committed to some queues, in order, and deletes it; see `relay`."""

    _lost = SQLAlchemyError

    def __init__(self, engine: Engine, *queues: DelayQueue[Any]) -> None:
        """Relay from a database to these queues. Nothing is asked of either yet."""
        if not isinstance(engine, Engine):
            hint = ", see delayq.outbox.aio" if type(engine).__name__ == "AsyncEngine" else ""
            raise ConfigurationError(f"engine must be an Engine of SQLAlchemy, not {short_repr(engine)}{hint}")
        self._engine = relay_engine(engine)
        super().__init__(Store(), *queues)

    def run_batch(self) -> None:
        """Do one batch, unless another relay works; Redis is asked once."""
        with self._engine.connect() as connection:
            try:
                self._take(connection, self._steps.once())
            finally:
                self._store.close()

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            try:
                yield connection
            finally:
                connection.invalidate()  # its pool is to have none that listens

    def _listens(self, connection: Connection) -> bool:
        return listens(connection.dialect)

    def _wait(self, connection: Connection, seconds: float | None) -> None:
        wait(connection, seconds, self._stopped)


def relay(engine: Engine, *queues: DelayQueue[Any]) -> OutboxRelay:
    """Return a relay that sends what the transactions of a database have committed to `queues`.

    `run` it, or let it run in a thread: `with outbox.relay(engine, orders): …`. Of several relays of a queue one works
    at a time, and another one goes on within a second when it ends, however it ends. So operations on one id keep their
    order, and each is done once: what a relay that was killed has sent and not yet deleted is sent again, and answered
    `exists` or `settled`. A row that Redis refuses for good is marked, and holds up later rows of its id only.
    """
    return OutboxRelay(engine, *queues)
