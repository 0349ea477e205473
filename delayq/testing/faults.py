"""Faults to order: a worker that dies, an answer that is lost, a Redis that is away or starts again.

All but `crash` are about the line between one queue and its Redis, so they are the same on the embedded one and on a
real one, and other queues do not notice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any, NoReturn, TypeVar, overload

from delayq.config import whole
from delayq.conversation import Exchange, NotConnectedError
from delayq.executor import AsyncExecutor, Executor
from delayq.operation import Operation
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.testing import inside
from delayq.values import Call, Command

T = TypeVar("T")
R = TypeVar("R")


class Crash(BaseException):
    """The end of a worker, as `crash` raises it: no `except Exception` of a callback holds it up."""


def crash() -> NoReturn:
    """End the worker that is running this callback, as a power cut would: nothing is settled.

    The message stays leased; when the lease runs out, one retry is taken and another worker gets it. Only `drain` has
    workers that die of it; to others it is an exception like any other.
    """
    raise Crash("the worker has crashed")


@contextmanager
def lose_replies(queue: inside.AnyQueue, n: int = 1) -> Iterator[None]:
    """Have Redis carry out the next `n` round trips of a queue, and lose the answers on their way back.

    delayq sends the calls again, and they are not carried out twice. Fails if nothing was lost.
    """
    left = wanted = whole(n, "n", 1, 1_000_000)
    line = inside.executor(inside.checked(queue))

    def lossy(step: Exchange) -> Any:
        return _then(exchange(step), lambda answers: lost(step, answers))

    def lost(step: Exchange, answers: Any) -> Any:
        nonlocal left
        # A wait for a wake-up is no call, and what Redis refused (it did not know the script yet) it did not carry out.
        refused = isinstance(answers, Exception) or any(isinstance(answer, Exception) for answer in answers)
        if left == 0 or refused or not any(isinstance(one.request, Call) for one in step.sent):
            return answers
        left -= 1
        return ConnectionResetError("the answer is lost, as the test wants it")

    exchange = inside.rewire(line, lossy)
    try:
        yield
    finally:
        inside.rewire(line, exchange)
    if left == wanted:
        raise AssertionError(f"queue {queue.name} was not used, so no answer was lost")


@contextmanager
def unreachable(queue: inside.AnyQueue) -> Iterator[None]:
    """Have nothing get through to Redis: calls raise `UnavailableError` at once, without the queue's `deadline`."""
    line = inside.executor(inside.checked(queue))
    away = NotConnectedError("connection refused, as the test wants it")
    exchange = inside.rewire(line, lambda _: _answer(line, away))
    deadline, line.conversation.deadline = line.conversation.deadline, 0.0
    try:
        yield
    finally:
        line.conversation.deadline = deadline
        inside.rewire(line, exchange)


@overload
def restart(queue: DelayQueue[T]) -> None: ...
@overload
def restart(queue: AsyncDelayQueue[T]) -> Awaitable[None]: ...
def restart(queue: inside.AnyQueue) -> Any:
    """Have Redis be as after a restart that lost no data: the connection is cut, and it knows no scripts any more.

    To be awaited where the queue is asynchronous. A Redis that is shared forgets the scripts of all who use it.
    """
    return inside.perform(inside.checked(queue), _restarted(inside.executor(queue)))


def _restarted(line: Executor | AsyncExecutor) -> Operation[None]:
    yield [Command(("SCRIPT", "FLUSH"), bool)]

    def cut(_: Exchange) -> Any:
        inside.rewire(line, exchange)
        return _answer(line, ConnectionResetError("Redis was started again, as the test wants it"))

    exchange = inside.rewire(line, cut)


def _answer(line: Executor | AsyncExecutor, answer: R) -> R | Awaitable[R]:
    """Return an answer as an executor is used to it."""
    if isinstance(line, Executor):
        return answer

    async def later() -> R:
        return answer

    return later()


def _then(answers: Any, hear: Callable[[Any], Any]) -> Any:
    """Have answers heard, be it when they have come."""
    if not isawaitable(answers):
        return hear(answers)

    async def later() -> Any:
        return hear(await answers)

    return later()
