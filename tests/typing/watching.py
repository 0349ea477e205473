"""What the event log and the run ledger give is typed. Each `type: ignore` is an error that must be there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from delayq import AsyncDelayQueue, DelayQueue, EventKind, MessageEvent, RunInfo, SendStatus

queue = DelayQueue("reminders", events=True, events_max_len=5000, dedupe_window="1h", dedupe_max=5000)


def events_are_iterated_over() -> None:
    assert_type(queue.events(), Iterator[MessageEvent])
    assert_type(queue.events(5, follow=True), Iterator[MessageEvent])
    queue.events("now")
    queue.events(1.5)  # type: ignore[arg-type]
    queue.events(5, True)  # type: ignore[call-arg]
    for event in queue.events():
        assert_type(event.kind, EventKind | str)
        assert_type(event.id, str | None)


def runs_are_listed_and_ended() -> None:
    assert_type(queue.runs(), list[RunInfo])
    assert_type(queue.end_run("nightly", refusals=[("a", "no")], epoch=5), RunInfo)
    assert_type(queue.refusals("nightly"), list[tuple[str, str]])
    assert_type(queue.send_many([1], run="nightly")[0].status, SendStatus)
    queue.end_run("nightly", refusals=["a"])  # type: ignore[list-item]
    queue.send_many([1], run=5)  # type: ignore[arg-type]


def options_can_be_left_as_they_are() -> None:
    DelayQueue("reminders", events=None, dedupe_window=None)
    DelayQueue("reminders", events="yes")  # type: ignore[arg-type]


async def it_is_the_same_with_asyncio() -> None:
    queue = AsyncDelayQueue("reminders", events=True)
    assert_type(queue.events(), AsyncIterator[MessageEvent])
    async for event in queue.events("now", follow=True):
        assert_type(event, MessageEvent)
    assert_type(await queue.runs(), list[RunInfo])
    assert_type(await queue.end_run("nightly"), RunInfo)
    assert_type(await queue.refusals("nightly"), list[tuple[str, str]])
