"""A wrong payload is caught by mypy where it is sent. Each `type: ignore` is an error that must be there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import msgspec

from delayq import (
    AsyncDelayQueue,
    CancelOutcome,
    DelayQueue,
    NewMessage,
    RescheduleOutcome,
    Sent,
    SentMany,
)


class Reminder(msgspec.Struct):
    """A payload."""

    user: int


class Urgent(Reminder):
    """A payload that is one of the other kind too."""


queue = DelayQueue("reminders", payload_type=Reminder)
at = datetime(2027, 1, 1, tzinfo=UTC)


def a_queue_has_the_type_of_its_payloads() -> None:
    assert_type(queue, DelayQueue[Reminder])
    assert_type(DelayQueue("numbers", payload_type=int), DelayQueue[int])


def what_fits_is_sent() -> None:
    assert_type(queue.send_delay_msg(Reminder(42), timedelta(hours=1), 3), Sent)
    assert_type(queue.send_delay_msg(Urgent(42), "1h30m", retries=3, id="a", headers={"b": "c"}, replace=True), Sent)
    assert_type(queue.send_schedule_msg(Reminder(42), at), Sent)
    assert_type(queue.send_schedule_msg(Reminder(42), at=at, retries=0), Sent)
    assert_type(queue.send_many([Reminder(1), Reminder(2)], 1.5), SentMany)
    assert_type(queue.send_many(Reminder(user) for user in range(5)), SentMany)
    queue.send_many([NewMessage(Reminder(1), delay="1h"), NewMessage(Reminder(2), at=at)])
    queue.send_many([Reminder(1), NewMessage(Reminder(2), retries=0, retention="1d")])
    assert_type(queue.send_delay_msg(Reminder(42), retention="1d"), Sent)
    assert_type(queue.result("a", timeout="10s"), Any)


def what_does_not_fit_is_caught() -> None:
    queue.send_delay_msg({"user": 42})  # type: ignore[arg-type]
    queue.send_delay_msg(42)  # type: ignore[arg-type]
    queue.send_delay_msg(None)  # type: ignore[arg-type]
    queue.send_delay_msg(Reminder)  # type: ignore[arg-type]
    queue.send_schedule_msg("42", at)  # type: ignore[arg-type]
    queue.send_many([Reminder(1), 2])  # type: ignore[list-item]
    queue.send_many(Reminder(1))  # type: ignore[arg-type]
    queue.send_many([NewMessage(42)])  # type: ignore[arg-type]


def times_and_numbers_are_checked_too() -> None:
    queue.send_delay_msg(Reminder(42), at)  # type: ignore[arg-type]
    queue.send_delay_msg(Reminder(42), None)  # type: ignore[arg-type]
    queue.send_delay_msg(Reminder(42), 5, "3")  # type: ignore[arg-type]
    queue.send_delay_msg(Reminder(42), id=5)  # type: ignore[arg-type]
    queue.send_delay_msg(Reminder(42), headers={"a": 1})  # type: ignore[dict-item]
    queue.send_delay_msg(Reminder(42), 5, 3, "dead")  # type: ignore[call-arg]
    queue.send_schedule_msg(Reminder(42), timedelta(hours=1))  # type: ignore[arg-type]
    queue.send_schedule_msg(Reminder(42))  # type: ignore[call-arg]
    NewMessage(Reminder(1), delay=at)  # type: ignore[arg-type]


def options_are_checked_by_name_and_type() -> None:
    DelayQueue("reminders", url="redis://localhost", concurrency=5, lease="1m", nack_delay=5, strict=True)
    DelayQueue("reminders", concurency=5)  # type: ignore[call-arg]
    DelayQueue("reminders", concurrency="5")  # type: ignore[arg-type]
    DelayQueue("reminders", lease=None)  # type: ignore[arg-type]
    DelayQueue(5)  # type: ignore[arg-type]


def what_holds_for_a_message_is_checked() -> None:
    queue.send_delay_msg(Reminder(42), expires="2h", missed="drop", unique="payload", replace="after")
    queue.send_schedule_msg(Reminder(42), at, expires=at + timedelta(hours=2))
    queue.send_delay_msg(Reminder(42), expires="2h", missed="lost")  # type: ignore[arg-type]
    queue.send_delay_msg(Reminder(42), id="a", debounce="30s", at_most=300)
    queue.send_delay_msg(Reminder(42), id="a", debounce="30s", at_most=300, collect=20)
    queue.send_many([NewMessage(Reminder(42), id="a")], debounce="30s", collect=20)
    queue.send_many([Reminder(42)], debounce="30s", collect="20")  # type: ignore[arg-type]
    queue.send_delay_msg(Reminder(42), id="a", unique_for="1h", unique_after=timedelta(hours=1))
    queue.send_delay_msg(Reminder(42), id="a", debounce=b"30s")  # type: ignore[arg-type]
    queue.send_delay_msg(Reminder(42), unique="name")  # type: ignore[arg-type]
    queue.send_delay_msg(Reminder(42), replace="before")  # type: ignore[arg-type]
    queue.send_delay_msg(Reminder(42), expire="2h")  # type: ignore[call-arg]
    queue.send_schedule_msg(Reminder(42), at, priority="1")  # type: ignore[arg-type]
    queue.send_schedule_msg(Reminder(42), at, expire="2h")  # type: ignore[call-arg]


def steering_has_exact_answers() -> None:
    assert_type(queue.cancel("a"), CancelOutcome)
    assert_type(queue.reschedule("a", "1h"), RescheduleOutcome)
    assert_type(queue.reschedule("a", at=at), RescheduleOutcome)
    queue.cancel(5)  # type: ignore[arg-type]
    queue.reschedule("a", at="tomorrow")  # type: ignore[arg-type]


def a_queue_without_a_payload_type_takes_anything() -> None:
    untyped = DelayQueue("anything")
    assert_type(untyped, DelayQueue[Any])
    untyped.send_delay_msg({"user": 42})
    untyped.send_delay_msg(Reminder(42))
    untyped.send_many([1, "two", None])


async def it_is_the_same_with_asyncio() -> None:
    queue = AsyncDelayQueue("reminders", payload_type=Reminder)
    assert_type(queue, AsyncDelayQueue[Reminder])
    assert_type(AsyncDelayQueue("anything"), AsyncDelayQueue[Any])
    assert_type(await queue.send_delay_msg(Reminder(42), 5), Sent)
    assert_type(await queue.send_schedule_msg(Reminder(42), at), Sent)
    assert_type(await queue.send_many([Reminder(42)]), SentMany)
    assert_type(await queue.cancel("a"), CancelOutcome)
    await queue.send_delay_msg({"user": 42})  # type: ignore[arg-type]
    await queue.send_schedule_msg(42, at)  # type: ignore[arg-type]
    await queue.send_many([Reminder(1), 2])  # type: ignore[list-item]
    await queue.send_delay_msg(Reminder(42), expires="2h", unique="payload", id=None)
    await queue.send_delay_msg(Reminder(42), expire="2h")  # type: ignore[call-arg]
    await queue.send_schedule_msg(Reminder(42), at, priority="1")  # type: ignore[arg-type]
    AsyncDelayQueue("reminders", concurency=5)  # type: ignore[call-arg]
