"""When reminders are due: an offset before the event, and quiet hours, the part of each day without reminders.

A local time that is skipped by a clock change uses the offset before the change, so 02:30 becomes 03:30. Of a local
time that occurs twice, the first is meant. RFC 5545 (3.3.5) defines both, and `zoneinfo` with `fold=0` does the same.
Quiet hours follow the rule of schedules instead, see `schedules.hours`: those that end in the gap end with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from delayq.errors import ConfigurationError, short_repr
from delayq.schedules.hours import PERIOD, Window
from delayq.values.times import HORIZON, from_millis


def find_zone(name: str) -> ZoneInfo | None:
    """Return the time zone of an IANA name, None if this machine's database does not have it."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):  # also for folders of the database and invalid paths
        return None


def wall_time(at: datetime) -> datetime:
    """Return an aware time as naive local time."""
    return at.replace(tzinfo=None, fold=0)


_UNITS = {"w": 7 * 86_400, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_TERM = re.compile(
    r"(\d{1,9})\s*(w(?:eeks?)?|d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)(?![a-z])"
)
_AT = re.compile(r"(?P<before>.*?)\s*(?:@|\bat\b)\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})")
_ON_THE_DAY = re.compile(r"(?:on\s+)?(?:the\s+)?(?:same\s+)?day")
_DAY = 86_400
_MAX_DAYS = timedelta(milliseconds=HORIZON).days


@dataclass(frozen=True, slots=True, order=True)
class Offset:
    """How long before its event a reminder is due.

    `days` are calendar days: the same local time that many days earlier, across clock changes. `seconds` are elapsed
    time; negative ones are later, so `+10m` is ten minutes after the start. With `at`, the reminder is due at that
    local time, `days` before the day of the event.
    """

    days: int = 0
    seconds: int = 0
    at: time | None = None

    def __post_init__(self) -> None:
        for value, name in ((self.days, "days"), (self.seconds, "seconds")):
            if type(value) is not int or (value < 0 and name == "days"):
                raise ConfigurationError(f"{name} of an offset must be a whole number from 0, not {short_repr(value)}")
        if self.days + abs(self.seconds) // _DAY > _MAX_DAYS:
            raise ConfigurationError("an offset must be at most a hundred years")
        if self.at is not None and (self.seconds or not isinstance(self.at, time) or self.at.tzinfo is not None):
            raise ConfigurationError(
                "an offset with a time of day must be in whole days, such as '1 day before at 09:00'"
            )

    @classmethod
    def of(cls, value: Offset | timedelta | str) -> Offset:
        """Return an offset from a str such as `15m` or `1 day before at 09:00`, or from a timedelta."""
        if isinstance(value, Offset):
            return value
        if isinstance(value, timedelta):
            if value < timedelta(0):
                raise ConfigurationError(
                    f"an offset must not be negative: it is the time before the event, not {short_repr(value)}"
                )
            return cls(value.days, value.seconds)
        if not isinstance(value, str):
            raise ConfigurationError(f"an offset must be a str such as '1d', or a timedelta, not {short_repr(value)}")
        return cls._parse(value)

    @classmethod
    def _parse(cls, value: str) -> Offset:
        text = " ".join(value.lower().split())
        at = None
        if found := _AT.fullmatch(text):
            try:
                at = time(int(found["hour"]), int(found["minute"]))
            except ValueError as error:
                raise ConfigurationError(f"{short_repr(value)} has no valid time of day: {error}") from error
            text = found["before"]
        text = text.removesuffix("before").rstrip()
        text, _, after = text.partition("+")
        if after and at is None:
            later = cls._parse(after)
            return cls(cls._parse(text).days if text else 0, -later.seconds - later.days * _DAY)
        if at is not None and _ON_THE_DAY.fullmatch(text):
            return cls(at=at)
        terms = _TERM.findall(text)
        if not terms or re.sub(r"[\s,]|\band\b", "", _TERM.sub("", text)):
            raise ConfigurationError(
                f"an offset must look like '15m', '1 day before' or '1 day before at 09:00', not {short_repr(value)}"
            )
        amounts = [(int(number), unit[0]) for number, unit in terms]
        days = sum(number * _UNITS[unit] // _DAY for number, unit in amounts if unit in "wd")
        seconds = sum(number * _UNITS[unit] for number, unit in amounts if unit not in "wd")
        return cls(days, seconds, at)

    @property
    def text(self) -> str:
        """The offset in its shortest form, used in the ids of reminders: `15m`, `1d`, `1d@09:00`."""
        if self.at is not None:
            return f"{self.days}d@{self.at:%H:%M}"
        hours, rest = divmod(abs(self.seconds), 3600)
        days = f"{self.days}d" if self.days else ""
        parts = [(hours, "h"), (rest // 60, "m"), (rest % 60, "s")]
        elapsed = "".join(f"{number}{unit}" for number, unit in parts if number)
        return f"{days}{'+' if self.seconds < 0 else ''}{elapsed}" or "0m"

    def before(self, start: datetime, zone: tzinfo) -> datetime:
        """Return in UTC when the reminder is due of an event with this aware start, in a time zone."""
        if self.days or self.at is not None:
            wall = wall_time(start.astimezone(zone)) - timedelta(days=self.days)
            if self.at is not None:
                wall = datetime.combine(wall.date(), self.at)
            start = wall.replace(tzinfo=zone)
        return start.astimezone(UTC) - timedelta(seconds=self.seconds)


def offsets_of(value: str | timedelta | Offset | Iterable[str | timedelta | Offset]) -> tuple[Offset, ...]:
    """Return one or more offsets, sorted and without duplicates."""
    offsets = [value] if isinstance(value, str | timedelta | Offset) else list(value)
    return tuple(sorted({Offset.of(one) for one in offsets}, key=lambda offset: (offset.days, offset.text)))


_TEXT = re.compile(rf"{PERIOD}(?:\s+(earlier|later))?")


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
        found = Window(self.begin, self.end, zone).around(math.floor(due.timestamp() * 1000))
        if found is None:
            return due
        begin, end = map(from_millis, found)
        return end if not self.earlier and due <= end <= latest else min(begin, due)
