"""The test kit takes both faces: what is awaited of one is there at once of the other."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import assert_type

from delayq import AsyncDelayQueue, DelayQueue, MessageInfo
from delayq.testing import (
    AsyncQueues,
    Clock,
    Delivered,
    Queues,
    assert_nothing_scheduled,
    assert_scheduled,
    crash,
    drain,
    lose_replies,
    restart,
    ruling,
    unreachable,
)

queue: DelayQueue[int] = DelayQueue("numbers", payload_type=int)
awaited: AsyncDelayQueue[int] = AsyncDelayQueue("numbers", payload_type=int)


def a_drain_tells_what_it_delivered() -> None:
    assert_type(drain(queue), list[Delivered])
    assert_type(drain(queue, until="3d", raising=True, most=5), list[Delivered])
    assert_type(drain(queue, until=datetime.now(UTC) + timedelta(days=1)), list[Delivered])
    assert_type(drain(awaited), Awaitable[list[Delivered]])
    assert_type(drain(queue, queue), list[Delivered])
    drain(queue, raises=True)  # type: ignore[call-overload]
    drain(queue, awaited)  # type: ignore[call-overload]


def what_is_scheduled_is_a_message() -> None:
    assert_type(assert_scheduled(queue, payload=5, within="1h"), MessageInfo)
    assert_type(assert_scheduled(awaited, id="m"), Awaitable[MessageInfo])
    assert_type(assert_nothing_scheduled(awaited), Awaitable[None])
    assert_nothing_scheduled(queue, at=datetime.now(UTC))
    assert_scheduled(queue, within=True, at="now")  # type: ignore[call-overload]


def faults_take_both() -> None:
    with lose_replies(queue, 2), lose_replies(awaited), unreachable(awaited):
        restart(queue)
    assert_type(restart(awaited), Awaitable[None])


def queues_stay_what_they_are(queues: Queues, async_queues: AsyncQueues, clock: Clock) -> None:
    assert_type(queues.adopt(queue), DelayQueue[int])
    assert_type(async_queues.adopt(awaited), AsyncDelayQueue[int])
    with ruling(clock) as ruler:
        assert_type(ruler.now, datetime)


def work() -> None:
    crash()
    queue.send_delay_msg("never reached")
