"""Wake-ups through Redis: an idle consumer blocks on the queue's `wake` list, and a sender pushes to it.

A wake-up carries no data. One that comes to a consumer that is being closed is handed on to the next.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from delayq.calls import Calls
from delayq.errors import DelayqError

if TYPE_CHECKING:
    from delayq.executor import AsyncExecutor, Executor

LISTENER = "delayq-wakeup"
"""The name of the threads and tasks that wait for wake-ups."""
LONGEST_BLOCK = 1.0
"""Seconds one blocking wait lasts at most: so long a vanished connection goes unnoticed."""


class Listener:
    """Blocks on `wake` in a thread of its own while it is told to listen, and rings for each wake-up."""

    def __init__(self, executor: Executor, calls: Calls, ring: Callable[[], None]) -> None:
        """Start the thread; it listens only when told to."""
        self._executor = executor
        self._calls = calls
        self._ring = ring
        self._listening = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=LISTENER, daemon=True)
        self._thread.start()

    def listen(self, *, on: bool) -> None:
        """Listen from now on, or no more."""
        if on:
            self._listening.set()
        else:
            self._listening.clear()

    def close(self) -> None:
        """End the thread, at the latest when its blocking wait ends.

        A wait that takes messages is waited for when the process ends: it gives back what it may still take.
        """
        if self._calls.waiting_takes:
            atexit.register(self._thread.join, 2 * LONGEST_BLOCK)
        self._closed.set()
        self._listening.set()

    def _run(self) -> None:
        block = min(LONGEST_BLOCK, self._executor.longest_block)
        while self._listening.wait() and not self._closed.is_set():
            (woken,) = self._executor.run([self._calls.await_wake(block)], patience=lambda: False)
            if isinstance(woken, DelayqError):
                self._closed.wait(LONGEST_BLOCK)
            elif woken:
                self._listening.clear()
                self._ring()
                if self._closed.is_set():  # the bell may have rung too late
                    self._executor.run([self._calls.wake()], patience=lambda: False)
                    break
        atexit.unregister(self._thread.join)


class AsyncListener:
    """Blocks on `wake` in a task of its own while it is told to listen, and rings for each wake-up."""

    def __init__(self, executor: AsyncExecutor, calls: Calls, ring: Callable[[], None]) -> None:
        """Start the task; it listens only when told to."""
        self._executor = executor
        self._calls = calls
        self._ring = ring
        self._listening = asyncio.Event()
        self._blocked = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name=LISTENER)

    def listen(self, *, on: bool) -> None:
        """Listen from now on, or no more."""
        if on:
            self._listening.set()
        else:
            self._listening.clear()

    async def close(self) -> None:
        """End the task. The wake-up that its blocking wait may just have taken is handed on."""
        while not self._task.done():  # until it is heard: `asyncio.wait_for` can swallow it before Python 3.12
            self._task.cancel()
            await asyncio.wait([self._task], timeout=0.1)
        if self._blocked:
            await self._executor.run([self._calls.wake()], patience=lambda: False)

    async def _run(self) -> None:
        block = min(LONGEST_BLOCK, self._executor.longest_block)
        while await self._listening.wait():
            self._blocked = True
            (woken,) = await self._executor.run([self._calls.await_wake(block)], patience=lambda: False)
            self._blocked = False
            if isinstance(woken, DelayqError):
                await asyncio.sleep(LONGEST_BLOCK)
            elif woken:
                self._listening.clear()
                self._ring()
