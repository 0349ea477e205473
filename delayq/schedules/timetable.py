"""Works out when a schedule occurs: cron expressions, intervals, time zones and missed occurrences.

Pure: no clock and no Redis. All times are milliseconds since 1970. A cron expression occurs at whole seconds. cronsim
computes times of a wall clock that never changes. This module handles the clock changes of a zone:

* A *fixed* expression, whose second, minute and hour do not begin with `*`, names times of the wall clock. A time that
  is skipped when clocks go forward (by up to three hours) occurs right after the change. A time that comes twice occurs
  the first time. A time on a day that a zone skips does not occur.
* Any other expression follows the wall clock: skipped times do not occur, repeated times occur twice.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from delayq.errors import ConfigurationError, did_you_mean, short_repr
from delayq.schedules.changed_rule import OccurrenceRule
from delayq.schedules.daily import DailyTimes, daily_times
from delayq.times import LATEST

try:
    import cronsim
except ImportError:  # an extra
    cronsim = None  # type: ignore[assignment]

MAX_FIRED = 1000
"""The maximum of occurrences that fire at a time, and of missed ones that are sent after all."""
MAX_LATE = 60_000
"""Milliseconds that an occurrence may be late by default, if the next one is not due before."""
MAX_TEXT = 200
"""The maximum of characters of a cron expression."""
MAX_GAP = 3 * 3600
"""Seconds by which clocks go forward for the summer, at most; a larger change skips a day."""
MAX_REPEAT = 25 * 3600
"""Seconds after a change backward in which times may repeat, at most."""
STEP = 7 * 86_400
"""Seconds in which the clocks of a zone change at most once."""

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of the wall clock, as cronsim counts


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


class Cron:
    """Occurrences of a cron expression in a time zone; see the module's docstring."""

    def __init__(self, text: str, tz: str = "UTC") -> None:
        """Parse an expression of five fields, of six with seconds, or like `@daily`; see `check_zone` for `tz`."""
        if cronsim is None:
            raise ConfigurationError("cron expressions need cronsim: pip install 'delayq[cron]'")
        self._zone = check_zone(tz)
        if not isinstance(text, str) or not text.isascii() or not text.isprintable() or len(text) > MAX_TEXT:
            raise ConfigurationError(f"cron must be five fields such as '0 9 * * MON-FRI', not {short_repr(text)}")
        self._forward, self._backward, self._daily, self._fixed = _parse(text)

    def after(self, time: int) -> int | None:
        """Return the first occurrence after a time."""
        found = (self._fixed_after if self._fixed else self._counted_after)(time // 1000)
        return None if found is None else found * 1000

    def up_to(self, time: int) -> int | None:
        """Return the last occurrence that is not after a time."""
        found = (self._fixed_up_to if self._fixed else self._counted_up_to)(time // 1000)
        return None if found is None else found * 1000

    def gap(self, time: int) -> int:
        """Return the milliseconds from an occurrence to the next; `MAX_LATE` after the last one."""
        following = self.after(time)
        return MAX_LATE if following is None else following - time

    # A wall clock that never changes, in seconds since its 1970

    def _next(self, wall: int) -> int | None:
        return self._daily.after(wall) if self._daily else _following(self._forward, wall)

    def _last(self, wall: int) -> int | None:
        return _following(self._backward, wall + 1)

    # Clock changes of the zone

    def _offset(self, time: int) -> int:
        """Return the seconds by which the zone is ahead of UTC at a time."""
        return _whole(datetime.fromtimestamp(time, self._zone).utcoffset())

    def _change(self, since: int, until: int) -> int:
        """Return the second of the clock change between two times with different offsets."""
        before = self._offset(since)
        while until - since > 1:
            middle = (since + until) // 2
            if self._offset(middle) == before:
                since = middle
            else:
                until = middle
        return until

    def _resolved(self, wall: int) -> int | None:
        """Return when the wall clock first shows a time; if it skips the time, when the clock has changed."""
        face = (_EPOCH + timedelta(seconds=wall)).replace(tzinfo=self._zone)
        first, second = _whole(face.utcoffset()), _whole(face.replace(fold=1).utcoffset())
        time, gap = wall - first, second - first
        if gap <= 0:
            return time
        return None if gap > MAX_GAP else self._change(time - gap, time)

    def _fixed_after(self, time: int) -> int | None:
        wall: int | None = time + self._offset(time)
        while wall is not None and (wall := self._next(wall)) is not None:
            found = self._resolved(wall)
            if found is not None and found > time:
                return found
        return None

    def _fixed_up_to(self, time: int) -> int | None:
        # A clock that went back has already shown later times.
        wall: int | None = time + max(self._offset(time), self._offset(time - MAX_REPEAT)) + 1
        while wall is not None and (wall := self._last(wall - 1)) is not None:
            found = self._resolved(wall)
            if found is not None and found <= time:
                return found
        return None

    def _counted_after(self, time: int) -> int | None:
        while True:
            ahead = self._offset(time + 1)
            wall = self._next(time + ahead)
            if wall is None:
                return None
            found = wall - ahead
            at = time + 1
            while at < found and self._offset(min(at + STEP, found)) == ahead:
                at = min(at + STEP, found)
            if at >= found:
                return found
            time = self._change(at, min(at + STEP, found)) - 1

    def _counted_up_to(self, time: int) -> int | None:
        while True:
            ahead = self._offset(time)
            wall = self._last(time + ahead)
            if wall is None:
                return None
            found = wall - ahead
            at = time
            while at > found and self._offset(max(at - STEP, found)) == ahead:
                at = max(at - STEP, found)
            if at <= found:
                return found
            time = self._change(max(at - STEP, found), at) - 1


class _Expression(NamedTuple):
    """A cron expression, parsed: what walks a wall clock forward and backward, and whether it is fixed."""

    forward: Any
    backward: Any
    daily: DailyTimes | None
    fixed: bool


@lru_cache(maxsize=4096)  # many schedules have few expressions, and parsing takes longer than finding a time
def _parse(text: str) -> _Expression:
    """Parse a cron expression; raises `ConfigurationError` if it is not valid or never matches."""
    fields = " ".join(_NAMED.get(text.strip().lower(), text).split())
    try:
        forward, backward = cronsim.CronSim(fields, _EPOCH), cronsim.CronSim(fields, _EPOCH, reverse=True)
    except (cronsim.CronSimError, AssertionError) as error:
        what = str(error).lower() or "bad field"
        raise ConfigurationError(f"cron {short_repr(text)} is not valid: {what}") from None
    if _following(forward, 0) is None:
        raise ConfigurationError(f"cron {short_repr(text)} never matches: no such date in the next 50 years")
    clock = fields.split()[-5:-3] + fields.split()[:-5]
    return _Expression(forward, backward, daily_times(forward), not any(field.startswith("*") for field in clock))


def _following(parsed: Any, wall: int) -> int | None:
    """Return the second of a wall clock that comes after this one, or before it."""
    walk = copy(parsed)
    walk.dt = _EPOCH + timedelta(seconds=wall)
    found = next(walk, None)
    return None if found is None else _seconds(found)


class DueOccurrences(NamedTuple):
    """The occurrences to fire now, and the next one (None if there is none)."""

    times: list[int]
    next: int | None
    missed: bool
    """Whether some are later than `late_after`."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """A rule with a start, an end and a count, and what to do with missed occurrences."""

    rule: OccurrenceRule
    start: int | None = None
    end: int | None = None
    count: int | None = None
    makes_up: int = 1
    """How many missed occurrences fire after all: the latest ones."""
    late_after: int | None = None
    """Milliseconds after which an occurrence counts as missed; None for `MAX_LATE`, or the gap to the next if less."""

    def after(self, time: int, fired: int = 0) -> int | None:
        """Return the first occurrence after a time, if `fired` occurrences have been fired before."""
        if self.count is not None and fired >= self.count:
            return None
        found = self.rule.after(time if self.start is None else max(time, self.start - 1))
        return None if found is None or found > self._end else found

    def upcoming(self, at: int | None, n: int, fired: int = 0) -> list[int]:
        """Return up to `n` occurrences, beginning with `at`."""
        found: list[int] = []
        while at is not None and len(found) < n:
            found.append(at)
            at = self.after(at, fired + len(found))
        return found

    def due(self, at: int, now: int, fired: int = 0, *, ahead: int = 0, limit: int = MAX_FIRED) -> DueOccurrences:
        """Return which occurrences to fire, beginning with `at`, if `fired` occurrences have been fired before.

        Includes occurrences up to `ahead` milliseconds from now, and at most `limit`. The work is bounded, however
        many were missed.
        """
        limit = limit if self.count is None else min(limit, self.count - fired)
        on_time = now - self.tolerance(at)
        missed = at < on_time
        times = self._missed(at, on_time) if missed else []
        upcoming = self.after(on_time - 1) if missed else at
        while upcoming is not None and upcoming <= now + ahead and len(times) < limit:
            times.append(upcoming)
            upcoming = self.after(upcoming)
        if len(times) > limit:
            times, upcoming = times[:limit], times[limit]
        done = self.count is not None and fired + len(times) >= self.count
        return DueOccurrences(times, None if done else upcoming, missed)

    def tolerance(self, at: int) -> int:
        """Return the milliseconds after which the occurrence at this time counts as missed."""
        return min(MAX_LATE, self.rule.gap(at)) if self.late_after is None else self.late_after

    def _missed(self, at: int, on_time: int) -> list[int]:
        """Return the missed occurrences that fire after all, from `at` on."""
        found: list[int] = []
        time = self.rule.up_to(min(on_time - 1, self._end)) if self.makes_up else None
        while time is not None and time >= at and len(found) < self.makes_up:
            found.append(time)
            time = self.rule.up_to(time - 1)
        return found[::-1]

    @property
    def _end(self) -> int:
        return LATEST if self.end is None else self.end


def check_zone(tz: str) -> ZoneInfo:
    """Return the zone of an IANA name such as `Europe/Berlin`; raises `ConfigurationError` for any other name."""
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, TypeError, AttributeError, OSError):
        raise ConfigurationError(f"unknown time zone {short_repr(tz)}{_hint(tz)}") from None


def _hint(tz: object) -> str:
    from zoneinfo import available_timezones

    zones = available_timezones()
    return did_you_mean(tz, zones) if zones else ": this system knows none; pip install tzdata"


def _seconds(wall: datetime) -> int:
    return _whole(wall - _EPOCH)


def _whole(time: timedelta | None) -> int:
    return 0 if time is None else time.days * 86_400 + time.seconds
