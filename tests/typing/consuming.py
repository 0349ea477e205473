"""A callback that takes another kind of message is caught, and a message knows its payload."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_type

from delayq import (
    AsyncConsuming,
    AsyncDelayQueue,
    AsyncMessage,
    AsyncWorker,
    Consuming,
    DelayQueue,
    Message,
    Retry,
    Worker,
)


@dataclass
class Reminder:
    """A payload."""

    user: int


@dataclass
class Letter:
    """A payload of another kind."""

    text: str


queue = DelayQueue("reminders", payload_type=Reminder)


def remind(message: Message[Reminder]) -> None:
    """Process a message as most callbacks do."""
    assert_type(message.payload, Reminder)
    assert_type(message.payload.user, int)
    assert_type(message.id, str)
    assert_type(message.attempt, int)
    assert_type(message.retries_left, int)
    assert_type(message.due, datetime)
    assert_type(message.lateness, float)
    assert_type(message.headers, dict[str, str])
    assert_type(message.token, int)
    assert_type(message.lease_lost, bool)
    assert_type(message.progress, Any)
    assert_type(message.resources, Any)
    message.payload.text  # type: ignore[attr-defined]  # noqa: B018 - it is the access that is checked


def settle(message: Message[Reminder]) -> bool:
    """Settle by hand, and say so."""
    assert_type(message.ack(), bool)
    assert_type(message.nack(delay="1m", error="boom"), bool)
    assert_type(message.extend("1m"), bool)
    assert_type(message.release(), bool)
    assert_type(message.reject("no such user"), bool)
    message.nack(60)  # type: ignore[call-arg]
    message.reject()  # type: ignore[call-arg]
    message.extend(None)
    return True


def read(message: Message[Letter]) -> None:
    """Process a message of another kind."""


def anything(message: Message[Any]) -> object:
    """Process a message of whatever kind."""
    return message.payload


def nothing() -> None:
    """Process nothing."""


async def remind_later(message: AsyncMessage[Reminder]) -> None:
    """Process a message in a coroutine."""
    assert_type(message.payload, Reminder)
    assert_type(await message.ack(), bool)
    assert_type(await message.nack(delay=5), bool)
    if message.ack():  # type: ignore[truthy-bool]
        pass


def remind_at_once(message: AsyncMessage[Reminder]) -> bool:
    """Process a message of the asyncio face without waiting for anything."""
    return message.payload.user > 0


async def read_later(message: AsyncMessage[Letter]) -> None:
    """Process a message of another kind in a coroutine."""


def callbacks_are_checked() -> None:
    DelayQueue("reminders", payload_type=Reminder, callback=remind)
    DelayQueue("reminders", payload_type=Reminder, callback=settle)
    DelayQueue("reminders", payload_type=Reminder, callback=anything)
    DelayQueue("reminders", payload_type=Reminder, callback=read)  # type: ignore[arg-type]
    DelayQueue("reminders", payload_type=Reminder, callback=nothing)  # type: ignore[arg-type]
    DelayQueue("reminders", payload_type=Reminder, callback=5)  # type: ignore[arg-type]
    DelayQueue("reminders", payload_type=Reminder, callback=remind_later)  # type: ignore[arg-type]
    DelayQueue("reminders", callback=remind)
    DelayQueue("reminders", callback=read)


def asyncio_callbacks_are_checked() -> None:
    AsyncDelayQueue("reminders", payload_type=Reminder, callback=remind_later)
    AsyncDelayQueue("reminders", payload_type=Reminder, callback=remind_at_once)
    AsyncDelayQueue("reminders", payload_type=Reminder, callback=read_later)  # type: ignore[arg-type]
    AsyncDelayQueue("reminders", payload_type=Reminder, callback=remind)  # type: ignore[arg-type]


def a_decorated_callback_keeps_its_type() -> None:
    @queue.callback
    def process(message: Message[Reminder]) -> int:
        return message.payload.user

    assert_type(process(Message.__new__(Message[Reminder])), int)
    process("message")  # type: ignore[arg-type]


def a_decorated_batch_callback_keeps_its_type() -> None:
    @queue.batch_callback
    def process(messages: list[Message[Reminder]]) -> int:
        return sum(message.payload.user for message in messages)

    @queue.batch_callback(most=500)
    def process_many(messages: list[Message[Reminder]]) -> list[bool | Retry]:
        return [message.payload.user > 0 or Retry("later") for message in messages]

    assert_type(process([]), int)
    assert_type(process_many([]), list[bool | Retry])
    assert_type(queue.batch_callback(process, most=5)([]), int)
    process("messages")  # type: ignore[arg-type]
    queue.batch_callback(process, 5)  # type: ignore[call-overload]
    queue.batch_callback(most="many")  # type: ignore[call-overload]


def an_asyncio_batch_callback_keeps_its_type() -> None:
    queue = AsyncDelayQueue("reminders", payload_type=Reminder)

    @queue.batch_callback(most=10)
    async def process(messages: list[AsyncMessage[Reminder]]) -> None:
        for message in messages:
            assert_type(await message.ack(), bool)

    process(Message)  # type: ignore[arg-type,unused-coroutine]


def consuming_is_a_handle() -> None:
    consuming = queue.start_consume()
    assert_type(consuming, Consuming)
    assert_type(consuming.running, bool)
    assert_type(consuming.wait("5s"), bool)
    assert_type(queue.stop_consume("5s"), bool)
    queue.run(burst=True)
    queue.run(burst=True, concurrency=4, grace="5s", connect_timeout=2)
    assert_type(queue.start_consume(concurrency=None, grace=0.5), Consuming)
    queue.run(concurrency="4")  # type: ignore[arg-type]
    queue.run(True)  # type: ignore[call-arg]


async def consuming_is_a_handle_with_asyncio() -> None:
    queue = AsyncDelayQueue("reminders", payload_type=Reminder, callback=remind_later)
    consuming = await queue.start_consume()
    assert_type(consuming, AsyncConsuming)
    consuming.stop(5)
    assert_type(await consuming.wait(5), bool)
    assert_type(await queue.stop_consume(), bool)
    await queue.run()
    await queue.run(burst=True, concurrency=4, grace="5s", connect_timeout=2)


def workers_take_queues_with_weights() -> None:
    worker = Worker({queue: 6, DelayQueue("other"): 1}, concurrency=20, limits={queue: 5}, strict=True)
    assert_type(worker.start_consume(burst=False), Consuming)
    assert_type(worker.stop_consume("5s"), bool)
    worker.run(grace="5s")
    Worker({queue: "6"})  # type: ignore[dict-item]
    assert_type(Worker.matching("tenant-*", queue, concurrency=20, limit=5), Worker)
    Worker.matching("tenant-*", "queue")  # type: ignore[arg-type]


async def workers_with_asyncio() -> None:
    queue = AsyncDelayQueue("reminders", payload_type=Reminder, callback=remind_later)
    worker = AsyncWorker({queue: 6}, limits={queue: 5})
    assert_type(await worker.start_consume(), AsyncConsuming)
    assert_type(await worker.stop_consume(), bool)
    AsyncWorker({DelayQueue("other"): 6})  # type: ignore[dict-item]
