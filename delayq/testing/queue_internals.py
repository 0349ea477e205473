"""Access to the private parts of a queue; no other module of the kit uses them."""
# ruff: noqa: SLF001

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

from delayq.broker.context import QueueContext
from delayq.broker.transport.executor import AsyncExecutor, Executor, open_async_executor, open_executor
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.options import QueueOptions
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue
from delayq.worker.drivers.work_buffer import Callback

T = TypeVar("T")
AnyQueue = DelayQueue[Any] | AsyncDelayQueue[Any]

_MOVED = ("settings", "prefix", "_options", "_consuming")
"""The attributes of a queue that determine where it is stored."""


def checked(queue: Any) -> AnyQueue:
    """Return a queue; `ConfigurationError` for anything else."""
    if not isinstance(queue, DelayQueue | AsyncDelayQueue):
        raise ConfigurationError(f"queue must be a DelayQueue or an AsyncDelayQueue, not {short_repr(queue)}")
    return queue


def perform(queue: AnyQueue, operation: Operation[T]) -> T | Awaitable[T]:
    """Perform an operation on a queue; returns an awaitable for an `AsyncDelayQueue`."""
    return queue._perform(operation)


def context(queue: AnyQueue) -> QueueContext:
    """Return the context of a queue."""
    return queue._context


def callback(queue: AnyQueue) -> Callback:
    """Return the callback of a queue; `NoCallbackError` if there is none."""
    return queue._handlers.find()


def declares_schedules(queue: AnyQueue) -> bool:
    """Return whether the program declares schedules for a queue; they are applied before it is consumed."""
    return queue._handlers.declares


def executor(queue: AnyQueue) -> Executor | AsyncExecutor:
    """Return the executor of a queue."""
    return queue._executor


def replace_exchange(executor: Executor | AsyncExecutor, exchange: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Replace the function that exchanges bytes with Redis; returns the one it had before."""
    before, executor._exchange = executor._exchange, exchange
    return before


@contextmanager
def moved(queue: AnyQueue, url: str, prefix: str) -> Iterator[None]:
    """Move a queue to another Redis or prefix; it keeps its callback and options."""
    context = queue._context
    before = {name: getattr(queue, name) for name in _MOVED}
    calls, confirming = context.calls, context.confirming
    options = cast("QueueOptions", {name: value for name, value in queue._options.items() if name != "redis"})
    options["url"], options["prefix"] = url, prefix
    opened = open_executor if isinstance(queue, DelayQueue) else open_async_executor
    target = cast("Any", queue)
    # Durability is checked on the Redis that the program uses.
    target.settings = replace(queue.settings, strict=False)
    target._options, target.prefix, target._consuming = options, prefix, None
    # All parts of the queue share its executor, so this one changes its connections.
    own = vars(queue._executor).copy()
    vars(queue._executor).update(vars(opened(options, queue.settings)), opening=queue.open)
    context.calls = replace(calls, keys=queue._make_calls().keys, clock=None, _known={})  # observed if it was
    context.confirming = []  # a test's Redis has no replicas
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)
        vars(queue._executor).update(own)
        context.calls, context.confirming = calls, confirming
