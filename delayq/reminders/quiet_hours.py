"""Quiet hours: the part of every day in which nobody is to be reminded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from delayq.errors import ConfigurationError, shown
from delayq.reminders.zones import on_the_wall

_TEXT = re.compile(r"(\d{1,2}):(\d{2})\s*(?:-|–|to)\s*(\d{1,2}):(\d{2})(?:\s+(earlier|later))?")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A time of every day, on the wall, from `begin` up to `end`: over midnight if the end is the earlier of the two.

    A reminder within it is moved to its end, or, where it is `earlier`, to its beginning; and to its beginning in any
    case if at its end the event would have begun.
    """

    begin: time
    end: time
    earlier: bool = False

    def __post_init__(self) -> None:
        """Refuse what would be quiet for ever."""
        if self.begin == self.end:
            raise ConfigurationError("quiet hours must end at another time than they begin")

    @classmethod
    def of(cls, given: QuietHours | str | None) -> QuietHours | None:
        """Return quiet hours from a text: `22:00-07:00`, or `22:00-07:00 earlier`."""
        if given is None or isinstance(given, QuietHours):
            return given
        found = _TEXT.fullmatch(given.strip().lower()) if isinstance(given, str) else None
        if not found:
            raise ConfigurationError(f"quiet hours must look like '22:00-07:00', not {shown(given)}")
        try:
            begin, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
        except ValueError as error:
            raise ConfigurationError(f"quiet hours {shown(given)} are no times of day: {error}") from error
        return cls(begin, end, found[5] == "earlier")

    @property
    def text(self) -> str:
        """The quiet hours as `of` reads them."""
        return f"{self.begin:%H:%M}-{self.end:%H:%M}{' earlier' if self.earlier else ''}"

    def move(self, due: datetime, zone: tzinfo, latest: datetime) -> datetime:
        """Return when a reminder that is due at an aware time is to come, on the clocks of a zone; at most `latest`."""
        wall = on_the_wall(due.astimezone(zone))
        first = self._first_day(wall)
        if first is None:
            return due
        last = first if self.begin < self.end else first + timedelta(days=1)
        end = datetime.combine(last, self.end).replace(tzinfo=zone).astimezone(UTC)
        if not self.earlier and due <= end <= latest:
            return end
        begin = datetime.combine(first, self.begin).replace(tzinfo=zone).astimezone(UTC)
        return min(begin, due)

    def _first_day(self, wall: datetime) -> date | None:
        """Return the day on which the quiet hours began that a time lies in, None if it lies in none."""
        at, day = wall.time(), wall.date()
        if self.begin < self.end:
            return day if self.begin <= at < self.end else None
        if at >= self.begin:
            return day
        return day - timedelta(days=1) if at < self.end else None
