"""A clock that stands still until it is turned, and by which every queue of the process goes while it rules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from delayq.calls import Calls
from delayq.clock import Duration, milliseconds, moment, timestamp
from delayq.values import Command

_NOW, _TIME = "_now", "time"
"""What `Calls` asks for the time that its scripts are told, and what it asks the server for when somebody wants it."""


class Clock:
    """A clock that stands still until it is turned; it begins at the real time.

    While freezegun freezes the time, its clock and this one are one: whichever is turned, both go.
    """

    def __init__(self) -> None:
        """Begin now."""
        self._stands_at = timestamp(datetime.now(UTC))
        self.watchers: list[Callable[[int], None]] = []
        """Called with the milliseconds of each turn, after it."""

    def __repr__(self) -> str:
        """Show the time."""
        return f"<Clock {self.now.isoformat()}>"

    @property
    def now(self) -> datetime:
        """The time, in UTC, in whole milliseconds."""
        return moment(self.milliseconds())

    def milliseconds(self) -> int:
        """Return the time in milliseconds since 1970, as scripts take it."""
        frozen = frozen_time()
        # A script is not to see a millisecond before it is over.
        return self._stands_at if frozen is None else int(timestamp(_floor(frozen())))

    def advance(self, duration: Duration) -> None:
        """Turn the clock on by a duration: `"3d"`, a `timedelta` or seconds. Nothing is delivered by that alone."""
        self.move_to(self.now + timedelta(milliseconds=milliseconds(duration)))

    def move_to(self, at: datetime) -> None:
        """Turn the clock to an aware time, be it one that has passed: a server's clock can be set back, too."""
        stands_at = timestamp(at)
        passed = stands_at - self.milliseconds()
        frozen = frozen_time()
        if frozen is not None:
            frozen.move_to(moment(stands_at))
        self._stands_at = stands_at
        for watch in list(self.watchers):
            watch(passed)


def _floor(at: datetime) -> datetime:
    aware = at.replace(tzinfo=UTC)  # freezegun tells UTC without saying so
    return aware - timedelta(microseconds=aware.microsecond % 1000)


def frozen_time() -> Any:
    """Return what turns freezegun's clock, None where that freezes nothing."""
    freezegun = sys.modules.get("freezegun.api")
    factories = getattr(freezegun, "freeze_factories", None)
    return factories[-1] if factories else None


_ruling: list[Clock] = []


def ruling_clock() -> Clock | None:
    """Return the clock by which all queues of this process go for now, if there is one."""
    return _ruling[-1] if _ruling else None


@contextmanager
def ruling(clock: Clock) -> Iterator[Clock]:
    """Have every queue of this process go by a clock, whenever it was made; on a real Redis, too."""

    def now(calls: Calls) -> int:
        return clock.milliseconds() if calls.clock is None else calls.clock()

    def time(_: Calls) -> Command[int]:
        return Command(("TIME",), lambda _: clock.milliseconds())

    before = {name: vars(Calls)[name] for name in (_NOW, _TIME)}
    setattr(Calls, _NOW, property(now))
    setattr(Calls, _TIME, time)
    _ruling.append(clock)
    try:
        yield clock
    finally:
        _ruling.pop()
        for name, member in before.items():
            setattr(Calls, name, member)
