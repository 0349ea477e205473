"""Connections to Redis for bulk data: one per process and URL, kept between loads and between the tasks of Spark.

Readers and writers on Spark are pickled and sent to executors, so they hold only a `TargetQueue` and connect through
here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.keys import Keys, check_name, check_queue_name
from delayq.broker.transport.server_url import find_url
from delayq.errors import ConfigurationError, PartitionsError, did_you_mean
from delayq.options import QueueOptions, read_settings
from delayq.queue.control.registered import is_in_use, queue_names
from delayq.queue.placing.layout import STORED, read_layout
from delayq.values.times import HORIZON, Duration, to_millis

if TYPE_CHECKING:
    from delayq.broker.transport.executor import Executor

DEDUPE_WINDOW = to_millis("1d")
"""How long a queue that is loaded in bulk remembers settled ids, unless it has a window of its own.

Without it, a load or a task that is repeated after its messages were processed would send them again.
"""
CONNECT_TIMEOUT = 2.0
"""Seconds to wait for Redis before a load begins; calls during the load are retried for longer."""

SOCKET_TIMEOUT = 5.0
"""Seconds to wait for one reply; less with a shorter deadline."""


@dataclass(frozen=True, slots=True)
class TargetQueue:
    """The queue to read or write, and its Redis."""

    queue: str
    url: str = field(repr=False)
    """Resolved on Spark's driver, so that every executor uses the same URL; it may contain a password."""
    prefix: str = "delayq"
    deadline: float | None = None
    """Seconds for which a call is retried while Redis does not reply; None for the default of queues."""


def target_of(queue: str, url: str | None, prefix: str, deadline: Duration | None) -> TargetQueue:
    """Return the queue that these options name; raise `ConfigurationError` for invalid ones."""
    return TargetQueue(
        check_queue_name(queue, "queue"),
        find_url(QueueOptions(url=url) if url else QueueOptions()),
        check_name(prefix, "prefix"),
        None if deadline is None else to_millis(deadline, "deadline", min=1) / 1000,
    )


_EXECUTORS: dict[tuple[int, str, float | None], Executor] = {}


def connect(target: TargetQueue) -> Executor:
    """Return this process's executor for the Redis of a target; it is created on first use."""
    # Spark's workers are forks: the key includes the process, because a parent's connections must not be shared.
    key = (os.getpid(), target.url, target.deadline)
    executor = _EXECUTORS.get(key)
    if executor is None:
        from delayq.broker.transport.executor import open_executor  # loads redis

        options = QueueOptions(url=target.url)
        if target.deadline is not None:
            options |= QueueOptions(deadline=target.deadline, socket_timeout=min(target.deadline, SOCKET_TIMEOUT))
        executor = _EXECUTORS.setdefault(key, open_executor(options, read_settings(options)))
    return executor


@lru_cache(maxsize=64)
def context_of(target: TargetQueue) -> QueueContext:
    """Return what the operations on the target's queue need."""
    # A send may move spent ids to the dead letter. Its limits are the workers' business, so none apply here.
    settings = read_settings(QueueOptions(dead_max=1 << 40, dead_ttl=HORIZON / 1000))
    return QueueContext(Calls(Keys.of(target.prefix, target.queue)), settings, bytes, target.queue)


def calls_of(target: TargetQueue) -> Calls:
    """Return the calls of the target's queue."""
    return context_of(target).calls


def partitions_of(target: TargetQueue) -> list[TargetQueue]:
    """Return the partitions of the target's queue, by number; itself if it has none."""
    layout = connect(target).call(read_layout(target.prefix, target.queue))
    return [replace(target, queue=name) for name in layout.names(target.queue)]


def check_queue(target: TargetQueue) -> None:
    """Raise `ConfigurationError` if the queue does not exist; a mistyped name would read as an empty queue."""
    if not connect(target).call(is_in_use(target.prefix, target.queue)):
        names = tuple(connect(target).perform(queue_names(target.prefix)))
        hint = did_you_mean(target.queue, names)
        raise ConfigurationError(f"there is no queue {target.queue!r} under the prefix {target.prefix!r}{hint}")


def open_queue(target: TargetQueue, dedupe_window: int | None) -> None:
    """Register the queue, and set its dedupe window (ms): 0 for off, None for one day if it has none yet.

    Runs before every load, so that it fails before its data moves: within seconds if Redis is unreachable.
    """
    from delayq.queue.delay_queue import DelayQueue

    options = QueueOptions(url=target.url, prefix=target.prefix)
    if dedupe_window is not None:
        options["dedupe_window"] = dedupe_window / 1000
    queue: DelayQueue[Any]
    with DelayQueue(target.queue, **options) as queue:
        try:
            queue.open(connect_timeout=CONNECT_TIMEOUT)
        except PartitionsError:
            options["partitions"] = STORED
            with DelayQueue(target.queue, **options) as whole:
                whole.open(connect_timeout=CONNECT_TIMEOUT)
    if dedupe_window is None:
        for one in partitions_of(target):
            connect(target).call(calls_of(one).default_dedupe_window(DEDUPE_WINDOW, queue.settings.dedupe_max))
