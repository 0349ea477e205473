"""What the kit touches inside of a queue: the only place that does."""
# ruff: noqa: SLF001

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

from delayq.config import QueueOptions
from delayq.errors import ConfigurationError, shown
from delayq.executor import AsyncExecutor, Executor, open_async_executor, open_executor
from delayq.message import Tools
from delayq.operation import Operation
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.workbench import Callback

T = TypeVar("T")
AnyQueue = DelayQueue[Any] | AsyncDelayQueue[Any]

_MOVED = ("settings", "prefix", "_executor", "_options", "_opened", "_consuming")
"""What of a queue says where it lives."""


def checked(queue: Any) -> AnyQueue:
    """Return a queue; `ConfigurationError` for anything else."""
    if not isinstance(queue, DelayQueue | AsyncDelayQueue):
        raise ConfigurationError(f"queue must be a DelayQueue or an AsyncDelayQueue, not {shown(queue)}")
    return queue


def perform(queue: AnyQueue, operation: Operation[T]) -> T | Awaitable[T]:
    """Carry out an operation on a queue: at once, or when awaited where that is the queue's way."""
    return queue._perform(operation)


def tools(queue: AnyQueue) -> Tools:
    """Return the tools of a queue."""
    return queue._tools


def callback(queue: AnyQueue) -> Callback:
    """Return what processes the messages of a queue; `NoCallbackError` if nothing does."""
    return queue._found_callback()


def declares_schedules(queue: AnyQueue) -> bool:
    """Tell whether the program declares schedules for a queue, which are put in place before it is consumed."""
    return bool(queue._declared)


def executor(queue: AnyQueue) -> Executor | AsyncExecutor:
    """Return what carries out the calls of a queue."""
    return queue._executor


def rewire(line: Executor | AsyncExecutor, exchange: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Have an executor exchange bytes with its Redis in another way; returns the way it had."""
    before, line._exchange = line._exchange, exchange
    return before


@contextmanager
def moved(queue: AnyQueue, url: str, prefix: str) -> Iterator[None]:
    """Have a queue live elsewhere, with the callback and the options that it has."""
    mine = queue._tools
    kept = {name: getattr(queue, name) for name in _MOVED}
    calls, confirming = mine.calls, mine.confirming
    options = cast("QueueOptions", {name: value for name, value in queue._options.items() if name != "redis"})
    options["url"], options["prefix"] = url, prefix
    opened = open_executor if isinstance(queue, DelayQueue) else open_async_executor
    face = cast("Any", queue)
    # What loses messages is the concern of the server that the program uses.
    face.settings = replace(queue.settings, strict=False)
    face._executor, face._options, face.prefix = opened(options, queue.settings), options, prefix
    face._opened, face._consuming = False, None
    mine.calls = queue._make_calls()
    mine.confirming = []  # a test's own place has no replicas
    try:
        yield
    finally:
        for name, before in kept.items():
            setattr(face, name, before)
        mine.calls, mine.confirming = calls, confirming
