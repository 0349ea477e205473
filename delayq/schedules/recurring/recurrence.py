"""Finds the times of recurrence rules (RRULE) on a wall clock that never changes; dateutil knows what the rules mean.

A rule is followed from the period (the year, month, week, day or hour) that a time is in, so the start may be long ago.
Where the rule allows it, dateutil finds only the days, whose times of day are the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice, product
from math import prod
from typing import Any

from delayq.errors import ConfigurationError, InvalidValueError, short_repr
from delayq.schedules.recurring.local_times import EPOCH, LocalTimes, check_zone, wall_seconds
from delayq.schedules.recurring.rrule_parts import FREQUENCIES, RRuleParts, read_rrule

try:  # here, and not in the thread of a consumer: a fork during an import leaves the child with a lock
    from dateutil import rrule

    from delayq.schedules.recurring import bounded_rrule
except ImportError:  # an extra
    bounded_rrule = None  # type: ignore[assignment]

LAST_YEAR = 2199
"""The last year in which something can be due."""
_DAY = 86_400_000
_PERIODS = 4
"""How many periods are looked at first for the last time."""
_HOURLY = FREQUENCIES.index("HOURLY")
_SECONDS = {"WEEKLY": 7 * 86_400, "DAILY": 86_400, "HOURLY": 3600}
_MONTHS = {"YEARLY": 12, "MONTHLY": 1}
_TIMES = ["BYHOUR", "BYMINUTE", "BYSECOND"]


class RRule(LocalTimes):
    """Occurrences of an RRULE in a time zone: `fixed` like cron, see `local_times`, unless it recurs hourly."""

    def __init__(self, text: str, tz: str, start: int | None) -> None:
        """Count from a start (ms), or from the midnight with which 1970 began."""
        if bounded_rrule is None:
            raise ConfigurationError("an rrule needs python-dateutil: pip install 'delayq[rrule]'")
        zone, parts = check_zone(tz), read_rrule(text)
        times = prod(len(parts.numbers.get(name, [0])) for name in _TIMES)
        if times > bounded_rrule.MAX_TIMES:
            raise InvalidValueError(f"rrule recurs {times:,} times a day, the limit is {bounded_rrule.MAX_TIMES:,}")
        if parts.count is not None and start is None:
            raise InvalidValueError(f"rrule part 'COUNT={parts.count}' needs a start, from which to count")
        self._until = parts.until
        wall = Recurrence(parts, self.wall(start, zone), bounded_rrule)
        super().__init__(wall, zone, fixed=parts.frequency != "HOURLY", start=start)
        before = -_DAY if start is None else start - 1
        if not wall.occurs() or self.after(before) is None:
            ends = parts.until is not None or parts.until_wall is not None
            end = "from its start to its UNTIL" if ends else f"until {LAST_YEAR}"
            raise InvalidValueError(f"rrule {short_repr(text)} never matches: no such time {end}")

    def after(self, time: int) -> int | None:
        """Return the first occurrence after a time."""
        found = super().after(time)
        return None if found is None or (self._until is not None and found > self._until) else found

    def up_to(self, time: int) -> int | None:
        """Return the last occurrence that is not after a time."""
        return super().up_to(time if self._until is None else min(time, self._until))


class Recurrence:
    """The times of a rule, in seconds of a wall clock that never changes."""

    def __init__(self, parts: RRuleParts, start: int, library: Any) -> None:
        """Recur from a start, which need not be an occurrence itself; `library` is `bounded_rrule`."""
        self._start = start
        self._parts = parts
        self._library = library
        begin = _datetime(start)
        options = self._read_options(parts, begin)
        # dateutil picks from all times of a period, and an hour is a period itself: then it needs to know the times.
        self._times = [0]
        if parts.frequency != "HOURLY" and "BYSETPOS" not in parts.numbers:
            clock = product(*(options[name.lower()] for name in _TIMES))
            self._times = [3600 * hour + 60 * minute + second for hour, minute, second in clock]
            options |= {"byhour": [0], "byminute": [0], "bysecond": [0]}
        self._arguments = options
        self._first_period = self._period_of(begin)

    @cached_property
    def _last(self) -> int | None:
        """The last time; None if there is none."""
        until, count = self._parts.until_wall, self._parts.count
        if count is None:
            return until
        found = list(islice(self._from(0, self._start), count))
        last = found[-1] if found else self._start - 1
        return last if until is None else min(last, until)

    def times(self, first: int, last_year: int, count: Callable[[int], None]) -> Iterator[int]:
        """Yield the times from `first` on, in order, at least to the end of a year; `count` may end what takes long.

        It is called with steps, of which there are as many as times and days to look at.
        """
        first, until = max(first, self._start), self._parts.until_wall
        if self._parts.count is None:
            found = self._from(self._index(first), first, last_year, count)
        else:
            found = islice(self._from(0, self._start, last_year, count), self._parts.count)
        for wall in found:
            if until is not None and wall > until:
                return
            if wall >= first:
                yield wall

    def occurs(self) -> bool:
        """Return whether the rule has an occurrence at all."""
        return self.after(self._start - 1) is not None

    def after(self, wall: int) -> int | None:
        """Return the first time after a time."""
        wall = max(wall, self._start - 1)
        if self._last is not None and wall >= self._last:
            return None
        found = next(self._from(self._index(wall), wall + 1), None)
        return None if found is None or (self._last is not None and found > self._last) else found

    def up_to(self, wall: int) -> int | None:
        """Return the last time that is not after a time."""
        wall = wall if self._last is None else min(wall, self._last)
        last, periods = self._index(wall), _PERIODS
        while wall >= self._start:
            found = None
            for at in self._from(max(0, last + 1 - periods), self._start, _datetime(wall).year):
                if at > wall:
                    break
                found = at
            if found is not None or periods > last:
                return found
            periods *= 4
        return None

    def _from(
        self, index: int, since: int, last_year: int = LAST_YEAR, count: Callable[[int], None] | None = None
    ) -> Iterator[int]:
        """Return the times of a period and those after it, in order, from a time on, and at least to a year."""
        try:
            rule = rrule.rrule(dtstart=self._begin(index), **self._arguments)
        except ValueError:  # hours that the interval never reaches
            return
        times, library = self._times, self._library
        count = count or _limited(library.MAX_STEPS)

        def follow(year: int) -> None:
            count(library.DAYS_OF_A_MONTH)
            if year > last_year:
                raise library.NoMoreDays

        try:
            for found in library.matches(rule, follow):
                count(1)
                day = wall_seconds(found)
                if day + times[-1] >= since:
                    yield from (day + time for time in times[bisect_left(times, since - day) :])
        except library.NoMoreDays:
            return

    def _index(self, wall: int) -> int:
        """Return the number of the period that has a time, or of the last one before, counted by the interval."""
        return max(0, (self._period_of(_datetime(wall)) - self._first_period) // self._parts.interval)

    def _period_of(self, at: datetime) -> int:
        frequency = self._parts.frequency
        if frequency in _MONTHS:
            return (at.year * 12 + at.month - 1) // _MONTHS[frequency]
        # The first day of 1970 was a Thursday.
        shift = (3 - self._parts.week_start) % 7 * 86_400 if frequency == "WEEKLY" else 0
        return (wall_seconds(at) + shift) // _SECONDS[frequency]

    def _begin(self, index: int) -> datetime:
        frequency = self._parts.frequency
        period = self._first_period + index * self._parts.interval
        if frequency in _MONTHS:
            year, month = divmod(period * _MONTHS[frequency], 12)
            return datetime(year, month + 1, 1)  # noqa: DTZ001 - of the wall clock
        shift = (3 - self._parts.week_start) % 7 * 86_400 if frequency == "WEEKLY" else 0
        return _datetime(period * _SECONDS[frequency] - shift)

    @staticmethod
    def _read_options(parts: RRuleParts, begin: datetime) -> dict[str, Any]:
        """Return the arguments of dateutil, with all that the start says, so that the rule may begin elsewhere."""
        frequency = FREQUENCIES.index(parts.frequency)
        options: dict[str, Any] = {name.lower(): values for name, values in parts.numbers.items()}
        if parts.days:
            options["byweekday"] = [rrule.weekdays[day](n or None) for day, n in parts.days]
        elif not {"BYWEEKNO", "BYYEARDAY", "BYMONTHDAY"} & set(parts.numbers):
            if parts.frequency == "YEARLY":
                options.setdefault("bymonth", [begin.month])
            if parts.frequency in _MONTHS:
                options["bymonthday"] = [begin.day]
            if parts.frequency == "WEEKLY":
                options["byweekday"] = [begin.weekday()]
        for name, value in zip(_TIMES, (begin.hour, begin.minute, begin.second), strict=True):
            if not (name == "BYHOUR" and frequency == _HOURLY):
                options.setdefault(name.lower(), [value])
        return {**options, "freq": frequency, "interval": parts.interval, "wkst": parts.week_start}


def _limited(most: int) -> Callable[[int], None]:
    """Return a function that adds up steps, and raises `ConfigurationError` if they become too many."""
    steps = 0

    def count(more: int) -> None:
        nonlocal steps
        steps += more
        if steps > most:
            raise ConfigurationError("rrule takes too long: it matches too many times")

    return count


def _datetime(wall: int) -> datetime:
    return EPOCH + timedelta(seconds=wall)
