"""Follows the recurrence rules of dateutil in bounded time; what the rules mean is left to dateutil.

dateutil itself looks for the next day of a rule until the year 9999.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from types import FunctionType
from typing import Any

from dateutil import rrule

MAX_TIMES = 1_440
"""Maximal occurrences on one day: the minutes of it."""
MAX_STEPS = 250_000
"""Maximal occurrences and days to look at for one rule, about half a second; one per hour for 27 years."""
DAYS_OF_A_MONTH = 30
"""The steps that the days of a month, or of a year by the rules for the year, count for."""


class NoMoreDays(Exception):  # noqa: N818 - ends a loop
    """The rule has been followed as far as needed."""


class _Days(rrule._iterinfo):  # type: ignore[misc]  # noqa: SLF001 - the library has no types
    """The days that a rule may match, a month or a year at a time, up to the last year that is needed."""

    def rebuild(self, year: int, month: int) -> None:
        self.rrule.follow(year)
        super().rebuild(year, month)


_iterate: Any = FunctionType(rrule.rrule._iter.__code__, vars(rrule) | {"_iterinfo": _Days})  # noqa: SLF001
"""dateutil's own search for the dates of a rule, but over `_Days`: it has no end of its own."""


def matches(rule: Any, follow: Callable[[int], None]) -> Iterator[datetime]:
    """Return the times of a rule; `follow` is called with the year of each month or year, and may raise to end it."""
    rule.follow = follow
    found: Iterator[datetime] = _iterate(rule)
    return found
