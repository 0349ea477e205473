"""Wake-ups through Redis: an idle consumer blocks on the queue's `wake` list, and a sender pushes to it.

A wake-up carries no data. One that comes to a consumer that is being closed is handed on to the next.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from delayq.calls import Calls
from delayq.errors import DelayqError
from delayq.executor import AsyncExecutor, Executor

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
        threading.Thread(target=self._run, name="delayq-wakeup", daemon=True).start()

    def listen(self, *, on: bool) -> None:
        """Listen from now on, or no more."""
        if on:
            self._listening.set()
        else:
            self._listening.clear()

    def close(self) -> None:
        """End the thread, at the latest when its blocking wait ends."""
        self._closed.set()
        self._listening.set()

    def _run(self) -> None:
        block = min(LONGEST_BLOCK, self._executor.longest_block)
        while self._listening.wait() and not self._closed.is_set():
            (woken,) = self._executor.run([self._calls.wake(block)], patience=lambda: False)
            if isinstance(woken, DelayqError):
                self._closed.wait(LONGEST_BLOCK)
            elif woken and self._closed.is_set():
                self._executor.run([self._calls.pass_on()], patience=lambda: False)
            elif woken:
                self._listening.clear()
                self._ring()


class AsyncListener:
    """Blocks on `wake` in a task of its own while it is told to listen, and rings for each wake-up."""

    def __init__(self, executor: AsyncExecutor, calls: Calls, ring: Callable[[], None]) -> None:
        """Start the task; it listens only when told to."""
        self._executor = executor
        self._calls = calls
        self._ring = ring
        self._listening = asyncio.Event()
        self._closed = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name="delayq-wakeup")

    def listen(self, *, on: bool) -> None:
        """Listen from now on, or no more."""
        if on:
            self._listening.set()
        else:
            self._listening.clear()

    async def close(self) -> None:
        """End the task once its blocking wait has ended: to cut that short could lose a wake-up of others."""
        self._closed = True
        self._listening.set()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        block = min(LONGEST_BLOCK, self._executor.longest_block)
        while True:
            await self._listening.wait()
            if self._closed:
                return
            (woken,) = await self._executor.run([self._calls.wake(block)], patience=lambda: False)
            if isinstance(woken, DelayqError):
                await asyncio.sleep(LONGEST_BLOCK)
            elif woken and self._closed:
                await self._executor.run([self._calls.pass_on()], patience=lambda: False)
            elif woken:
                self._listening.clear()
                self._ring()
