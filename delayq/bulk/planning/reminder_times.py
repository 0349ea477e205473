"""When the reminders of a row are due, by the rules. Times are microseconds since 1970.

They are those of an instant, or of a wall clock as if it were UTC. A wall-clock time that a clock change skips is moved
on by as much as the clock; of one that occurs twice, the first is used.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from delayq.bulk.planning.reminder_rules import DAY, Rule

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock
_DAY = DAY * 1000
_WEEK = 7 * _DAY
_SECOND = 1_000_000
_OFFSET = re.compile(r"([+-])(0\d|1[0-7]):([0-5]\d)")
_MONDAY = 4 * _DAY
"""Day 0 was a Thursday."""


class RuleTimes:
    """The due times of one rule."""

    def __init__(self, rule: Rule) -> None:
        self._shift, self._step, self._repeats = rule.shift, rule.step, rule.repeats
        self._clock = None if rule.clock is None else rule.clock * 1000
        self._back = rule.back
        self._places = rule.clock is not None or any(rule.back)

    def of(self, time: int, zone: str) -> list[int]:
        """Return the due times for a row's time, in order and without doubles."""
        first = _moved(time, self._shift.days, self._shift.milliseconds, zone)
        days, milliseconds = self._step
        times = [_moved(first, days * n, milliseconds * n, zone) for n in range(self._repeats)]
        return sorted({self._placed(one, zone) for one in times} if self._places else set(times))

    def _placed(self, time: int, zone: str) -> int:
        """Set the wall-clock time, and move back to an allowed day."""
        wall = to_wall(time, zone)
        clock = wall % _DAY
        day = wall - clock
        back = self._back[(day - _MONDAY) % _WEEK // _DAY]
        # Unmoved times keep their instant: from the wall clock, the second of two equal times would become the first.
        if self._clock is None and not back:
            return time
        return from_wall(day - back * _DAY + (clock if self._clock is None else self._clock), zone)


def _moved(time: int, days: int, milliseconds: int, zone: str) -> int:
    """Add calendar days, then elapsed time."""
    if days:
        time = from_wall(to_wall(time, zone) + days * _DAY, zone)
    return time + milliseconds * 1000


def to_wall(time: int, zone: str) -> int:
    """Return what the wall clocks of a zone show at an instant."""
    return time + _offset_at(time // _SECOND, zone) * _SECOND


def from_wall(wall: int, zone: str) -> int:
    """Return when the wall clocks of a zone show a time."""
    return wall - _offset_of_wall(wall // _SECOND, zone) * _SECOND


@lru_cache(maxsize=1 << 12)
def zone_of(name: str) -> tzinfo:
    """Return a zone by its IANA name, or by an offset such as +05:45; raises `KeyError`, `ValueError` or `OSError`."""
    if found := _OFFSET.fullmatch(name):
        sign, hours, minutes = found.groups()
        return timezone((-1 if sign == "-" else 1) * timedelta(hours=int(hours), minutes=int(minutes)))
    return ZoneInfo(name)


@lru_cache(maxsize=1 << 16)
def _offset_at(second: int, zone: str) -> int:
    at = (_EPOCH + timedelta(seconds=second)).replace(tzinfo=UTC).astimezone(zone_of(zone))
    return _seconds(at)


@lru_cache(maxsize=1 << 16)
def _offset_of_wall(second: int, zone: str) -> int:
    # The first of two equal times; of a skipped one, the offset before the change, which moves it on.
    return _seconds((_EPOCH + timedelta(seconds=second)).replace(tzinfo=zone_of(zone), fold=0))


def _seconds(at: datetime) -> int:
    offset = at.utcoffset()
    return 0 if offset is None else int(offset.total_seconds())
