# pyright: reportUnnecessaryTypeIgnoreComment=error
"""Payload types that are unions or `Annotated`, and callbacks that are checked against the type of the payloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, assert_type

from delayq import AsyncDelayQueue, AsyncMessage, DelayQueue, Message
from delayq.streams import AsyncStreamQueue, StreamQueue


@dataclass
class Mail:
    """A payload."""

    to: str


@dataclass
class Letter:
    """A payload of another kind."""

    text: str


Post = Mail | Letter


def read_mail(message: Message[Mail]) -> None:
    """Process one kind."""


def read_post(message: Message[Mail | Letter]) -> None:
    """Process both kinds."""


async def read_mail_later(message: AsyncMessage[Mail]) -> None:
    """Process one kind in a coroutine."""


def payloads_have_the_type_of_the_queue() -> None:
    assert_type(DelayQueue("a"), DelayQueue[Any])
    assert_type(DelayQueue("a", payload_type=Mail), DelayQueue[Mail])
    assert_type(DelayQueue("a", payload_type=list[Mail]), DelayQueue[list[Mail]])
    assert_type(DelayQueue("a", payload_type=Mail | Letter), DelayQueue[Mail | Letter])
    assert_type(DelayQueue("a", payload_type=Post), DelayQueue[Mail | Letter])
    assert_type(DelayQueue("a", payload_type=Mail | None), DelayQueue[Mail | None])
    assert_type(DelayQueue("a", payload_type=Annotated[Mail, "checked"]), DelayQueue[Mail])
    assert_type(DelayQueue("a", payload_type=Annotated[Mail | Letter, "checked"]), DelayQueue[Mail | Letter])
    assert_type(DelayQueue[Mail | Letter]("a", payload_type=Mail | Letter), DelayQueue[Mail | Letter])
    assert_type(AsyncDelayQueue("a", payload_type=Mail | Letter), AsyncDelayQueue[Mail | Letter])
    assert_type(StreamQueue("a", payload_type=Mail | Letter), StreamQueue[Mail | Letter])
    assert_type(AsyncStreamQueue("a", payload_type=Mail | Letter), AsyncStreamQueue[Mail | Letter])
    DelayQueue[Mail]("a", payload_type=Letter)  # type: ignore[arg-type]


def payloads_are_checked_when_sent() -> None:
    queue: DelayQueue[Mail | Letter] = DelayQueue("a", payload_type=Mail | Letter)
    queue.send_delay_msg(Mail("Ada"))
    queue.send_delay_msg(Letter("hello"))
    queue.send_delay_msg("hello")  # type: ignore[arg-type]
    with queue.lease() as message:
        if message is not None:
            assert_type(message.payload, Mail | Letter)


def callbacks_are_checked() -> None:
    DelayQueue("a", payload_type=Mail | Letter, callback=read_post)
    DelayQueue("a", payload_type=Mail | Letter, callback=read_mail)  # type: ignore[arg-type]
    StreamQueue("a", payload_type=Letter, callback=read_mail)  # type: ignore[arg-type]
    DelayQueue("a", callback=read_mail)


def decorated_callbacks_are_checked() -> None:
    queue = DelayQueue("a", payload_type=Letter)
    queue.callback(read_mail)  # type: ignore[arg-type]
    queue.every("15m")(read_mail)  # type: ignore[arg-type]
    queue.cron("@daily")(read_mail)  # type: ignore[arg-type]

    @queue.callback
    def read(message: Message[Letter]) -> str:
        return message.payload.text

    @queue.every("15m", payload=Letter("again"))
    def read_again(message: Message[Letter]) -> str:
        return message.payload.text

    @queue.callback  # type: ignore[arg-type]
    def count(messages: list[Message[Letter]]) -> int:
        return len(messages)

    assert_type(read(Message.__new__(Message[Letter])), str)
    assert_type(read_again(Message.__new__(Message[Letter])), str)
    DelayQueue("a").callback(read_mail)
    DelayQueue("a", payload_type=Mail).callback(read_mail)


def asyncio_callbacks_are_checked() -> None:
    AsyncDelayQueue("a", payload_type=Mail).callback(read_mail_later)
    AsyncDelayQueue("a", payload_type=Letter).callback(read_mail_later)  # type: ignore[arg-type]
    AsyncDelayQueue("a", payload_type=Mail).callback(read_mail)  # type: ignore[arg-type]
    DelayQueue("a", payload_type=Mail).callback(read_mail_later)  # type: ignore[arg-type]


def batch_callbacks_are_checked() -> None:
    queue = DelayQueue("a", payload_type=Letter)

    @queue.batch_callback(most=10)
    def read(messages: list[Message[Letter]]) -> None:
        assert_type(messages[0].payload, Letter)

    @queue.batch_callback  # type: ignore[arg-type]
    def read_wrong(messages: list[Message[Mail]]) -> None:
        """Process messages of another kind."""

    queue.batch_callback(most=10)(read_mail)  # type: ignore[arg-type]
