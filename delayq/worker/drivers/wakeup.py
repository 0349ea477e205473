"""Wake-ups through Redis: an idle consumer blocks on the queue's `wake` list, and a sender pushes to it.

A wake-up carries no data. A consumer that receives one while it closes passes it on to the next.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from delayq.broker.context import EngineCalls
from delayq.broker.requests import RedisCommand
from delayq.errors import ConfigurationError, DelayqError
from delayq.worker.drivers.own_threads import OnDeath, OwnThreads, start_task

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

LISTENER = "delayq-wakeup"
"""Name of the threads and tasks that wait for wake-ups."""
BLOCK = 1.0
"""Seconds of the first blocking wait, and of a pause after an error."""
MAX_BLOCK = 5.0
"""Seconds a blocking wait lasts at most: so long a vanished connection goes unnoticed."""


MIN_CONNECTIONS = 2
"""Connections that a consumer needs at a time: it waits for wake-ups on one of them."""


def check_connections(executor: Any, needed: int = MIN_CONNECTIONS) -> None:
    """Raise `ConfigurationError` if the user's pool has too few connections for a consumer."""
    if executor.max_connections < needed:
        raise ConfigurationError(f"a consumer needs {needed} connections: raise max_connections of the pool")


async def pass_on(executor: AsyncExecutor, wakes: Callable[[], list[Any]]) -> None:
    """Pass on the wake-up, or give back the message, that a blocking call may have taken whose task was cancelled.

    Twice: a busy Redis may read that call, the first passing on and a new message at once, and find only then that the
    connection of the call is closed.
    """
    for _ in range(2):
        await executor.run(wakes(), deadline=0)


class _Waits:
    """The blocking waits of an idle consumer, each twice as long as the one before it."""

    def __init__(self, calls: EngineCalls, most: float) -> None:
        """Wait for `most` seconds at most. Where a wait may take a message, none is longer than the first."""
        self._calls = calls
        self._most = min(BLOCK if calls.waiting_takes else MAX_BLOCK, most)
        self.restart()

    def restart(self) -> None:
        """Begin with a short wait."""
        self._seconds = min(BLOCK, self._most)

    def next(self) -> RedisCommand[bool]:
        """Return the call of the next wait."""
        seconds, self._seconds = self._seconds, min(2 * self._seconds, self._most)
        return self._calls.await_wake(seconds)


class Listener:
    """Blocks on `wake` in its own thread while it is set to listen; calls `on_wakeup` for each wake-up."""

    def __init__(
        self, executor: Executor, calls: EngineCalls, on_wakeup: Callable[[], None], threads: OwnThreads
    ) -> None:
        """Start the thread by `threads`; it does not listen yet. Without room, it starts when it is to listen."""
        self._executor = executor
        self._calls = calls
        self._on_wakeup = on_wakeup
        self._listening = threading.Event()
        self._closed = threading.Event()
        self._threads = threads
        self._thread = threads.start(self._run, LISTENER)

    def listen(self, *, on: bool) -> None:
        """Start or stop listening."""
        if on:
            self._thread = self._thread or self._threads.start(self._run, LISTENER)
            self._listening.set()
        else:
            self._listening.clear()

    def close(self, *, wait: bool = False) -> None:
        """End the thread, at the latest when its blocking call ends.

        If the blocking call can take messages, the process waits for it at exit: it returns what it has taken. With
        `wait`, which is for a process that is exiting, this method does.
        """
        thread = self._thread if self._calls.waiting_takes else None
        if thread is not None and not wait:
            atexit.register(thread.join, 2 * BLOCK)
        self._closed.set()
        self._listening.set()
        if thread is not None and wait:
            thread.join(2 * BLOCK)

    def _wakes(self) -> list[Any]:
        """Return the calls that pass on a wake-up which the consumer may not have seen."""
        return [self._calls.wake()]

    def _run(self) -> None:
        waits = _Waits(self._calls, self._executor.max_block)
        while self._listening.wait() and not self._closed.is_set():
            (woken,) = self._executor.run([waits.next()], deadline=0)
            if isinstance(woken, DelayqError):
                self._closed.wait(BLOCK)
            elif woken:
                waits.restart()
                self._listening.clear()
                self._on_wakeup()
                if self._closed.is_set():  # the consumer may not have seen the wake-up
                    self._executor.run(self._wakes(), deadline=0)
                    break
        atexit.unregister(threading.current_thread().join)


class AsyncListener:
    """Blocks on `wake` in its own task while it is set to listen; calls `on_wakeup` for each wake-up."""

    def __init__(
        self, executor: AsyncExecutor, calls: EngineCalls, on_wakeup: Callable[[], None], on_death: OnDeath
    ) -> None:
        """Start the task; it does not listen yet. If an error ends it, call `on_death`."""
        self._executor = executor
        self._calls = calls
        self._on_wakeup = on_wakeup
        self._listening = asyncio.Event()
        self._blocked = False
        self._task = start_task(self._run, LISTENER, on_death)

    def listen(self, *, on: bool) -> None:
        """Start or stop listening."""
        if on:
            self._listening.set()
        else:
            self._listening.clear()

    async def close(self) -> None:
        """End the task. A wake-up that its blocking call may just have taken is passed on."""
        while not self._task.done():  # repeated: `asyncio.wait_for` can swallow a cancellation before Python 3.12
            self._task.cancel()
            await asyncio.wait([self._task], timeout=0.1)
        if self._blocked:
            await pass_on(self._executor, self._wakes)

    def _wakes(self) -> list[Any]:
        """Return the calls that pass on a wake-up which the blocking call may have taken."""
        return [self._calls.wake()]

    async def _run(self) -> None:
        waits = _Waits(self._calls, self._executor.max_block)
        while await self._listening.wait():
            self._blocked = True
            (woken,) = await self._executor.run([waits.next()], deadline=0)
            self._blocked = False
            if isinstance(woken, DelayqError):
                await asyncio.sleep(BLOCK)
            elif woken:
                waits.restart()
                self._listening.clear()
                self._on_wakeup()
