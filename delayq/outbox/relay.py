"""The relay: sends what transactions have committed, in a thread of its own or where it is called."""

from __future__ import annotations

import threading
from typing import Any, Self

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from delayq.errors import ConfigurationError, DelayqError, short_repr
from delayq.outbox.relay_steps import PATIENCE, InDatabase, RelaySteps, Steps
from delayq.outbox.store import Store
from delayq.outbox.waking import listens, wait
from delayq.queue.delay_queue import DelayQueue
from delayq.safe_log import SafeLog
from delayq.worker.drivers.own_threads import start_needed

log = SafeLog("delayq.outbox")

RECONNECT = 0.5
"""Seconds until a relay connects again to a database that it has lost."""


def relay_engine(engine: Engine) -> Engine:
    """Return an engine on the same pool, in transactions that see what was committed before each statement."""
    level = "SERIALIZABLE" if engine.dialect.name == "sqlite" else "READ COMMITTED"
    return engine.execution_options(isolation_level=level)


class OutboxRelay:
    """Sends what was committed to some queues, in order, and deletes it; see `relay`."""

    def __init__(self, engine: Engine, *queues: DelayQueue[Any]) -> None:
        """OutboxRelay from a database to these queues. Nothing is asked of either yet."""
        if not isinstance(engine, Engine):
            hint = ", see delayq.outbox.aio" if type(engine).__name__ == "AsyncEngine" else ""
            raise ConfigurationError(f"engine must be an Engine of SQLAlchemy, not {short_repr(engine)}{hint}")
        self._engine = relay_engine(engine)
        self._store = Store()
        self._steps = RelaySteps(self._store, queues, DelayQueue)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Open the queues, to learn at once what is wrong; `run` tries again for as long as it takes."""
        for queue in self._steps.queues.values():
            queue.open()  # type: ignore[attr-defined]  # they are blocking ones

    def run(self, *, burst: bool = False) -> int:
        """Send until `stop` is called; with `burst`, until all is sent that no other relay works on.

        Returns how many rows were done. Where database or Redis do not answer, it tries again, but not in a burst.
        Raises `OutboxError` if the tables are missing.
        """
        try:
            while not self._stopped.is_set():
                try:
                    with self._engine.connect() as connection:
                        try:
                            self._run(connection, burst=burst)
                        finally:
                            connection.invalidate()  # its pool is to have none that listens
                    break
                except SQLAlchemyError as error:
                    if burst:
                        raise
                    log.warning("the database does not answer, connecting again: %s", error)
                    self._stopped.wait(RECONNECT)
        finally:
            self._store.close()
        return self._steps.moved

    def run_batch(self) -> None:
        """Do one batch, unless another relay works; Redis is asked once."""
        with self._engine.connect() as connection:
            self._store.open(connection, self._steps.queues, listens=False)
            try:
                self._do(connection, self._steps.batch())
            finally:
                self._store.close()

    def start(self) -> Self:
        """Run in a thread; `stop` ends it."""
        if self._thread is None:
            self._thread = start_needed(self.run, "delayq-outbox")
        return self

    def stop(self) -> None:
        """Stop `run`, and wait for the thread of `start`. Safe to call from a signal handler."""
        self._steps.stopped = True
        self._stopped.set()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()

    def __enter__(self) -> Self:
        """Run in a thread until the block ends."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, connection: Connection, *, burst: bool) -> None:
        steps = self._steps
        self._store.open(connection, self._steps.queues, listens=listens(connection.dialect) and not burst)
        while not self._stopped.is_set():
            seconds = self._do(connection, steps.batch())
            if burst and steps.error is not None:
                raise steps.error
            if seconds == 0:
                continue
            if burst:
                return
            wait(connection, seconds, self._stopped)

    def _do(self, connection: Connection, batch: Steps) -> float | None:
        try:
            step = next(batch)
            while True:
                try:
                    if isinstance(step, InDatabase):
                        reply = step.act(connection)
                    elif step.operation is None:
                        reply = step.queue.open(connect_timeout=PATIENCE)
                    else:
                        retry = self._steps.should_retry()
                        reply = step.queue.executor.perform(step.operation, writes=True, should_retry=retry)
                except DelayqError as error:
                    step = batch.throw(error)
                else:
                    step = batch.send(reply)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what `Steps` returns
        finally:
            batch.close()


def relay(engine: Engine, *queues: DelayQueue[Any]) -> OutboxRelay:
    """Return a relay that sends what the transactions of a database have committed to `queues`.

    `run` it, or let it run in a thread: `with outbox.relay(engine, orders): …`. Of several relays of a queue one works
    at a time, and another one goes on within a second when it ends, however it ends. So operations on one id keep their
    order, and each is done once: what a relay that was killed has sent and not yet deleted is sent again, and answered
    `exists` or `settled`. A row that Redis refuses for good is marked, and holds up later rows of its id only.
    """
    return OutboxRelay(engine, *queues)
