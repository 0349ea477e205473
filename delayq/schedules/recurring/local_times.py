"""Finds the times of a rule of the wall clock in a time zone, whose clocks change.

Pure: no clock and no Redis. Times are milliseconds since 1970; those of a wall clock that never changes are seconds of
its own 1970.

* A *fixed* rule names times of the wall clock. A time that is skipped when clocks go forward (by up to three hours)
  occurs right after the change. A time that comes twice occurs the first time. A time on a day that a zone skips does
  not occur.
* Any other rule follows the wall clock: skipped times do not occur, repeated times occur twice.
"""

from __future__ import annotations

import re
import zoneinfo
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Protocol
from zoneinfo import ZoneInfo

from delayq.errors import InvalidValueError, did_you_mean, short_repr

_RELEASE = re.compile(r"(?:19|20)\d\d[a-z]+")


def releases() -> list[str]:
    """Return what is known of the data in each place where it is looked up, the first one first.

    That is the system's, then the package that replaces it: its release, or when it was installed.
    """
    found = [_release(folder) for folder in map(Path, zoneinfo.TZPATH) if folder.is_dir()]
    try:
        from tzdata import IANA_VERSION
    except ImportError:
        return found
    return [*found, IANA_VERSION]


@cache
def zone_release() -> str:
    """Return the release of the data that this process uses, '' if it is not known. Releases sort as texts."""
    first = releases()[:1]
    return first[0] if first and _RELEASE.fullmatch(first[0]) else ""


def _release(folder: Path) -> str:
    for name in ("tzdata.zi", "+VERSION"):
        try:
            with (folder / name).open(encoding="utf-8", errors="replace") as file:
                line = file.readline(80).strip()
        except OSError:
            continue
        found = _RELEASE.search(line)
        return found[0] if found else line
    return f"{datetime.fromtimestamp(folder.stat().st_mtime):%Y%m%d%H%M%S}"  # noqa: DTZ006 - only compared


MAX_LATE = 60_000
"""Milliseconds that an occurrence may be late by default, if the next one is not due before."""
MAX_GAP = 3 * 3600
"""Seconds by which clocks go forward for the summer, at most; a larger change skips a day."""
MAX_REPEAT = 25 * 3600
"""Seconds after a change backward in which times may repeat, at most."""
STEP = 7 * 86_400
"""Seconds in which the clocks of a zone change at most once."""
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of the wall clock


class WallTimes(Protocol):
    """A rule of a wall clock that never changes, in seconds since its 1970."""

    def after(self, wall: int) -> int | None:
        """Return the first time after a time."""

    def up_to(self, wall: int) -> int | None:
        """Return the last time that is not after a time."""


class LocalTimes:
    """The times of a rule of the wall clock in a zone; see the module's docstring."""

    def __init__(self, wall: WallTimes, zone: ZoneInfo, *, fixed: bool, start: int | None = None) -> None:
        """Occur at these times; `start` is a time (ms) that occurs at once if the rule has what the clock shows then.

        The rule occurs at the same milliseconds of a second as `start`.
        """
        self._wall = wall
        self._zone = zone
        self._fixed = fixed
        self._millis = 0 if start is None else start % 1000
        self._start = None if start is None else start // 1000

    @staticmethod
    def wall(time: int | None, zone: ZoneInfo) -> int:
        """Return what the clocks of a zone show at a time (ms), in seconds since their 1970; 0 for None."""
        return 0 if time is None else time // 1000 + _offset(time // 1000, zone)

    def after(self, time: int) -> int | None:
        """Return the first occurrence after a time."""
        found = (self._fixed_after if self._fixed else self._counted_after)((time - self._millis) // 1000)
        return None if found is None else found * 1000 + self._millis

    def up_to(self, time: int) -> int | None:
        """Return the last occurrence that is not after a time."""
        found = (self._fixed_up_to if self._fixed else self._counted_up_to)((time - self._millis) // 1000)
        return None if found is None else found * 1000 + self._millis

    def gap(self, time: int) -> int:
        """Return the milliseconds from an occurrence to the next; `MAX_LATE` after the last one."""
        following = self.after(time)
        return MAX_LATE if following is None else following - time

    # Clock changes of the zone

    def _offset(self, time: int) -> int:
        """Return the seconds by which the zone is ahead of UTC at a time."""
        return _offset(time, self._zone)

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
        if self._start is not None and wall == self._start + self._offset(self._start):
            return self._start  # also if it is the second time that the clock shows it
        face = (EPOCH + timedelta(seconds=wall)).replace(tzinfo=self._zone)
        first, second = _whole(face.utcoffset()), _whole(face.replace(fold=1).utcoffset())
        time, gap = wall - first, second - first
        if gap <= 0:
            return time
        return None if gap > MAX_GAP else self._change(time - gap, time)

    def _fixed_after(self, time: int) -> int | None:
        wall: int | None = time + self._offset(time)
        while wall is not None and (wall := self._wall.after(wall)) is not None:
            found = self._resolved(wall)
            if found is not None and found > time:
                return found
        return None

    def _fixed_up_to(self, time: int) -> int | None:
        # A clock that went back has already shown later times.
        wall: int | None = time + max(self._offset(time), self._offset(time - MAX_REPEAT)) + 1
        while wall is not None and (wall := self._wall.up_to(wall - 1)) is not None:
            found = self._resolved(wall)
            if found is not None and found <= time:
                return found
        return None

    def _counted_after(self, time: int) -> int | None:
        while True:
            ahead = self._offset(time + 1)
            wall = self._wall.after(time + ahead)
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
            wall = self._wall.up_to(time + ahead)
            if wall is None:
                return None
            found = wall - ahead
            at = time
            while at > found and self._offset(max(at - STEP, found)) == ahead:
                at = max(at - STEP, found)
            if at <= found:
                return found
            time = self._change(max(at - STEP, found), at) - 1


def check_zone(tz: str) -> ZoneInfo:
    """Return the zone of an IANA name such as `Europe/Berlin`; raises `ConfigurationError` for any other name."""
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, TypeError, AttributeError, OSError):
        raise InvalidValueError(f"unknown time zone {short_repr(tz)}{_hint(tz)}") from None


def _hint(tz: object) -> str:
    from zoneinfo import available_timezones

    zones = available_timezones()
    return (
        (did_you_mean(tz, zones) or ": give a name such as 'Europe/Berlin'")
        if zones
        else ": this system knows none; pip install tzdata"
    )


def wall_seconds(wall: datetime) -> int:
    """Return a time of the wall clock in seconds since its 1970."""
    return _whole(wall - EPOCH)


def _offset(time: int, zone: ZoneInfo) -> int:
    return _whole(datetime.fromtimestamp(time, zone).utcoffset())


def _whole(time: timedelta | None) -> int:
    return 0 if time is None else time.days * 86_400 + time.seconds
