"""A lease gives one message or a list of them, as it was asked for."""

from __future__ import annotations

from typing import Any, TypedDict, assert_type

from delayq import (
    AsyncDelayQueue,
    AsyncLease,
    AsyncMessage,
    Counts,
    DelayQueue,
    Lease,
    Message,
    MessageInfo,
    Page,
    Redriven,
)


class Reminder(TypedDict):
    """A payload."""

    user: int


queue = DelayQueue("reminders", payload_type=Reminder)


def without_n_it_is_one_message_or_none() -> None:
    assert_type(queue.lease(), Lease[Reminder, Message[Reminder] | None])
    with queue.lease("30s", block=5) as message:
        assert_type(message, Message[Reminder] | None)
        message.ack()  # type: ignore[union-attr]
        if message is not None:
            assert_type(message.payload["user"], int)


def with_n_it_is_a_list() -> None:
    assert_type(queue.lease(n=5), Lease[Reminder, list[Message[Reminder]]])
    with queue.lease(n=5) as messages:
        assert_type(messages, list[Message[Reminder]])
        for message in messages:
            assert_type(message.payload, Reminder)


def a_lease_is_iterated_over() -> None:
    for message in queue.lease(n=5):
        assert_type(message, Message[Reminder])
    assert_type(len(queue.lease()), int)
    assert_type(queue.lease().messages, list[Message[Reminder]])


def wrong_arguments_are_caught() -> None:
    queue.lease(n="5")  # type: ignore[call-overload]
    queue.lease(30, 5)  # type: ignore[call-overload]
    queue.lease(block=None)  # type: ignore[call-overload]


def an_untyped_queue_leases_anything() -> None:
    with DelayQueue("anything").lease(n=5) as messages:
        assert_type(messages, list[Message[Any]])


async def it_is_the_same_with_asyncio() -> None:
    queue = AsyncDelayQueue("reminders", payload_type=Reminder)
    assert_type(queue.lease(), AsyncLease[Reminder, AsyncMessage[Reminder] | None])
    assert_type(queue.lease(n=5), AsyncLease[Reminder, list[AsyncMessage[Reminder]]])
    async with queue.lease() as message:
        assert_type(message, AsyncMessage[Reminder] | None)
    async with queue.lease(n=5) as messages:
        assert_type(messages, list[AsyncMessage[Reminder]])
    for one in await queue.lease(n=5):
        assert_type(one, AsyncMessage[Reminder])
        assert_type(await one.ack(), bool)
    with queue.lease():  # type: ignore[attr-defined]
        pass


def looking_in_has_values() -> None:
    assert_type(queue.get("a"), MessageInfo | None)
    assert_type(queue.counts(), Counts)
    assert_type(queue.list("pending"), Page)
    assert_type(queue.dead.list(), Page)
    assert_type(queue.dead.redrive("a"), Redriven)
    assert_type(queue.dead.purge(all=True), int)
    assert_type(queue.purge(), int)
    queue.dead.redrive("a", reason=5)  # type: ignore[arg-type]
