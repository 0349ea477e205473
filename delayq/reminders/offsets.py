"""How long before its event a reminder is due: so much time, so many days of the calendar, or a day at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from delayq.clock import HORIZON
from delayq.errors import ConfigurationError, shown
from delayq.reminders.zones import on_the_wall

_UNITS = {"w": 7 * 86_400, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_TERM = re.compile(
    r"(\d{1,9})\s*(w(?:eeks?)?|d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)(?![a-z])"
)
_AT = re.compile(r"(?P<before>.*?)\s*(?:@|\bat\b)\s*(?P<hour>\d{1,2}):(?P<minute>\d{2})")
_ON_THE_DAY = re.compile(r"(?:on\s+)?(?:the\s+)?(?:same\s+)?day")
_DAY = 86_400
_MOST = timedelta(milliseconds=HORIZON).days


@dataclass(frozen=True, slots=True, order=True)
class Offset:
    """How long before its event a reminder is due.

    `days` are days of the calendar: the same time on the wall so many days earlier, whatever the clocks did meanwhile.
    `seconds` are time that passes. With `at` the reminder is due at that time on the wall, `days` before the day of
    the event.
    """

    days: int = 0
    seconds: int = 0
    at: time | None = None

    def __post_init__(self) -> None:
        """Refuse what is no offset."""
        for value, name in ((self.days, "days"), (self.seconds, "seconds")):
            if type(value) is not int or value < 0:
                raise ConfigurationError(f"{name} of an offset must be a whole number from 0, not {shown(value)}")
        if self.days + self.seconds // _DAY > _MOST:
            raise ConfigurationError("an offset must be at most a hundred years")
        if self.at is not None and (self.seconds or not isinstance(self.at, time) or self.at.tzinfo is not None):
            raise ConfigurationError("an offset with a time of day takes whole days: 1 day before at 09:00")

    @classmethod
    def of(cls, given: Offset | timedelta | str) -> Offset:
        """Return an offset from a text such as `15m`, `1 day before at 09:00`, or from a timedelta."""
        if isinstance(given, Offset):
            return given
        if isinstance(given, timedelta):
            if given < timedelta(0):
                raise ConfigurationError(f"an offset is how long before the event, not {shown(given)}")
            return cls(given.days, given.seconds)
        if not isinstance(given, str):
            raise ConfigurationError(f"an offset must be a text such as '1d', or a timedelta, not {shown(given)}")
        return cls._parse(given)

    @classmethod
    def _parse(cls, given: str) -> Offset:
        text = " ".join(given.lower().split())
        at = None
        if found := _AT.fullmatch(text):
            try:
                at = time(int(found["hour"]), int(found["minute"]))
            except ValueError as error:
                raise ConfigurationError(f"{shown(given)} has no time of day: {error}") from error
            text = found["before"]
        text = text.removesuffix("before").rstrip()
        if at is not None and _ON_THE_DAY.fullmatch(text):
            return cls(at=at)
        terms = _TERM.findall(text)
        if not terms or re.sub(r"[\s,]|\band\b", "", _TERM.sub("", text)):
            raise ConfigurationError(
                f"an offset must look like '15m', '1 day before' or '1 day before at 09:00', not {shown(given)}"
            )
        amounts = [(int(number), unit[0]) for number, unit in terms]
        days = sum(number * _UNITS[unit] // _DAY for number, unit in amounts if unit in "wd")
        seconds = sum(number * _UNITS[unit] for number, unit in amounts if unit not in "wd")
        return cls(days, seconds, at)

    @property
    def text(self) -> str:
        """The offset in its shortest form, which is part of the ids of its reminders: `15m`, `1d`, `1d@09:00`."""
        if self.at is not None:
            return f"{self.days}d@{self.at:%H:%M}"
        hours, rest = divmod(self.seconds, 3600)
        parts = [(self.days, "d"), (hours, "h"), (rest // 60, "m"), (rest % 60, "s")]
        return "".join(f"{number}{unit}" for number, unit in parts if number) or "0m"

    def before(self, start: datetime, zone: tzinfo) -> datetime:
        """Return when the reminder of an event is due that starts at an aware time, on the clocks of a zone; in UTC."""
        if self.days or self.at is not None:
            wall = on_the_wall(start.astimezone(zone)) - timedelta(days=self.days)
            if self.at is not None:
                wall = datetime.combine(wall.date(), self.at)
            start = wall.replace(tzinfo=zone)
        return start.astimezone(UTC) - timedelta(seconds=self.seconds)


def offsets_of(given: str | timedelta | Offset | Iterable[str | timedelta | Offset]) -> tuple[Offset, ...]:
    """Return one offset or several in order, each once."""
    several = [given] if isinstance(given, str | timedelta | Offset) else list(given)
    return tuple(sorted({Offset.of(one) for one in several}, key=lambda offset: (offset.days, offset.text)))
