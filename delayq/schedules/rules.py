"""The rules that say when a schedule occurs: elapsed time, days of the wall clock, cron expressions and RRULEs."""

from __future__ import annotations

from delayq.schedules.cron import Cron
from delayq.schedules.recurring.changed_rule import OccurrenceRule
from delayq.schedules.recurring.local_times import LocalTimes, check_zone
from delayq.schedules.recurring.recurrence import RRule

DAY = 86_400
"""Seconds of a day of a wall clock that never changes."""


class Interval:
    """Occurrences at a fixed interval in milliseconds, counted from an anchor."""

    def __init__(self, every: int, anchor: int = 0) -> None:
        """Occur every `every` milliseconds: at the anchor, after it and before it."""
        self._every = every
        self._anchor = anchor

    def after(self, time: int) -> int:
        """Return the first occurrence after a time."""
        return time + self._every - (time - self._anchor) % self._every

    def up_to(self, time: int) -> int:
        """Return the last occurrence that is not after a time."""
        return time - (time - self._anchor) % self._every

    def gap(self, _: int) -> int:
        """Return the milliseconds from an occurrence to the next."""
        return self._every


class WallDays(LocalTimes):
    """Occurrences every so many days at the same local time; a fixed rule, see `local_times`."""

    def __init__(self, days: int, tz: str, start: int | None) -> None:
        """Count the days from a start (ms), or from the midnight with which 1970 began."""
        zone = check_zone(tz)
        super().__init__(Interval(days * DAY, self.wall(start, zone)), zone, fixed=True, start=start)


def make_rule(*, cron: str, every: int, wall: bool, rrule: str, tz: str, start: int | None) -> OccurrenceRule:
    """Return the rule of a definition; raises `ConfigurationError` if it is not valid or never occurs."""
    if cron:
        return Cron(cron, tz)
    if rrule:
        return RRule(rrule, tz, start)
    return WallDays(every // (1000 * DAY), tz, start) if wall else Interval(every, start or 0)
