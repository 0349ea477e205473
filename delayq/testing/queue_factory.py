"""Creates the queues of one test: on an embedded Redis, or under the test's own prefix on a real one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

from delayq.broker.keys import Keys
from delayq.broker.message.ids import new_id
from delayq.broker.transport.clients import EMBEDDED, forget_embedded
from delayq.broker.transport.executor import open_async_executor, open_executor
from delayq.broker.transport.operation import together
from delayq.errors import ConfigurationError, short_repr
from delayq.options import QueueOptions, read_settings
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.control.registered import queue_names
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.server_check import removal
from delayq.values.times import monotonic
from delayq.worker.drivers.wakeup import LISTENER

T = TypeVar("T")
AnyQueue = DelayQueue[Any] | AsyncDelayQueue[Any]

LISTENER_TIMEOUT = 0.5
"""Seconds to wait for listeners to end: some may belong to queues of other tests."""


def checked(queue: Any) -> AnyQueue:
    """Return a queue; `ConfigurationError` for anything else."""
    if not isinstance(queue, DelayQueue | AsyncDelayQueue):
        raise ConfigurationError(f"queue must be a DelayQueue or an AsyncDelayQueue, not {short_repr(queue)}")
    if hasattr(queue, "partitions"):
        raise ConfigurationError(
            f"the test kit takes queues without partitions: open {queue.name} without them in tests"
        )
    return queue


class Namespace:
    """A Redis, or a key prefix on one, that only one test uses."""

    def __init__(self, url: str) -> None:
        """Choose a new prefix on the Redis at `url`; for `memory://` a new embedded Redis."""
        self.prefix = f"test-{new_id()}"
        """The first part of every key of the test."""
        self.url = f"{EMBEDDED}{self.prefix}" if url == EMBEDDED else url

    def remove(self) -> None:
        """Delete everything the test has stored."""
        if self.url.startswith(EMBEDDED):
            forget_embedded(self.url)
            return
        with closing(open_executor({"url": self.url}, read_settings({}))) as executor:
            for name in executor.perform(queue_names(self.prefix)):
                executor.perform(together(removal(Keys.of(self.prefix, name), self.prefix, name)))


class Queues:
    """Creates the queues of one test (fixture `delayq_queues`); they are removed when the test ends.

    Use `url` and `prefix` to create queues of the same test in other ways.
    """

    def __init__(self, namespace: Namespace) -> None:
        self.url, self.prefix = namespace.url, namespace.prefix
        self._made = ExitStack()
        self._queues: list[DelayQueue[Any]] = []
        self._before = set(threading.enumerate())

    def __call__(self, name: str = "queue", **options: Any) -> DelayQueue[Any]:
        """Open a queue for this test; takes the options of `DelayQueue`."""
        queue: DelayQueue[Any] = DelayQueue(name, **{"url": self.url, "prefix": self.prefix, **options})
        return self._keep(queue)

    def adopt(self, queue: DelayQueue[T]) -> DelayQueue[T]:
        """Move an existing queue here until the test ends: `delayq_queues.adopt(app.queue)`.

        It keeps its callbacks and options. Messages it has sent before stay where they are. Afterwards it is as before.
        """
        self._made.enter_context(moved(queue, self.url, self.prefix))
        return self._keep(queue)

    def close(self) -> None:
        """Stop consumers, close the queues, and move adopted queues back."""
        for queue in self._queues:
            queue.stop_consume(0)
        self._end_listeners()
        self._made.close()

    def _keep(self, queue: DelayQueue[T]) -> DelayQueue[T]:
        self._queues.append(queue)
        self._made.callback(queue.close)
        return queue

    def _end_listeners(self) -> None:
        """Wake the listeners of stopped consumers, which then pass the wake-up on and end.

        Otherwise they end within a second, and one that has just taken a wake-up would pass it on after the clean-up.
        """
        listeners = [one for one in threading.enumerate() if one.name == LISTENER and one not in self._before]
        if not listeners or self.url.startswith(EMBEDDED):
            return
        for queue in self._queues:
            queue.executor.call(queue.context.calls.wake())
        end = monotonic() + LISTENER_TIMEOUT
        for listener in listeners:
            listener.join(max(0.0, end - monotonic()))


class AsyncQueues:
    """Creates the asyncio queues of one test (fixture `delayq_async_queues`); see `Queues`.

    On a real Redis, close each queue in its event loop, best with `async with`.
    """

    def __init__(self, namespace: Namespace) -> None:
        self.url, self.prefix = namespace.url, namespace.prefix
        self._made = ExitStack()

    def __call__(self, name: str = "queue", **options: Any) -> AsyncDelayQueue[Any]:
        """Open a queue for this test; takes the options of `AsyncDelayQueue`."""
        return AsyncDelayQueue(name, **{"url": self.url, "prefix": self.prefix, **options})

    def adopt(self, queue: AsyncDelayQueue[T]) -> AsyncDelayQueue[T]:
        """Move an existing queue here until the test ends; see `Queues.adopt`."""
        self._made.enter_context(moved(queue, self.url, self.prefix))
        return queue

    def close(self) -> None:
        """Move adopted queues back."""
        self._made.close()


@contextmanager
def moved(queue: AnyQueue, url: str, prefix: str) -> Iterator[None]:
    """Move a queue to another Redis or prefix; it keeps its callback and options."""
    options = cast("QueueOptions", {name: value for name, value in queue._options.items() if name != "redis"})  # noqa: SLF001
    options["url"], options["prefix"] = url, prefix
    settings = replace(queue.settings, strict=False)  # durability is checked on the Redis that the program uses
    target: dict[str, Any] = {"settings": settings, "prefix": prefix, "_options": options, "_consuming": None}
    context, opened = queue.context, open_executor if isinstance(queue, DelayQueue) else open_async_executor
    calls, confirming = context.calls, context.confirming
    context.calls = replace(calls, keys=Keys.of(prefix, queue.name), clock=None, _known={})  # observed if it was
    context.confirming = []  # a test's Redis has no replicas
    # All parts of the queue share its executor, so this one changes its connections.
    executor = vars(opened(options, settings))
    before, own = {name: getattr(queue, name) for name in target}, vars(queue.executor).copy()
    vars(queue).update(target)
    vars(queue.executor).update(executor, opening=queue.open)
    try:
        yield
    finally:
        vars(queue).update(before)
        vars(queue.executor).update(own)
        context.calls, context.confirming = calls, confirming
