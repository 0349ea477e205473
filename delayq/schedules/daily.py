"""Finds the times of most cron expressions quickly: of those that restrict neither the date nor the month.

cronsim finds the times of all others. It goes through the hours and minutes one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import product
from typing import Any

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
