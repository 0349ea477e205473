"""A clock that stands still until a test moves it; every queue of the process can be made to follow it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from delayq.broker.calls import Calls
from delayq.broker.requests import RedisCommand
from delayq.values.times import Duration, from_millis, timestamp, to_millis


class Clock:
    """A clock that stands still until it is moved; it starts at the real time.

    While freezegun freezes the time, its clock and this one are the same: moving one moves both.
    """

    def __init__(self) -> None:
        self._now_ms = timestamp(datetime.now(UTC))
        self.watchers: list[Callable[[int], None]] = []
        """Called after each move, with the milliseconds by which the clock has moved."""

    def __repr__(self) -> str:
        return f"<Clock {self.now.isoformat()}>"

    @property
    def now(self) -> datetime:
        """The time, in UTC, in whole milliseconds."""
        return from_millis(self.milliseconds())

    def milliseconds(self) -> int:
        """Return the time in milliseconds since 1970, as scripts expect it."""
        frozen = frozen_time()
        # Rounded down: a script must not see a millisecond before it has passed.
        return self._now_ms if frozen is None else int(timestamp(_floor(frozen())))

    def advance(self, duration: Duration) -> None:
        """Move the clock forward by a duration: `"3d"`, a `timedelta` or seconds. This alone delivers nothing."""
        self.move_to(self.now + timedelta(milliseconds=to_millis(duration)))

    def move_to(self, at: datetime) -> None:
        """Move the clock to an aware time. It may be in the past, since a server's clock can be set back as well."""
        now_ms = timestamp(at)
        passed = now_ms - self.milliseconds()
        frozen = frozen_time()
        if frozen is not None:
            frozen.move_to(from_millis(now_ms))
        self._now_ms = now_ms
        for watch in list(self.watchers):
            watch(passed)


def _floor(at: datetime) -> datetime:
    aware = at.replace(tzinfo=UTC)  # freezegun returns UTC without a time zone
    return aware - timedelta(microseconds=aware.microsecond % 1000)


def frozen_time() -> Any:
    """Return freezegun's clock, None if the time is not frozen."""
    freezegun = sys.modules.get("freezegun.api")
    factories = getattr(freezegun, "freeze_factories", None)
    return factories[-1] if factories else None


_ruling: list[Clock] = []


def ruling_clock() -> Clock | None:
    """Return the clock that all queues of this process follow at present, None if there is none."""
    return _ruling[-1] if _ruling else None


@contextmanager
def ruling(clock: Clock) -> Iterator[Clock]:
    """Make every queue of this process follow a clock, whenever it was created; on a real Redis, too."""

    def now(calls: Calls) -> int:
        return clock.milliseconds() if calls.clock is None else calls.clock()

    def time(_: Calls) -> RedisCommand[int]:
        return RedisCommand(("TIME",), lambda _: clock.milliseconds())

    _ruling.append(clock)
    try:
        # What gives the time to scripts, and what reads the time of the server.
        with patch.object(Calls, "now", property(now)), patch.object(Calls, "time", time):
            yield clock
    finally:
        _ruling.pop()
