"""The arguments of a task are checked where it is sent. Each `type: ignore` is an error that must be there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, assert_type

from delayq import AsyncDelayQueue, AsyncMessage, DelayQueue, Message, NewMessage, Sent, current_message

queue = DelayQueue("billing")
loop_queue = AsyncDelayQueue("billing")


@queue.task
def remind(user: int, *, text: str = "") -> bool:
    """Be a task without options."""
    return bool(user and text)


@queue.task(name="billing.charge", aliases=["charge"], retries=5, backoff="1m", delay=1)
def charge(user: int, amount: float) -> None:
    """Be a task with options."""


@loop_queue.task
async def greet(user: int) -> str:
    """Be a task of the asyncio queue."""
    return str(user)


def arguments_are_checked() -> None:
    assert_type(remind(42), bool)
    assert_type(remind.send(42, text="hello"), Sent)
    assert_type(remind.message(42), NewMessage[Any])
    assert_type(charge.options(delay="1h", id="c-1").send(42, 1.5), Sent)
    assert_type(remind.options(at=datetime(2027, 1, 1, tzinfo=UTC)).send(user=42), Sent)
    remind.send("42")  # type: ignore[arg-type]
    remind.send()  # type: ignore[call-arg]
    remind.send(42, "hello")  # type: ignore[call-arg]
    remind.message(42, colour="red")  # type: ignore[call-arg]
    charge.options(retries=1).send(42)  # type: ignore[call-arg]
    charge("42", 1.5)  # type: ignore[arg-type]
    remind.options(late=1)  # type: ignore[call-arg]
    remind.options(retries="1")  # type: ignore[arg-type]


def options_are_checked() -> None:
    queue.task(retry=5)  # type: ignore[call-overload]
    queue.task(aliases=5)  # type: ignore[call-overload]
    queue.task(5)  # type: ignore[call-overload]


def the_message_is_there() -> None:
    assert_type(current_message(), Message[Any] | AsyncMessage[Any])


async def it_is_the_same_with_asyncio() -> None:
    assert_type(await greet(42), str)
    assert_type(await greet.send(42), Sent)
    assert_type(await greet.options(delay=5).send(42), Sent)
    await greet.send("42")  # type: ignore[arg-type]
