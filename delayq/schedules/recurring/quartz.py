"""The forms of Quartz in the day fields of a cron expression, which cronsim does not know.

`15W` is the weekday nearest to the 15th, `L-3` three days before the last of the month, `L-3W` the weekday nearest to
that, `FRIL` the last Friday, and `?` any day. Weekdays keep the numbers of cron: Sunday is 0.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, datetime
from functools import lru_cache
from typing import NamedTuple

from cronsim import CronSim, CronSimError

SATURDAY = 5
"""As Python counts."""
_DAY = re.compile(r"(?:(?P<day>\d{1,2})|L-(?P<ahead>\d{1,2}))(?P<nearest>W)?")
_LAST_WEEKDAY = re.compile(r"\b(SUN|MON|TUE|WED|THU|FRI|SAT)L\b")
_NUMBERS = {name: str(number) for number, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])}
_QUARTZ = re.compile(r"\?|L-|\dW|[A-Z]{3}L")
_MONTH = 31


class QuartzDay(NamedTuple):
    """A day of a month that depends on the month."""

    day: int
    """The day of the month; the number of days before its last one if that is negative or 0."""
    nearest: bool
    """Whether the weekday nearest to it is meant, in the same month."""

    def of(self, year: int, month: int) -> int:
        """Return the day in a month; 0 if the month does not have it."""
        weekday, days = monthrange(year, month)
        day = self.day if self.day > 0 else days + self.day
        if not 1 <= day <= days:
            return 0
        excess = (weekday + day - 1) % 7 - SATURDAY
        if not self.nearest or excess < 0:
            return day
        if excess == 0:
            return day - 1 if day > 1 else day + 2
        return day + 1 if day < days else day - 2


class QuartzSim(CronSim):
    """A cron expression that may have these days; it walks a wall clock like cronsim, which matches all else."""

    def __init__(self, expression: str, start: datetime, *, reverse: bool = False) -> None:
        """Parse an expression; raises `CronSimError` that names the field if it is not valid."""
        fields = expression.upper().split()
        days: set[QuartzDay] = set()
        plain: list[str] = []
        if len(fields) in (5, 6):
            if fields[-3] == fields[-1] == "?":
                raise CronSimError("only one of day-of-month and day-of-week may be ?")
            fields[-1] = _LAST_WEEKDAY.sub(lambda found: f"{_NUMBERS[found[1]]}L", fields[-1])
            for term in fields[-3].split(","):
                day = _quartz_day(term)
                if day is None:
                    plain.append(term)
                else:
                    days.add(day)
            if days:  # cronsim wants at least one day
                fields[-3] = ",".join(plain) or "L"
            for at in (-3, -1):
                fields[at] = "*" if fields[at] == "?" else fields[at]
        super().__init__(" ".join(fields), start, reverse)
        if days and not plain:
            self.days = set()
        self._quartz = frozenset(days)

    def match_dom(self, d: date) -> bool:
        """Return whether a date matches the day of the month."""
        return super().match_dom(d) or d.day in _days(self._quartz, d.year, d.month)


@lru_cache(maxsize=256)
def _days(days: frozenset[QuartzDay], year: int, month: int) -> frozenset[int]:
    return frozenset(day.of(year, month) for day in days)


def _quartz_day(term: str) -> QuartzDay | None:
    found = _DAY.fullmatch(term)
    if found is None or (found["day"] and not found["nearest"]):
        return None
    day = int(found["day"] or 0) or -int(found["ahead"] or 0)
    if not 1 <= abs(day) <= _MONTH - (day < 0):
        raise CronSimError("bad day-of-month")
    return QuartzDay(day, nearest=bool(found["nearest"]))


def simulate(expression: str, start: datetime, *, reverse: bool = False) -> CronSim:
    """Return what walks a wall clock from a time on; raises `CronSimError` if the expression is not valid."""
    kind = QuartzSim if _QUARTZ.search(expression.upper()) else CronSim
    return kind(expression, start, reverse=reverse)
