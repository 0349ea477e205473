"""When a schedule occurs: the arithmetic of cron expressions, intervals, time zones and missed occurrences.

Pure: no clock and no Redis. All times are milliseconds since 1970, occurrences of a cron expression whole seconds.
cronsim does the calendar of a wall clock that is never set; what a zone does to its clocks is done here:

* A *fixed* expression, whose second, minute and hour do not begin with `*`, names times of the wall clock. One that is
  skipped when clocks go forward (by up to three hours) occurs when they have gone forward, one that comes twice occurs
  the first time. What falls on a day that a zone leaves out does not occur.
* Any other counts on as the clock is read: nothing while it is skipped, everything again when it comes twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from delayq.clock import LATEST
from delayq.errors import ConfigurationError, shown

MOST_FIRED = 1000
"""Occurrences fired at a time, and missed ones made up for at most."""
LONGEST_TEXT = 200
"""Characters of a cron expression."""
LONGEST_GAP = 3 * 3600
"""Seconds by which clocks are put forward for the summer; by more a zone leaves out a day."""
ODDEST = 25 * 3600
"""Seconds after which no clock that was put back shows a time again."""
STEP = 7 * 86_400
"""Seconds within which clocks are not set twice."""

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


class Rule(Protocol):
    """What occurs again and again."""

    def after(self, time: int) -> int | None:
        """Return the first occurrence after a time."""
        ...

    def upto(self, time: int) -> int | None:
        """Return the last occurrence that is not after a time."""
        ...


class Interval:
    """Occurrences so many milliseconds apart, counted from an anchor."""

    def __init__(self, every: int, anchor: int = 0) -> None:
        """Occur every so many milliseconds: at the anchor, after it and before it."""
        self._every = every
        self._anchor = anchor

    def after(self, time: int) -> int | None:
        """Return the first occurrence after a time."""
        return time + self._every - (time - self._anchor) % self._every

    def upto(self, time: int) -> int | None:
        """Return the last occurrence that is not after a time."""
        return time - (time - self._anchor) % self._every


class Cron:
    """Occurrences of a cron expression in a time zone, as the module's docstring says."""

    def __init__(self, text: str, tz: str = "UTC") -> None:
        """Read an expression of five fields, or six with seconds, or such as `@daily`; see `check_zone` for `tz`."""
        self._sim = _simulator()
        self._zone = check_zone(tz)
        if not isinstance(text, str) or not text.isascii() or not text.isprintable() or len(text) > LONGEST_TEXT:
            raise ConfigurationError(f"cron must be five fields such as '0 9 * * MON-FRI', not {shown(text)}")
        self._fields = " ".join(_NAMED.get(text.strip().lower(), text).split())
        try:
            self._sim.CronSim(self._fields, _EPOCH)
        except (self._sim.CronSimError, AssertionError) as error:
            what = str(error).lower() or "bad field"
            raise ConfigurationError(f"cron {shown(text)} cannot be: {what}") from None
        clock = self._fields.split()[-5:-3] + self._fields.split()[:-5]
        self._fixed = not any(field.startswith("*") for field in clock)
        if self._next(0) is None:
            raise ConfigurationError(f"cron {shown(text)} cannot be: no such day in fifty years")

    def after(self, time: int) -> int | None:
        """Return the first occurrence after a time."""
        found = (self._fixed_after if self._fixed else self._counted_after)(time // 1000)
        return None if found is None else found * 1000

    def upto(self, time: int) -> int | None:
        """Return the last occurrence that is not after a time."""
        found = (self._fixed_upto if self._fixed else self._counted_upto)(time // 1000)
        return None if found is None else found * 1000

    # Of a wall clock that is never set, in seconds since its 1970

    def _next(self, wall: int) -> int | None:
        found = next(self._sim.CronSim(self._fields, _EPOCH + timedelta(seconds=wall)), None)
        return None if found is None else _seconds(found)

    def _last(self, wall: int) -> int | None:
        start = _EPOCH + timedelta(seconds=wall + 1)
        found = next(self._sim.CronSim(self._fields, start, reverse=True), None)
        return None if found is None else _seconds(found)

    # Where clocks are set

    def _offset(self, time: int) -> int:
        """Return by how many seconds the zone's clocks are ahead of UTC at a time."""
        return _whole(datetime.fromtimestamp(time, self._zone).utcoffset())

    def _change(self, since: int, until: int) -> int:
        """Return the second of the one change between two times with different offsets."""
        before = self._offset(since)
        while until - since > 1:
            middle = (since + until) // 2
            if self._offset(middle) == before:
                since = middle
            else:
                until = middle
        return until

    def _resolved(self, wall: int) -> int | None:
        """Return when the clocks show a time first; where it is skipped, when they have gone on."""
        face = (_EPOCH + timedelta(seconds=wall)).replace(tzinfo=self._zone)
        first, second = _whole(face.utcoffset()), _whole(face.replace(fold=1).utcoffset())
        time, gap = wall - first, second - first
        if gap <= 0:
            return time
        return None if gap > LONGEST_GAP else self._change(time - gap, time)

    def _fixed_after(self, time: int) -> int | None:
        wall: int | None = time + self._offset(time)
        while wall is not None and (wall := self._next(wall)) is not None:
            found = self._resolved(wall)
            if found is not None and found > time:
                return found
        return None

    def _fixed_upto(self, time: int) -> int | None:
        # A clock that was put back has shown later times already.
        wall: int | None = time + max(self._offset(time), self._offset(time - ODDEST)) + 1
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

    def _counted_upto(self, time: int) -> int | None:
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


class Taken(NamedTuple):
    """Occurrences to be fired now, and the one that comes next, None if none does."""

    times: list[int]
    next: int | None
    missed: bool
    """Whether some were older than `late_after`."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """A rule between two times, for so many occurrences; and what becomes of those that were missed."""

    rule: Rule
    start: int | None = None
    end: int | None = None
    count: int | None = None
    makes_up: int = 1
    """How many of the missed are fired after all: the latest ones."""
    late_after: int = 60_000
    """Milliseconds after which an occurrence counts as missed."""

    def after(self, time: int, fired: int = 0) -> int | None:
        """Return the first occurrence after a time, when so many have been fired."""
        if self.count is not None and fired >= self.count:
            return None
        found = self.rule.after(time if self.start is None else max(time, self.start - 1))
        return None if found is None or found > self._end else found

    def upcoming(self, at: int | None, n: int, fired: int = 0) -> list[int]:
        """Return up to `n` occurrences, the first of which is known."""
        found: list[int] = []
        while at is not None and len(found) < n:
            found.append(at)
            at = self.after(at, fired + len(found))
        return found

    def take(self, at: int, now: int, fired: int = 0, *, ahead: int = 0, most: int = MOST_FIRED) -> Taken:
        """Return what is to be fired of the occurrences from `at` on, of which `fired` have been before.

        Those up to `ahead` milliseconds after now are taken already, and `most` at a time. However many were missed,
        the work is bounded.
        """
        most = most if self.count is None else min(most, self.count - fired)
        on_time = now - self.late_after
        missed = at < on_time
        times = self._missed(at, on_time) if missed else []
        upcoming = self.after(on_time - 1) if missed else at
        while upcoming is not None and upcoming <= now + ahead and len(times) < most:
            times.append(upcoming)
            upcoming = self.after(upcoming)
        if len(times) > most:
            times, upcoming = times[:most], times[most]
        done = self.count is not None and fired + len(times) >= self.count
        return Taken(times, None if done else upcoming, missed)

    def _missed(self, at: int, on_time: int) -> list[int]:
        """Return those of the missed that are fired after all, from `at` on."""
        found: list[int] = []
        time = self.rule.upto(min(on_time - 1, self._end)) if self.makes_up else None
        while time is not None and time >= at and len(found) < self.makes_up:
            found.append(time)
            time = self.rule.upto(time - 1)
        return found[::-1]

    @property
    def _end(self) -> int:
        return LATEST if self.end is None else self.end


def check_zone(tz: str) -> ZoneInfo:
    """Return the zone of an IANA name such as `Europe/Berlin`; `ConfigurationError` for any other."""
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, TypeError, AttributeError, OSError):
        raise ConfigurationError(f"unknown time zone {shown(tz)}{_meant(tz)}") from None


def _meant(tz: object) -> str:
    import difflib
    from zoneinfo import available_timezones

    known = {name.lower(): name for name in available_timezones()}
    if not known:
        return ": this system knows none; pip install tzdata"
    close = difflib.get_close_matches(str(tz)[:100].lower(), known, n=1)
    return f", did you mean {known[close[0]]!r}?" if close else ""


@cache
def _simulator() -> Any:
    try:
        import cronsim
    except ImportError:
        raise ConfigurationError("cron expressions need cronsim: pip install 'delayq[cron]'") from None
    return cronsim


def _seconds(wall: datetime) -> int:
    return _whole(wall - _EPOCH)


def _whole(time: timedelta | None) -> int:
    return 0 if time is None else time.days * 86_400 + time.seconds
