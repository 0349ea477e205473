"""One blocking wait for the wake-ups of several queues on one server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.broker.requests import RedisCommand
from delayq.times import monotonic
from delayq.worker.pool import PoolQueue
from delayq.worker.wakeup import AsyncListener, Listener

WRONG_TYPE = "WRONGTYPE"
"""Begins the error of a wait for keys of which one is no list."""
LEFT_OUT = 60.0
"""Seconds for which a queue whose wake-ups are no list is left out; its loop polls it."""


class SharedWaits:
    """The blocking waits for all queues together. A key of the wrong type is found by trying each, and left out."""

    waiting_takes = False

    def __init__(self, queues: Sequence[PoolQueue]) -> None:
        """Wait for these delay queues, which are on one server."""
        self.queues = queues
        self._keys = {queue.context.calls.await_wake(0).args[1]: queue for queue in queues}
        self._left_out: dict[Any, float] = {}
        self._to_try: list[Any] = []

    def await_wake(self, timeout: float) -> RedisCommand[bool]:
        """Wait up to `timeout` seconds for a wake-up of any queue; notes whose it is."""
        if self._to_try:
            key = self._to_try.pop()
            return RedisCommand(("BLPOP", key, "0.001"), lambda reply: self._tried(key, reply), expects=WRONG_TYPE)
        now = monotonic()
        keys = [key for key in self._keys if self._left_out.get(key, 0.0) <= now] or [*self._keys][:1]
        return RedisCommand(("BLPOP", *keys, f"{timeout:.3f}"), self._read, expects=WRONG_TYPE)

    def _read(self, reply: Any) -> bool:
        if isinstance(reply, Exception):
            self._to_try = [*self._keys]
            return False
        if reply is None:
            return False
        key = reply[0]
        self._keys[key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key].woken = True
        return True

    def _tried(self, key: Any, reply: Any) -> bool:
        if isinstance(reply, Exception):
            self._left_out[key] = monotonic() + LEFT_OUT
            return False
        return self._read(reply)

    def wakes(self) -> list[Any]:
        """Return the calls that pass on the wake-ups that were taken and that no loop has seen."""
        taken = [queue for queue in self._keys.values() if queue.woken]
        for queue in taken:
            queue.woken = False
        return [queue.context.calls.wake() for queue in taken]


class SharedListener(Listener):
    """Blocks on the wake-ups of several queues in one thread."""

    _calls: Any

    def _wakes(self) -> list[Any]:
        return list(self._calls.wakes())


class SharedAsyncListener(AsyncListener):
    """Blocks on the wake-ups of several queues in one task."""

    _calls: Any

    def _wakes(self) -> list[Any]:
        return [queue.context.calls.wake() for queue in self._calls.queues]
