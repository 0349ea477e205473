"""Faults that a test can inject: a crashed worker, a lost reply, a Redis that is unreachable or restarts.

All but `crash` act on the connection of one queue. So they are the same on the embedded Redis and on a real one, and
other queues are not affected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any, NoReturn, TypeVar, overload
from unittest.mock import patch

from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.transport.executor import AsyncExecutor, Executor
from delayq.broker.transport.failures import NotConnectedError
from delayq.broker.transport.operation import Operation
from delayq.broker.transport.protocol import Exchange
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue
from delayq.testing.queue_factory import AnyQueue, checked
from delayq.values.checks import check_int

T = TypeVar("T")
R = TypeVar("R")


class Crash(BaseException):
    """Ends a worker, raised by `crash`: `except Exception` in a callback does not catch it."""


def crash() -> NoReturn:
    """End the worker that runs this callback, as a power cut would: nothing is settled.

    The message stays leased. When the lease expires, one retry is used and another worker gets the message. This ends
    only the workers of `drain`; for others it is an ordinary exception.
    """
    raise Crash("the worker has crashed")


@contextmanager
def lose_replies(queue: AnyQueue, n: int = 1) -> Iterator[None]:
    """Lose the replies to the next `n` round trips of a queue, after Redis has executed their calls.

    delayq sends the calls again, and Redis does not execute them twice. Fails if no reply was lost.
    """
    left = total = check_int(n, "n", 1, 1_000_000)
    executor = checked(queue).executor

    def lossy_exchange(step: Exchange) -> Any:
        return _then(exchange(step), lambda replies: lose(step, replies))

    def lose(step: Exchange, replies: Any) -> Any:
        nonlocal left
        # Only executed calls count: not a wait for a wake-up, nor a call that Redis refused as an unknown script.
        refused = isinstance(replies, Exception) or any(isinstance(reply, Exception) for reply in replies)
        if left == 0 or refused or not any(isinstance(one.request, ScriptCall) for one in step.sent):
            return replies
        left -= 1
        return ConnectionResetError("the reply was lost (injected by the test)")

    exchange = executor.exchange
    with patch.object(executor, "exchange", lossy_exchange):
        yield
    if left == total:
        raise AssertionError(f"no reply was lost: queue {queue.name} was not used inside lose_replies")


@contextmanager
def unreachable(queue: AnyQueue) -> Iterator[None]:
    """Make Redis unreachable: calls raise `UnavailableError` at once, without waiting for the queue's `deadline`."""
    executor = checked(queue).executor
    away = NotConnectedError("connection refused (injected by the test)")
    refusing = patch.object(executor, "exchange", lambda _: _reply(executor, away))
    with refusing, patch.object(executor.protocol, "deadline", 0.0):
        yield


@overload
def restart(queue: DelayQueue[T]) -> None: ...
@overload
def restart(queue: AsyncDelayQueue[T]) -> Awaitable[None]: ...
def restart(queue: AnyQueue) -> Any:
    """Put Redis in the state after a restart without data loss: the connection is cut and no script is loaded.

    Await it for an `AsyncDelayQueue`. On a shared Redis, the scripts of all its users are unloaded.
    """
    executor = checked(queue).executor
    return executor.perform(_restart(executor))


def _restart(executor: Executor | AsyncExecutor) -> Operation[None]:
    yield [RedisCommand(("SCRIPT", "FLUSH"), bool)]

    def cut(_: Exchange) -> Any:
        executor.exchange = exchange
        return _reply(executor, ConnectionResetError("Redis was restarted (injected by the test)"))

    exchange, executor.exchange = executor.exchange, cut


def _reply(executor: Executor | AsyncExecutor, reply: R) -> R | Awaitable[R]:
    """Return a reply as the executor expects it: awaitable for an asynchronous one."""
    if isinstance(executor, Executor):
        return reply

    async def later() -> R:
        return reply

    return later()


def _then(replies: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to replies, awaited first if necessary."""
    if not isawaitable(replies):
        return change(replies)

    async def later() -> Any:
        return change(await replies)

    return later()
