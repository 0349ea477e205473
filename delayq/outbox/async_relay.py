"""The relay with asyncio."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from delayq._parity import mirrors
from delayq.errors import ConfigurationError, DelayqError, short_repr
from delayq.outbox.relay import OutboxRelay, relay_engine
from delayq.outbox.relaying.relay_loop import LOST, RECONNECT
from delayq.outbox.relaying.relay_steps import PATIENCE, InDatabase, RelaySteps, Steps, UntilCommit
from delayq.outbox.store import Store
from delayq.outbox.waking import Waker, listens
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.safe_log import SafeLog
from delayq.worker.drivers.own_threads import start_task

log = SafeLog("delayq.outbox")


class AsyncOutboxRelay:
    """Sends what was committed to some queues, in order, and deletes it; see `relay`."""

    def __init__(self, engine: AsyncEngine, *queues: AsyncDelayQueue[Any]) -> None:
        """Relay from a database to these queues. Nothing is asked of either yet."""
        if not isinstance(engine, AsyncEngine):
            raise ConfigurationError(f"engine must be an AsyncEngine of SQLAlchemy, not {short_repr(engine)}")
        self._engine = AsyncEngine(relay_engine(engine.sync_engine))
        self._store = Store()
        self._steps = RelaySteps(self._store, queues, AsyncDelayQueue)
        self._waker = Waker()
        self._task: asyncio.Task[int] | None = None

    @mirrors(OutboxRelay.run)
    async def run(self, *, burst: bool = False) -> int:
        try:
            while not self._steps.stopped:
                try:
                    async with self._engine.connect() as connection:
                        try:
                            listening = not burst and listens(connection.dialect)
                            if listening:
                                await self._waker.listen(connection)
                            await self._take(connection, self._steps.run(burst=burst, listens=listening))
                        finally:
                            await connection.invalidate()  # its pool is to have none that listens
                    break
                except SQLAlchemyError as error:
                    if burst:
                        raise
                    log.warning(LOST, error)
                    await asyncio.sleep(RECONNECT)
        finally:
            self._store.close()
        return self._steps.moved

    @mirrors(OutboxRelay.run_batch)
    async def run_batch(self) -> None:
        async with self._engine.connect() as connection:
            try:
                await self._take(connection, self._steps.once())
            finally:
                self._store.close()

    async def stop(self) -> None:
        """Stop `run`, and wait for the task of `async with`."""
        self._steps.stopped = True
        self._waker.wake()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Self:
        """Run in a task until the block ends."""
        self._task = start_task(self.run, "delayq-outbox", on_death=lambda *_: None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _take(self, connection: AsyncConnection, steps: Steps) -> None:
        """Take steps with a connection."""
        try:
            step = next(steps)
            while True:
                reply = None
                try:
                    if isinstance(step, InDatabase):
                        reply = await connection.run_sync(step.act)
                    elif isinstance(step, UntilCommit):
                        await self._waker.wait(connection, step.seconds, lambda: self._steps.stopped)
                    elif step.operation is None:
                        reply = await step.queue.open(connect_timeout=PATIENCE)
                    else:
                        retry = self._steps.should_retry()
                        reply = await step.queue.executor.perform(step.operation, writes=True, should_retry=retry)
                except DelayqError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(reply)
        except StopIteration:
            return
        finally:
            steps.close()
