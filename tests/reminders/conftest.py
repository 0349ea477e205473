"""Calendars of several producers, and a queue whose clock the test sets."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from delayq import DelayQueue
from delayq.broker.calls import Calls
from delayq.reminders import Reading, read_calendar
from delayq.values.times import timestamp

FILES = Path(__file__).parent / "calendars"
NOW = datetime(2027, 1, 1, tzinfo=UTC)


def ics(*events: str, head: str = "") -> bytes:
    """Return a calendar of events, each a block of lines."""
    blocks = [f"BEGIN:VEVENT\n{event.strip()}\nEND:VEVENT" for event in events]
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", *head.strip().splitlines(), *blocks, "END:VCALENDAR", ""]
    return "\n".join(line for line in lines).replace("\n", "\r\n").encode()


def read(*files: str | bytes, now: datetime = NOW, days: int = 366, **options: Any) -> Reading:
    """Read files of the folder by name, or bytes."""
    opened = [FILES / file if isinstance(file, str) else ("team.ics", file) for file in files]
    return read_calendar(opened, now=now, until=now + timedelta(days=days), **options)


class Clock:
    """The server time that a test sets."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def advance(self, **span: float) -> None:
        """Move the clock forward."""
        self.now += timedelta(**span)

    def __call__(self) -> int:
        return timestamp(self.now)


def set_clock(queue: Any, clock: Callable[[], int]) -> Any:
    """Make a queue use a clock."""
    queue.context.calls = Calls(queue.context.calls.keys, clock)
    return queue


@pytest.fixture
def clock() -> Clock:
    """The clock of the test's queues, starting at `NOW`."""
    return Clock(NOW)


@pytest.fixture(params=["memory", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """URL of the queue."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}"
    return str(request.getfixturevalue("redis_url"))


@pytest.fixture
def queue(url: str, clock: Clock) -> Iterator[DelayQueue[Any]]:
    """A queue that uses the test's clock."""
    with DelayQueue("reminders", url=url) as made:
        yield set_clock(made, clock)
