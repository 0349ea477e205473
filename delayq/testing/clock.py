"""A clock that stands still until it is turned, and by which every queue of the process goes while it rules."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from delayq.calls import Calls
from delayq.clock import Duration, milliseconds, moment, timestamp

_NOW = "_now"
"""What `Calls` asks for the time that its scripts are told; nothing but this name is known of it here."""


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
        self._move(self.milliseconds() + milliseconds(duration))

    def move_to(self, at: datetime) -> None:
        """Turn the clock to an aware time, be it one that has passed: a server's clock can be set back, too."""
        self._move(timestamp(at))

    def move_to_ms(self, at: int) -> None:
        """Turn the clock to a time in milliseconds since 1970."""
        self._move(at)

    def _move(self, at: int) -> None:
        passed = at - self.milliseconds()
        frozen = frozen_time()
        if frozen is not None:
            frozen.move_to(moment(at))
        self._stands_at = at
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

    before = vars(Calls)[_NOW]
    setattr(Calls, _NOW, property(now))
    _ruling.append(clock)
    try:
        yield clock
    finally:
        _ruling.pop()
        setattr(Calls, _NOW, before)
