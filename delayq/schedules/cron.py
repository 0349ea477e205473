"""Cron expressions: cronsim computes times of a wall clock that never changes, `quartz` adds forms of Quartz.

A cron expression occurs at whole seconds. It is *fixed* if its second, minute and hour do not begin with `*`: see
`local_times`, which handles the clock changes of a zone.
"""

from __future__ import annotations

from bisect import bisect_right
from copy import copy
from datetime import timedelta
from functools import lru_cache
from itertools import product
from typing import Any

from delayq.errors import ConfigurationError, InvalidValueError, short_repr
from delayq.schedules.recurring.local_times import EPOCH, LocalTimes, check_zone, wall_seconds

DAY = 86_400
THURSDAY = 4
"""The weekday of the first day of 1970, where Sunday is 0."""
MAX_TIMES = 1440
"""Times of a day that are listed, at most."""


class DailyTimes:
    """The same times on each day of some weekdays, in seconds of a wall clock that never changes."""

    def __init__(self, times: list[int], weekdays: set[int]) -> None:
        """Occur at these seconds of a day, in order, on these weekdays, where Sunday is 0."""
        self._times = times
        # How many days from each weekday to the next one of these.
        self._wait = [next(days for days in range(1, 8) if (day + days) % 7 in weekdays) for day in range(7)]
        self._weekdays = weekdays

    def after(self, time: int) -> int:
        """Return the first time after a time."""
        day, second = divmod(time, DAY)
        weekday = (day + THURSDAY) % 7
        if weekday in self._weekdays:
            at = bisect_right(self._times, second)
            if at < len(self._times):
                return day * DAY + self._times[at]
        return (day + self._wait[weekday]) * DAY + self._times[0]


def daily_times(parsed: Any) -> DailyTimes | None:
    """Return the times of an expression that cronsim has parsed; None if dates or months restrict it."""
    count = len(parsed.hours) * len(parsed.minutes) * len(parsed.seconds)
    any_date = parsed.parts[3] == "*" and parsed.parts[4] == "*"
    if not any_date or count > MAX_TIMES or not all(isinstance(day, int) for day in parsed.weekdays):
        return None
    clock = product(sorted(parsed.hours), sorted(parsed.minutes), sorted(parsed.seconds))
    return DailyTimes(
        [3600 * hour + 60 * minute + second for hour, minute, second in clock], {day % 7 for day in parsed.weekdays}
    )


try:  # here, and not in the thread of a consumer: a fork during an import leaves the child with a lock
    import cronsim

    from delayq.schedules.recurring.quartz import simulate
except ImportError:  # an extra
    cronsim = None  # type: ignore[assignment]

MAX_TEXT = 200
"""The maximum of characters of a cron expression."""

_ALLOWED = {
    "bad second": ": 0 to 59",
    "bad minute": ": 0 to 59",
    "bad hour": ": 0 to 23",
    "bad day-of-month": ": 1 to 31 that the month has, or L",
    "bad month": ": 1 to 12, or JAN to DEC",
    "bad day-of-week": ": 0 to 7, or SUN to SAT",
    "wrong number of fields": ": give five, minute hour day month weekday",
}
"""What a field may be, by the error of cronsim."""
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Cron(LocalTimes):
    """Occurrences of a cron expression in a time zone; see the module's docstring."""

    def __init__(self, text: str, tz: str = "UTC") -> None:
        """Parse an expression of five fields, of six with seconds, or like `@daily`; see `check_zone` for `tz`."""
        if cronsim is None:
            raise ConfigurationError("cron expressions need cronsim: pip install 'delayq[cron]'")
        zone = check_zone(tz)
        if not isinstance(text, str) or not text.isascii() or not text.isprintable() or len(text) > MAX_TEXT:
            raise InvalidValueError(f"cron must be five fields such as '0 9 * * MON-FRI', not {short_repr(text)}")
        parsed = _parse(text)
        super().__init__(parsed, zone, fixed=parsed.fixed)


class _Expression:
    """A cron expression, parsed: its times of a wall clock, and whether it is fixed."""

    def __init__(self, forward: Any, backward: Any, *, fixed: bool) -> None:
        self._forward = forward
        self._backward = backward
        self.daily: DailyTimes | None = daily_times(forward)
        self.fixed = fixed

    def after(self, wall: int) -> int | None:
        """Return the first time after a time."""
        return self.daily.after(wall) if self.daily else _following(self._forward, wall)

    def up_to(self, wall: int) -> int | None:
        """Return the last time that is not after a time."""
        return _following(self._backward, wall + 1)


@lru_cache(maxsize=4096)  # many schedules have few expressions, and parsing takes longer than finding a time
def _parse(text: str) -> _Expression:
    """Parse a cron expression; raises `ConfigurationError` if it is not valid or never matches."""
    fields = " ".join(_NAMED.get(text.strip().lower(), text).split())
    try:
        forward, backward = simulate(fields, EPOCH), simulate(fields, EPOCH, reverse=True)
    except (cronsim.CronSimError, AssertionError) as error:
        what = str(error).lower() or "bad field"
        raise InvalidValueError(f"cron {short_repr(text)} is not valid: {what}{_ALLOWED.get(what, '')}") from None
    if _following(forward, 0) is None:
        raise InvalidValueError(f"cron {short_repr(text)} never matches: no such date in the next 50 years")
    clock = fields.split()[-5:-3] + fields.split()[:-5]
    return _Expression(forward, backward, fixed=not any(field.startswith("*") for field in clock))


def _following(parsed: Any, wall: int) -> int | None:
    """Return the second of a wall clock that comes after this one, or before it."""
    walk = copy(parsed)
    walk.dt = EPOCH + timedelta(seconds=wall)
    found = next(walk, None)
    return None if found is None else wall_seconds(found)
