"""A consumer that runs in the background: the handle users hold, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from delayq.drive import AsyncDriver, ThreadDriver
from delayq.executor import AsyncExecutor, Executor
from delayq.flows.consume import Consumption
from delayq.message import AsyncMessage, Message, Tools
from delayq.twins import twin

log = logging.getLogger("delayq.consumer")


class Consuming:
    """A consumer running in the background, as `start_consume` returns it."""

    def __init__(
        self, executor: Executor, tools: Tools, callback: Callable[[Message[Any]], object], name: str, *, burst: bool
    ) -> None:
        """Start consuming in a thread."""
        flow = Consumption(tools, holder=executor.client_name, burst=burst)
        self._driver = ThreadDriver(flow, executor, tools, callback, name)
        self._grace = tools.settings.grace / 1000
        self._pid = os.getpid()
        self._ended = threading.Event()
        self._error: Exception | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether the consumer is at work in this process."""
        return not self._ended.is_set() and self._pid == os.getpid()

    def stop(self, grace: float | None = None) -> None:
        """Ask for a stop and return at once; see `DelayQueue.stop_consume`. `grace` in seconds."""
        self._driver.stop(self._grace if grace is None else grace)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the consumer has ended, at most `timeout` seconds; returns whether it has.

        Returns False at once inside one of its own callbacks. Raises what ended it, if that was an error.
        """
        if self._driver.is_worker(threading.current_thread()):
            return False
        ended = self._ended.wait(timeout)
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


class AsyncConsuming:
    """A consumer running in tasks of the event loop; see `Consuming`."""

    def __init__(
        self,
        executor: AsyncExecutor,
        tools: Tools,
        callback: Callable[[AsyncMessage[Any]], object],
        name: str,
        *,
        burst: bool,
    ) -> None:
        """Start consuming in a task."""
        flow = Consumption(tools, holder=executor.client_name, burst=burst)
        self._driver = AsyncDriver(flow, executor, tools, callback, name)
        self._grace = tools.settings.grace / 1000
        self._task = asyncio.get_running_loop().create_task(self._driver.run(), name=name)

    @property
    def running(self) -> bool:
        """Whether the consumer is at work."""
        return not self._task.done()

    @twin(Consuming.stop)
    def stop(self, grace: float | None = None) -> None:
        self._driver.stop(self._grace if grace is None else grace)

    @twin(Consuming.wait)
    async def wait(self, timeout: float | None = None) -> bool:
        if self._driver.is_worker(asyncio.current_task()):
            return False
        ended, _ = await asyncio.wait([self._task], timeout=timeout)
        if ended:
            self._task.result()
        return bool(ended)
