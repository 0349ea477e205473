"""Where the queues of one test live: a Redis inside the process, or a prefix of its own on a real one."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any, TypeVar

from delayq.clients import EMBEDDED, forget_embedded
from delayq.clock import monotonic
from delayq.config import read_settings
from delayq.doctor import removal
from delayq.executor import open_executor
from delayq.ids import new_id
from delayq.inspector import queue_names
from delayq.keys import Keys
from delayq.operation import single, together
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.testing import inside
from delayq.wakeup import LISTENER

T = TypeVar("T")


LISTENERS_WITHIN = 0.5
"""Seconds for which their end is waited for: some may be of queues that are none of this test's."""


class Place:
    """A Redis, or a part of one, that a test has for itself."""

    def __init__(self, url: str) -> None:
        """Take a part of the Redis at `url`; for `memory://` a new one inside of this process."""
        self.prefix = f"test-{new_id()}"
        """The first part of every key of the test."""
        self.url = f"{EMBEDDED}{self.prefix}" if url == EMBEDDED else url

    def remove(self) -> None:
        """Delete all that the test has put there."""
        if self.url.startswith(EMBEDDED):
            forget_embedded(self.url)
            return
        line = open_executor({"url": self.url}, read_settings({}))
        try:
            for name in line.perform(queue_names(self.prefix)):
                line.perform(together(removal(Keys.of(self.prefix, name), self.prefix, name)))
        finally:
            line.close()


class Queues:
    """Makes the queues of one test, as the fixture `delayq_queues` gives it; they are gone when the test ends.

    `url` and `prefix` are those of their Redis, for queues that are made in other ways.
    """

    def __init__(self, place: Place) -> None:
        """Make queues in a place."""
        self.url, self.prefix = place.url, place.prefix
        self._made = ExitStack()
        self._queues: list[DelayQueue[Any]] = []
        self._before = set(threading.enumerate())

    def __call__(self, name: str = "queue", **options: Any) -> DelayQueue[Any]:
        """Open a queue of this test; the options are those of a `DelayQueue`."""
        queue: DelayQueue[Any] = DelayQueue(name, **{"url": self.url, "prefix": self.prefix, **options})
        return self._keep(queue)

    def adopt(self, queue: DelayQueue[T]) -> DelayQueue[T]:
        """Have a queue that the program has made live here until the test ends: `delayq_queues.adopt(app.queue)`.

        Its callbacks and options stay, what it has sent so far stays where it is, and afterwards it is as before.
        """
        self._made.enter_context(inside.moved(queue, self.url, self.prefix))
        return self._keep(queue)

    def close(self) -> None:
        """Stop what consumes, close the queues that were made, and give back what was adopted."""
        for queue in self._queues:
            queue.stop_consume(0)
        self._end_listeners()
        self._made.close()

    def _keep(self, queue: DelayQueue[T]) -> DelayQueue[T]:
        self._queues.append(queue)
        self._made.callback(queue.close)
        return queue

    def _end_listeners(self) -> None:
        """Wake the listeners of consumers that have ended, which hand the wake-up on and end, too.

        Left alone they end within a second; and one that has just taken a wake-up would hand it on when all is removed.
        """
        listeners = [one for one in threading.enumerate() if one.name == LISTENER and one not in self._before]
        if not listeners or self.url.startswith(EMBEDDED):
            return
        for queue in self._queues:
            inside.perform(queue, single(inside.tools(queue).calls.wake()))
        end = monotonic() + LISTENERS_WITHIN
        for listener in listeners:
            listener.join(max(0.0, end - monotonic()))


class AsyncQueues:
    """Makes the asyncio queues of one test, as the fixture `delayq_async_queues` gives it; see `Queues`.

    On a real Redis a queue is to be closed in its event loop, best by `async with`.
    """

    def __init__(self, place: Place) -> None:
        """Make queues in a place."""
        self.url, self.prefix = place.url, place.prefix
        self._made = ExitStack()

    def __call__(self, name: str = "queue", **options: Any) -> AsyncDelayQueue[Any]:
        """Open a queue of this test; the options are those of an `AsyncDelayQueue`."""
        return AsyncDelayQueue(name, **{"url": self.url, "prefix": self.prefix, **options})

    def adopt(self, queue: AsyncDelayQueue[T]) -> AsyncDelayQueue[T]:
        """Have a queue that the program has made live here until the test ends; see `Queues.adopt`."""
        self._made.enter_context(inside.moved(queue, self.url, self.prefix))
        return queue

    def close(self) -> None:
        """Give back what was adopted."""
        self._made.close()
