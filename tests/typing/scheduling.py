"""Schedules, as mypy sees them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import assert_type

from delayq import (
    Applied,
    AsyncDelayQueue,
    AsyncMessage,
    AsyncSchedules,
    DelayQueue,
    Message,
    OccurrenceChange,
    Schedule,
    ScheduleHistory,
    ScheduleInfo,
    ScheduleOutcome,
    Schedules,
    Sent,
)

queue: DelayQueue[int] = DelayQueue("q", payload_type=int)


@queue.cron("0 9 * * *", tz="Europe/Berlin", payload=1, misfire="skip")
def digest(message: Message[int]) -> None:
    assert_type(message.payload, int)


@queue.every("2d", tz="Europe/Berlin")
@queue.rrule("FREQ=MONTHLY;BYDAY=-1FR", tz="Europe/Berlin", count=3)
@queue.every("15m", retries=0)
def sweep(message: Message[int]) -> bool:
    return message.payload > 1


def use() -> None:
    assert_type(queue.schedules, Schedules)
    assert_type(queue.schedules.add("a", cron="@daily", tz="UTC", count=3), ScheduleOutcome)
    assert_type(queue.schedules.add_many([Schedule("b", every=60)]), dict[str, ScheduleOutcome])
    assert_type(queue.schedules.list(), list[ScheduleInfo])
    assert_type(queue.schedules.get("a"), ScheduleInfo | None)
    assert_type(queue.schedules.next("a", 3), list[datetime])
    assert_type(queue.schedules.remove("a"), int)
    assert_type(queue.schedules.set(label="user:42", tz="UTC"), int)
    assert_type(queue.schedules.page(prefix="a").schedules, list[ScheduleInfo])
    queue.schedules.set(label="user:42", zone="UTC")  # type: ignore[call-arg]
    assert_type(queue.schedules.run_now("a"), Sent)
    assert_type(queue.schedules.skip("a", datetime.now(UTC).date()), list[OccurrenceChange])
    assert_type(queue.schedules.move("a", datetime.now(UTC), datetime.now(UTC)), OccurrenceChange)
    assert_type(queue.schedules.history("a", limit=3), ScheduleHistory)
    assert_type(queue.schedules.backfill("a", datetime.now(UTC), datetime.now(UTC), limit=99).sent, int)
    assert_type(queue.schedules.apply(prune=True), Applied)
    queue.schedules.add("a", every=60, misfire="twice")  # type: ignore[arg-type]
    queue.schedules.add("a", every=60, retires=3)  # type: ignore[call-arg]
    queue.schedules.add("a", every=None, count="3")  # type: ignore[arg-type]


async def use_async(queue: AsyncDelayQueue[int]) -> None:
    @queue.every("15m")
    async def later(message: AsyncMessage[int]) -> None:
        assert_type(message.payload, int)

    assert_type(queue.schedules, AsyncSchedules)
    assert_type(await queue.schedules.get("a"), ScheduleInfo | None)
    assert_type(await queue.schedules.apply(), Applied)
