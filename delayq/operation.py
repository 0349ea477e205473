"""Operations that take one call or several: generators that yield requests and are sent the answers.

An executor carries an operation out with `perform`; so each is written once for the blocking and the asyncio face.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from delayq.calls import Call, Command

T = TypeVar("T")


class Pause(NamedTuple):
    """A step of an operation that waits so many seconds; its answer is an empty list."""

    seconds: float


Operation = Generator[list[Call[Any] | Command[Any]] | Pause, list[Any], T]
"""Yields the calls of one round trip, is sent their answers, returns its result. A failed call ends it."""


def single(call: Call[T]) -> Operation[T]:
    """Return the operation of one call."""
    (answer,) = yield [call]
    return answer  # type: ignore[no-any-return]  # the answer of a Call[T] is a T
