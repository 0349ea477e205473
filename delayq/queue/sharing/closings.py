"""Closing the whole queue: what a callback closes, or a breaker that trips, is passed on to all partitions.

The partition of the message is closed by its own loop, at once. A worker looks ten times a second, without a command,
whether there is something to pass on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.transport.operation import Every, Operation
from delayq.errors import DelayqError
from delayq.safe_log import SafeLog
from delayq.values.times import monotonic
from delayq.worker.parts.breakers import ClosedScopes
from delayq.worker.pool.pool import PoolQueue

log = SafeLog("delayq.partitions")

RESET_WITHIN = 5.0
"""Seconds after which it is too late to pass on that all may start again."""


class Closing(NamedTuple):
    """What one partition has closed; see `Calls.close`."""

    at: float
    delay: int
    pause: int | None

    @property
    def left(self) -> float:
        """Seconds for which there is still something to pass on."""
        longest = RESET_WITHIN if self.pause == 0 else max(self.delay, self.pause or 0) / 1000
        return self.at + longest - monotonic()


class Closings:
    """The last closing of each partition that is still to be passed on. Any thread may note one."""

    def __init__(self) -> None:
        """Start with none."""
        self._noted: dict[str, Closing] = {}

    def note(self, partition: str, delay: int, pause: int | None) -> None:
        """Note that a partition is closed, or that its breaker changes."""
        self._noted[partition] = Closing(monotonic(), delay, pause)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._noted)

    def pass_on(self, partitions: Iterable[Any], served: Iterable[PoolQueue]) -> Operation[None]:
        """Close all other partitions, and start nothing more of what this process has claimed of them."""
        queues = [*served]
        for name in [*self._noted]:
            closing = self._noted.pop(name)
            if closing.left <= 0:
                continue
            others = [one for one in partitions if one.name != name]
            delay = 0 if closing.pause is not None else max(1, round(closing.left * 1000))
            replies = yield Every([Calls.close(one.context.calls, None, delay, pause=closing.pause) for one in others])
            closed: set[str] = set()
            for one, reply in zip(others, replies, strict=True):
                if isinstance(reply, DelayqError):
                    log.warning("partition %s is not closed with the queue: %s", one.name, reply)
                else:
                    closed.add(one.name)
            if closing.pause != 0:
                for queue in queues:
                    scopes = queue.loop.parts.find(ClosedScopes) if queue.context.queue in closed else None
                    if scopes is not None:
                        scopes.close(None)
