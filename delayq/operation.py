"""Operations that take one call or several: generators that yield requests and are sent the answers.

An executor carries an operation out with `perform`; so each is written once for the blocking and the asyncio face.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from delayq.errors import DelayqError
from delayq.values import Call, Command

T = TypeVar("T")


class Pause(NamedTuple):
    """A step of an operation that waits so many seconds; its answer is an empty list."""

    seconds: float


Round = Iterable[Call[Any] | Command[Any]]
"""The calls of one round trip; if it is a generator, they are made while the first are on their way."""
Operation = Generator[Round | Pause, list[Any], T]
"""Yields the calls of one round trip, is sent their answers, returns its result. A failed call is thrown into it."""


def begun(operation: Operation[T]) -> tuple[Operation[T], bool]:
    """Run an operation up to its first request, so that wrong arguments are refused before anything is sent.

    Returns the rest of it, and whether that first request writes.
    """
    try:
        step = next(operation)
    except StopIteration as end:
        return _ended(end.value), False
    writes = not isinstance(step, list) or any(isinstance(call, Call) and call.script.executes_once for call in step)
    return _resumed(operation, step), writes


def _resumed(operation: Operation[T], step: Round | Pause) -> Operation[T]:
    try:
        while True:
            try:
                answers = yield step
            except DelayqError as error:
                step = operation.throw(error)
            else:
                step = operation.send(answers)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # what an Operation[T] returns is a T


def _ended(result: T) -> Operation[T]:
    yield from ()
    return result


def single(call: Call[T] | Command[T]) -> Operation[T]:
    """Return the operation of one call."""
    (answer,) = yield [call]
    return answer  # type: ignore[no-any-return]  # the answer of a Call[T] is a T


def together(calls: Sequence[Call[T] | Command[T]]) -> Operation[list[T]]:
    """Return the operation of several calls in one round trip."""
    return (yield calls)
