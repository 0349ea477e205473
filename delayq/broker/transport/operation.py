"""Operations of one or several calls: generators that yield requests and are sent the replies.

`perform` of an executor runs an operation, so each operation is written once for the blocking and the asyncio API.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.errors import DelayqError

T = TypeVar("T")


class Wait(NamedTuple):
    """A step of an operation that waits for some seconds; its reply is an empty list."""

    seconds: float


class Every(list[Any]):
    """The calls of a round trip whose errors the operation reads itself, as replies."""


class EveryMade(Iterator[Any]):
    """The same, of calls that are made while the first are being sent."""

    def __init__(self, calls: Iterator[Any]) -> None:
        self._calls = calls

    def __next__(self) -> Any:
        return next(self._calls)


Round = Iterable[ScriptCall[Any] | RedisCommand[Any]]
"""The calls of one round trip; a generator makes the later ones while the first are being sent."""
Operation = Generator[Round | Wait, list[Any], T]
"""Yields the calls of a round trip, is sent their replies, returns its result. A failed call is thrown into it."""


def may_write(step: Round | Wait) -> bool:
    """Return whether the first step of an operation may write, so that the queue must be open before."""
    return not isinstance(step, list) or any(isinstance(one, ScriptCall) and one.script.executes_once for one in step)


def reads_errors(step: Round | Wait) -> bool:
    """Return whether an operation reads the errors of a round trip itself."""
    return isinstance(step, Every | EveryMade)


def first_error(replies: list[Any]) -> DelayqError | None:
    """Return the first error among the replies of a round trip."""
    for one in replies:  # no generator: every call comes here
        if isinstance(one, DelayqError):
            return one
    return None


def single(call: ScriptCall[T] | RedisCommand[T]) -> Operation[T]:
    """Return the operation of one call."""
    (reply,) = yield [call]
    return reply  # type: ignore[no-any-return]  # the reply of a ScriptCall[T] is a T


def together(calls: Sequence[ScriptCall[T] | RedisCommand[T]]) -> Operation[list[T]]:
    """Return the operation of several calls in one round trip."""
    return (yield calls)
