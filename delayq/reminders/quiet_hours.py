"""Quiet hours: the part of each day without reminders."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from delayq.errors import ConfigurationError, short_repr
from delayq.reminders.zones import wall_time

_TEXT = re.compile(r"(\d{1,2}):(\d{2})\s*(?:-|–|to)\s*(\d{1,2}):(\d{2})(?:\s+(earlier|later))?")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A daily period in local time, from `begin` up to `end`; it spans midnight if `end` is before `begin`.

    A reminder within it moves to its end, or with `earlier` to its beginning. It always moves to the beginning if the
    event would have started by the end.
    """

    begin: time
    end: time
    earlier: bool = False

    def __post_init__(self) -> None:
        if self.begin == self.end:
            raise ConfigurationError(f"quiet hours must not begin and end at the same time, {self.begin:%H:%M}")

    @classmethod
    def of(cls, value: QuietHours | str | None) -> QuietHours | None:
        """Return quiet hours from a str: `22:00-07:00`, or `22:00-07:00 earlier`."""
        if value is None or isinstance(value, QuietHours):
            return value
        found = _TEXT.fullmatch(value.strip().lower()) if isinstance(value, str) else None
        if not found:
            raise ConfigurationError(f"quiet hours must look like '22:00-07:00', not {short_repr(value)}")
        try:
            begin, end = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
        except ValueError as error:
            raise ConfigurationError(f"quiet hours {short_repr(value)} have an invalid time of day: {error}") from error
        return cls(begin, end, found[5] == "earlier")

    @property
    def text(self) -> str:
        """The quiet hours as a str for `of`."""
        return f"{self.begin:%H:%M}-{self.end:%H:%M}{' earlier' if self.earlier else ''}"

    def move(self, due: datetime, zone: tzinfo, latest: datetime) -> datetime:
        """Return the moved due time of a reminder, given an aware time and a time zone; at most `latest`."""
        first = self._first_day(wall_time(due.astimezone(zone)))
        if first is None:
            return due
        last = first if self.begin < self.end else first + timedelta(days=1)
        end = datetime.combine(last, self.end).replace(tzinfo=zone).astimezone(UTC)
        if not self.earlier and due <= end <= latest:
            return end
        begin = datetime.combine(first, self.begin).replace(tzinfo=zone).astimezone(UTC)
        return min(begin, due)

    def _first_day(self, wall: datetime) -> date | None:
        """Return the day on which the quiet hours around a local time began, None if it is outside."""
        at, day = wall.time(), wall.date()
        if self.begin < self.end:
            return day if self.begin <= at < self.end else None
        if at >= self.begin:
            return day
        return day - timedelta(days=1) if at < self.end else None
