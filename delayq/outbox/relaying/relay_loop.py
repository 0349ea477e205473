"""The driver of a relay with threads: in a thread of its own, or where it is called."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Self

from delayq.errors import DelayqError
from delayq.outbox.relaying.relay_steps import PATIENCE, InDatabase, RelaySteps, Steps, UntilCommit
from delayq.outbox.relaying.row_store import RowStore
from delayq.queue.delay_queue import DelayQueue
from delayq.safe_log import SafeLog
from delayq.worker.drivers.own_threads import start_needed

log = SafeLog("delayq.outbox")

RECONNECT = 0.5
"""Seconds until a relay connects again to a database that it has lost."""
LOST = "the database does not answer, connecting again: %s"


class RelayLoop(ABC):
    """Sends what was committed to some queues, in order, and deletes it; what a database needs is left to others."""

    _lost: type[Exception]
    """What is raised for a database that does not answer."""

    def __init__(self, store: RowStore, *queues: DelayQueue[Any]) -> None:
        """Relay to these queues. Nothing is asked of them yet."""
        self._store = store
        self._steps = RelaySteps(store, queues, DelayQueue)
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
                    with self._connected() as connection:
                        listens = not burst and self._listens(connection)
                        self._take(connection, self._steps.run(burst=burst, listens=listens))
                    break
                except self._lost as error:
                    if burst:
                        raise
                    log.warning(LOST, error)
                    self._stopped.wait(RECONNECT)
        finally:
            self._store.close()
        return self._steps.moved

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

    def _take(self, connection: Any, steps: Steps) -> None:
        """Take steps with a connection."""
        try:
            step = next(steps)
            while True:
                reply = None
                try:
                    if isinstance(step, InDatabase):
                        reply = step.act(connection)
                    elif isinstance(step, UntilCommit):
                        self._wait(connection, step.seconds)
                    elif step.operation is None:
                        reply = step.queue.open(connect_timeout=PATIENCE)
                    else:
                        retry = self._steps.should_retry()
                        reply = step.queue.executor.perform(step.operation, writes=True, should_retry=retry)
                except DelayqError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(reply)
        except StopIteration:
            return
        finally:
            steps.close()

    @abstractmethod
    def _connected(self) -> AbstractContextManager[Any]:
        """Connect to the database, and close the connection in the end."""

    @abstractmethod
    def _listens(self, connection: Any) -> bool:
        """Return whether the driver of a connection tells of commits."""

    @abstractmethod
    def _wait(self, connection: Any, seconds: float | None) -> None:
        """Wait until a commit, for so many seconds, or until stopped; None for as long as nothing happens."""
