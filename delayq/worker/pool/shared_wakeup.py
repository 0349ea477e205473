"""One blocking wait for the wake-ups of several queues on one server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from delayq.broker.requests import RedisCommand
from delayq.values.times import monotonic
from delayq.worker.drivers.own_threads import OnDeath, OwnThreads
from delayq.worker.drivers.wakeup import AsyncListener, Listener
from delayq.worker.pool.pool_queue import PoolQueue

WRONG_TYPE = "WRONGTYPE"
"""Begins the error of a wait for keys of which one is no list."""
LEFT_OUT = 60.0
"""Seconds for which a queue whose wake-ups are no list is left out; its loop polls it."""


class SharedWaits:
    """The blocking waits for all queues together. A key of the wrong type is found by trying each, and left out."""

    waiting_takes = False

    def __init__(self, queues: Sequence[PoolQueue]) -> None:
        """Wait for these delay queues, which are on one server."""
        self._keys: dict[Any, PoolQueue] = {}
        self._left_out: dict[Any, float] = {}
        self._to_try: list[Any] = []
        self.serve(queues)

    def serve(self, queues: Sequence[PoolQueue]) -> None:
        """Wait for these queues from the next wait on; without any, nobody is to wait any more."""
        self._keys = {queue.context.calls.await_wake(0).args[1]: queue for queue in queues}

    @property
    def queues(self) -> Collection[PoolQueue]:
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
        return RedisCommand(words, partial(self._read, served), expects=WRONG_TYPE)

    def _read(self, served: dict[Any, PoolQueue], reply: Any) -> bool:
        if isinstance(reply, Exception):
            self._to_try = [*self._keys]
            return False
        if reply is None:
            return False
        key = reply[0].decode("utf-8", "surrogateescape") if isinstance(reply[0], bytes) else reply[0]
        served[key] = queue = served.pop(key)  # Redis takes the first key that has a wake-up: others come first now
        queue.wake()
        return True

    def _tried(self, served: dict[Any, PoolQueue], key: Any, reply: Any) -> bool:
        if isinstance(reply, Exception):
            self._left_out[key] = monotonic() + LEFT_OUT
            return False
        return self._read(served, reply)

    def wakes(self) -> list[Any]:
        """Return the calls that pass on the wake-ups that were taken and that no loop has seen."""
        taken = [queue for queue in self._keys.values() if queue.woken]
        for queue in taken:
            queue.woken = False
        return [queue.context.calls.wake() for queue in taken]


class SharedListener(Listener):
    """Blocks on the wake-ups of several queues in one thread."""

    _calls: Any

    def __init__(self, executor: Any, waits: SharedWaits, on_wakeup: Callable[[], None], threads: OwnThreads) -> None:
        calls: Any = waits
        super().__init__(executor, calls, on_wakeup, threads)

    def _wakes(self) -> list[Any]:
        return list(self._calls.wakes())


class SharedAsyncListener(AsyncListener):
    """Blocks on the wake-ups of several queues in one task."""

    _calls: Any

    def __init__(self, executor: Any, waits: SharedWaits, on_wakeup: Callable[[], None], on_death: OnDeath) -> None:
        calls: Any = waits
        super().__init__(executor, calls, on_wakeup, on_death)

    def _wakes(self) -> list[Any]:
        return [queue.context.calls.wake() for queue in self._calls.queues]
