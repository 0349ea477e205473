"""A consumer that runs in the background: the handle users hold, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from delayq.clock import Duration, milliseconds, monotonic
from delayq.config import QueueOptions
from delayq.drive import AsyncDriver, ThreadDriver
from delayq.flows.consume import Consumption
from delayq.message import Tools
from delayq.registering import AsyncScheduler, Scheduler
from delayq.twins import twin
from delayq.workbench import Callback

if TYPE_CHECKING:
    from delayq.executor import AsyncExecutor, Executor

T = TypeVar("T")

log = logging.getLogger("delayq.consumer")

SIGNALS_WITHIN = 0.5
"""Seconds within which a signal is heeded: of one that comes just when the main thread begins to wait, or that another
thread takes, Python tells the main thread only when its wait ends."""


class Consuming:
    """A consumer running in the background, as `start_consume` returns it."""

    def __init__(
        self,
        executor: Executor,
        tools: Tools,
        callback: Callback,
        name: str,
        *,
        burst: bool,
        known: Callable[[Consuming], None],
    ) -> None:
        """Start consuming in a thread; made `known` before, since a callback may ask for it at once."""
        flow = Consumption(tools, holder=executor.client_name, batch=callback.batch, burst=burst)
        self._driver = ThreadDriver(flow, executor, tools, callback, name)
        self._grace = tools.settings.grace / 1000
        self._pid = os.getpid()
        self._ended = threading.Event()
        self._error: Exception | None = None
        known(self)
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether the consumer is at work in this process."""
        return not self._ended.is_set() and self._pid == os.getpid()

    def stop(self, grace: Duration | None = None) -> None:
        """Ask for a stop and return at once; see `DelayQueue.stop_consume`."""
        self._driver.stop(self._grace if grace is None else milliseconds(grace, "grace") / 1000)

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until the consumer has ended, at most for `timeout`; returns whether it has.

        Returns False at once inside one of its own callbacks. Raises what ended it, if that was an error.
        """
        seconds = None if timeout is None else milliseconds(timeout, "timeout") / 1000
        if self._driver.is_worker(threading.current_thread()):
            return False
        end = None if seconds is None else monotonic() + seconds
        while not (ended := self._ended.wait(_slice(end))) and (end is None or monotonic() < end):
            pass
        if self._error is not None:
            raise self._error
        return ended

    def _run(self) -> None:
        try:
            self._driver.run()
        except Exception as error:
            log.exception("the consumer ended")
            self._error = error
        finally:
            self._ended.set()


def _slice(end: float | None) -> float:
    return SIGNALS_WITHIN if end is None else max(0.0, min(SIGNALS_WITHIN, end - monotonic()))


class AsyncConsuming:
    """A consumer running in tasks of the event loop; see `Consuming`."""

    def __init__(
        self,
        executor: AsyncExecutor,
        tools: Tools,
        callback: Callback,
        name: str,
        *,
        burst: bool,
    ) -> None:
        """Start consuming in a task."""
        flow = Consumption(tools, holder=executor.client_name, batch=callback.batch, burst=burst)
        self._driver = AsyncDriver(flow, executor, tools, callback, name)
        self._grace = tools.settings.grace / 1000
        self._task = asyncio.get_running_loop().create_task(self._driver.run(), name=name)

    @property
    def running(self) -> bool:
        """Whether the consumer is at work."""
        return not self._task.done()

    @twin(Consuming.stop)
    def stop(self, grace: Duration | None = None) -> None:
        self._driver.stop(self._grace if grace is None else milliseconds(grace, "grace") / 1000)

    @twin(Consuming.wait)
    async def wait(self, timeout: Duration | None = None) -> bool:  # noqa: ASYNC109 - the face of its blocking twin
        seconds = None if timeout is None else milliseconds(timeout, "timeout") / 1000
        if self._driver.is_worker(asyncio.current_task()):
            return False
        ended, _ = await asyncio.wait([self._task], timeout=seconds)
        if ended:
            self._task.result()
        return bool(ended)


class Consumer(Scheduler[T]):
    """Consuming with a callback."""

    _consuming: Consuming | None = None

    def __init__(self, name: str, payload_type: type[T] | None, options: QueueOptions) -> None:
        """Consume nothing yet."""
        super().__init__(name, payload_type, options)
        self._starting = threading.Lock()

    def start_consume(self) -> Consuming:
        """Start to consume in the background; returns the running consumer if there is one already."""
        return self._start(burst=False)

    def stop_consume(self, grace: Duration | None = None) -> bool:
        """Stop the consumer and wait for it; returns whether it has ended.

        It claims no more, gives back what has not started, waits up to `grace` (by default the queue's) for running
        callbacks and nacks what it cuts off. Harmless when nothing runs, and inside a callback, where it does not
        wait.
        """
        wanted = None if grace is None else milliseconds(grace, "grace") / 1000
        consuming = self._consuming
        if consuming is None or not consuming.running:
            return True
        consuming.stop(wanted)
        return consuming.wait()

    def run(self, *, burst: bool = False) -> None:
        """Consume until stopped; with `burst`, until nothing is due any more.

        A burst waits for messages that come back within a tick, such as nacked ones, and leaves later ones. Ctrl-C
        stops as `stop_consume` does, and a second one at once.
        """
        consuming = self._start(burst=burst)
        try:
            consuming.wait()
        except KeyboardInterrupt:
            try:
                consuming.stop()
                consuming.wait()
            except KeyboardInterrupt:
                consuming.stop(0)
                consuming.wait()
                raise

    def close(self) -> None:
        """Stop consuming and close the connections that this queue made."""
        self.stop_consume()
        self._executor.close()

    def __enter__(self) -> Self:
        """Return the queue; leaving closes it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the queue."""
        self.close()

    def _start(self, *, burst: bool) -> Consuming:
        callback = self._found_callback()
        self.open()
        if self._declared:
            self.schedules.apply()
        with self._starting:
            consuming = self._consuming
            if consuming is None or not consuming.running:
                name = f"delayq-{self.name}"
                consuming = Consuming(self._executor, self._tools, callback, name, burst=burst, known=self._known)
            return consuming

    def _known(self, consuming: Consuming) -> None:
        self._consuming = consuming


class AsyncConsumer(AsyncScheduler[T]):
    """Consuming with a callback; see `Consumer`."""

    _consuming: AsyncConsuming | None = None
    _awaits = True

    @twin(Consumer.start_consume)
    async def start_consume(self) -> AsyncConsuming:
        return await self._start(burst=False)

    @twin(Consumer.stop_consume)
    async def stop_consume(self, grace: Duration | None = None) -> bool:
        wanted = None if grace is None else milliseconds(grace, "grace") / 1000
        consuming = self._consuming
        if consuming is None or not consuming.running:
            return True
        consuming.stop(wanted)
        return await consuming.wait()

    @twin(Consumer.run)
    async def run(self, *, burst: bool = False) -> None:
        consuming = await self._start(burst=burst)
        try:
            await consuming.wait()
        finally:
            consuming.stop()
            await consuming.wait()

    @twin(Consumer.close)
    async def close(self) -> None:
        await self.stop_consume()
        await self._executor.close()

    async def __aenter__(self) -> Self:
        """Return the queue; leaving closes it."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the queue."""
        await self.close()

    async def _start(self, *, burst: bool) -> AsyncConsuming:
        callback = self._found_callback()
        await self.open()
        if self._declared:
            await self.schedules.apply()
        if self._consuming is None or not self._consuming.running:
            name = f"delayq-{self.name}"
            self._consuming = AsyncConsuming(self._executor, self._tools, callback, name, burst=burst)
        return self._consuming
