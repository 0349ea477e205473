"""Wake-ups through Redis: an idle consumer blocks on the queue's `wake` list, and a sender pushes to it.

A wake-up carries no data. A consumer that receives one while it closes passes it on to the next.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from delayq.broker.context import EngineCalls
from delayq.broker.requests import RedisCommand
from delayq.errors import ConfigurationError, DelayqError
from delayq.values.times import monotonic
from delayq.worker.drivers.own_threads import OnDeath, OwnThreads, start_task

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

LISTENER = "delayq-wakeup"
"""Name of the threads and tasks that wait for wake-ups."""
BLOCK = 1.0
"""Seconds of the first blocking wait, and of a pause after an error."""
MAX_BLOCK = 5.0
"""Seconds a blocking wait lasts at most: so long a vanished connection goes unnoticed."""
WRONG_TYPE = "WRONGTYPE"
"""Begins the error of a wait for keys of which one is no list."""
LEFT_OUT = 60.0
"""Seconds for which a queue whose wake-ups are no list is left out; its loop polls it."""

Wakes = Callable[[], list[Any]]
"""Returns the calls that pass on the wake-ups which a wait has taken and the consumer may not have seen."""


def check_connections(executor: Any, needed: int) -> None:
    """Raise `ConfigurationError` if the user's pool has too few connections: each wait keeps one."""
    if executor.max_connections < needed:
        raise ConfigurationError(f"a consumer needs {needed} connections: raise max_connections of the pool")


async def pass_on(executor: AsyncExecutor, wakes: Wakes) -> None:
    """Pass on the wake-up, or give back the message, that a blocking call may have taken whose task was cancelled.

    Twice: a busy Redis may read that call, the first passing on and a new message at once, and find only then that the
    connection of the call is closed.
    """
    for _ in range(2):
        await executor.run(wakes(), deadline=0)


class _Waits:
    """The blocking waits of an idle consumer, each twice as long as the one before it."""

    def __init__(self, calls: EngineCalls | SharedWaits, most: float) -> None:
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


class SharedWaits:
    """The blocking waits for several queues together. A key of the wrong type is found by trying each, and left out."""

    waiting_takes = False

    def __init__(self, queues: Sequence[Any]) -> None:
        """Wait for these delay queues, which are on one server; see `served.ServedQueue`."""
        self._keys: dict[Any, Any] = {}
        self._left_out: dict[Any, float] = {}
        self._to_try: list[Any] = []
        self.serve(queues)

    def serve(self, queues: Sequence[Any]) -> None:
        """Wait for these queues from the next wait on; without any, nobody is to wait any more."""
        self._keys = {queue.context.calls.await_wake(0).args[1]: queue for queue in queues}

    @property
    def queues(self) -> Collection[Any]:
        """The queues whose wake-ups it waits for."""
        return self._keys.values()

    def await_wake(self, timeout: float) -> RedisCommand[bool]:
        """Wait up to `timeout` seconds for a wake-up of any queue; notes whose it is."""
        served = self._keys
        if not served:  # it is about to end
            return RedisCommand(("PING",), lambda _: False)
        while self._to_try:
            if (key := self._to_try.pop()) not in served:
                continue
            tried = partial(self._tried, served, key)
            return RedisCommand(("BLPOP", key, "0.001"), tried, expects=WRONG_TYPE)
        now = monotonic()
        keys = [key for key in served if self._left_out.get(key, 0.0) <= now] if self._left_out else [*served]
        words = ("BLPOP", *(keys or [*served][:1]), f"{timeout:.3f}")
        # Without any other key the error is one: it is followed by a pause.
        return RedisCommand(words, partial(self._read, served), expects=WRONG_TYPE if keys else ())

    def _read(self, served: dict[Any, Any], reply: Any) -> bool:
        if isinstance(reply, Exception):
            self._to_try = [*self._keys]
            return False
        if reply is None:
            return False
        key = reply[0].decode("utf-8", "surrogateescape") if isinstance(reply[0], bytes) else reply[0]
        served[key] = queue = served.pop(key)  # Redis takes the first key that has a wake-up: others come first now
        queue.wake()
        return True

    def _tried(self, served: dict[Any, Any], key: Any, reply: Any) -> bool:
        if isinstance(reply, Exception):
            self._left_out[key] = monotonic() + LEFT_OUT
            return False
        return self._read(served, reply)

    def unseen_wakes(self) -> list[Any]:
        """Return the calls that pass on the wake-ups that were taken and that no loop has seen."""
        taken = [queue for queue in self.queues if queue.woken]
        for queue in taken:
            queue.woken = False
        return [queue.context.calls.wake() for queue in taken]

    def all_wakes(self) -> list[Any]:
        """Return the calls that pass on a wake-up of each queue: a wait that was cut off may have taken any."""
        return [queue.context.calls.wake() for queue in self.queues]


class Listener:
    """Blocks on `wake` in its own thread while it is set to listen; calls `on_wakeup` for each wake-up."""

    def __init__(
        self,
        executor: Executor,
        calls: EngineCalls | SharedWaits,
        on_wakeup: Callable[[], object],
        threads: OwnThreads,
    ) -> None:
        """Start the thread by `threads`; it does not listen yet. Without room, it starts when it is to listen."""
        self._executor = executor
        self._calls = calls
        self._wakes: Wakes = calls.unseen_wakes if isinstance(calls, SharedWaits) else lambda: [calls.wake()]
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
        self,
        executor: AsyncExecutor,
        calls: EngineCalls | SharedWaits,
        on_wakeup: Callable[[], object],
        on_death: OnDeath,
    ) -> None:
        """Start the task; it does not listen yet. If an error ends it, call `on_death`."""
        self._executor = executor
        self._calls = calls
        self._wakes: Wakes = calls.all_wakes if isinstance(calls, SharedWaits) else lambda: [calls.wake()]
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
