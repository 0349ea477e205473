"""Hours of a wall clock: the windows in which messages may be delivered, and the quiet hours of calendars.

Times are milliseconds since 1970. Days, clock changes and holidays are those of
schedules: a window opens and closes as a schedule of its begin and one of its end occur, see `local_times`. So it opens
at the end of a gap that its begin falls into, and of a time that comes twice the first is meant. A window over midnight
belongs to the day on which it opens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import time, tzinfo
from functools import lru_cache
from time import time as clock
from typing import Any

from delayq.broker.message.attributes import Attributes
from delayq.broker.message.same_id import Debounce
from delayq.errors import ConfigurationError, InvalidValueError, short_repr
from delayq.schedules.recurring.changed_rule import OccurrenceRule
from delayq.schedules.recurring.exceptions import HOLIDAYS, ExceptRule, read_exceptions
from delayq.schedules.recurring.local_times import LocalTimes, check_zone

DAY = 86_400
MAX_TEXT = 200
"""The maximum of characters of hours."""
DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
THURSDAY = DAYS.index("THU")
"""The weekday of the first day of 1970."""
EVERY_DAY = frozenset(range(7))
PERIOD = r"(\d{1,2}):(\d{2})\s*(?:-|–|to)\s*(\d{1,2}):(\d{2})"
"""A part of a day, such as `22:00-07:00`."""

_PERIOD = re.compile(PERIOD, re.IGNORECASE)
_RULE = re.compile(
    rf"(?:(?P<days>[A-Z]{{3}}(?:\s*[-,]\s*[A-Z]{{3}})*)\s+)?(?P<times>{PERIOD}(?:\s*,\s*{PERIOD})*)", re.IGNORECASE
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LOOKS = "'08:00-21:00', 'MON-FRI 09:00-12:00,13:00-17:00; SAT 10:00-14:00' or 'MON-FRI 09:00-17:00 except holidays:DE'"


class _OnDays:
    """One time of day on some weekdays, in seconds of a wall clock that never changes."""

    def __init__(self, second: int, weekdays: frozenset[int]) -> None:
        """Occur at this second of a day, on these weekdays, where Monday is 0."""
        self._second = second
        self._weekdays = weekdays

    def after(self, wall: int) -> int:
        """Return the first time after a time."""
        return self._at((wall - self._second) // DAY + 1, 1)

    def up_to(self, wall: int) -> int:
        """Return the last time that is not after a time."""
        return self._at((wall - self._second) // DAY, -1)

    def _at(self, day: int, step: int) -> int:
        while (day + THURSDAY) % 7 not in self._weekdays:
            day += step
        return day * DAY + self._second


class Window:
    """A part of the day on some weekdays in a time zone, but for some days; over midnight if its end is not later."""

    def __init__(
        self,
        begin: time,
        end: time,
        zone: tzinfo,
        *,
        weekdays: frozenset[int] = EVERY_DAY,
        exceptions: Iterable[str] = (),
    ) -> None:
        """Open at one time of day and close at another; a whole day if they are the same."""
        in_zone: Any = zone  # calendars have zones of their own
        opens, closes = (3600 * at.hour + 60 * at.minute + at.second for at in (begin, end))
        self._opens: OccurrenceRule = LocalTimes(_OnDays(opens, weekdays), in_zone, fixed=True)
        if exceptions:
            self._opens = ExceptRule(self._opens, in_zone, exceptions)
        self._closes = LocalTimes(_OnDays(closes, EVERY_DAY), in_zone, fixed=True)
        self._least = int(opens == closes)
        self._last = (0, 0)
        """When it opened and closes that was looked for last: many messages come at about the same time."""

    def around(self, at: int) -> tuple[int, int] | None:
        """Return when it opened before a time at which it is open, and when it closes; None if it is not open."""
        last = self._last
        if last[0] <= at < last[1]:
            return last
        opened = self._opens.up_to(at)
        closes = at if opened is None else self._close(opened)
        if opened is None or closes <= at:
            return None
        self._last = last = (opened, closes)
        return last

    def after(self, at: int) -> int | None:
        """Return when it opens next after a time; None if it does not within ten years."""
        found = self._opens.after(at)
        while found is not None and self._close(found) == found:  # both fall into the same gap
            found = self._opens.after(found)
        return found

    def _close(self, opened: int) -> int:
        found = self._closes.after(opened - 1 + self._least)
        return opened if found is None else found


@dataclass(frozen=True, slots=True)
class Hours:
    """When messages may be delivered, in a time zone."""

    text: str
    """In one form for all that mean the same: `MON-FRI 09:00-17:00 except holidays:DE`."""
    tz: str
    windows: tuple[Window, ...]

    def opening(self, at: int) -> int:
        """Return the first time from this one on at which they are open; raise `ConfigurationError` for never."""
        if any(window.around(at) for window in self.windows):
            return at
        found = [opens for window in self.windows if (opens := window.after(at)) is not None]
        if not found:
            raise InvalidValueError(f"hours {short_repr(self.text)} never open: leave out some of the excepted days")
        return min(found)


def check_hours(hours: str | None, tz: str | None) -> Hours | None:
    """Return the hours of a send; None for none. Raise `ConfigurationError` for those that are not valid or never open.

    The time zone is UTC if it is None.
    """
    if hours is None:
        if tz is not None:
            raise ConfigurationError("tz goes with hours: say when the message may be delivered")
        return None
    if not isinstance(hours, str) or len(hours) > MAX_TEXT:
        raise InvalidValueError(f"hours must look like {_LOOKS}, not {short_repr(hours)}")
    return _checked(hours, "UTC" if tz is None else check_zone(tz).key)


@lru_cache(1024)
def _checked(text: str, tz: str) -> Hours:
    found = read_hours(text, tz)
    found.opening(int(clock() * 1000))  # raises if they never open
    return found


def hours_of(attributes: Attributes) -> Hours:
    """Return the hours of a message that has some; raise `ConfigurationError` if this machine cannot read them."""
    return read_hours(attributes.hours.replace("_", " "), attributes.tz or "UTC")


def with_hours(attributes: Attributes, hours: Hours) -> Attributes:
    """Return attributes with these hours, as they are stored: without spaces."""
    return attributes._replace(hours=hours.text.replace(" ", "_"), tz="" if hours.tz == "UTC" else hours.tz)


@lru_cache(1024)
def read_hours(text: str, tz: str) -> Hours:
    """Return the hours of a text in a zone; raise `ConfigurationError` if they are not valid."""
    zone = check_zone(tz)
    rules, *days = re.split(r"\sEXCEPT\s", " ".join(text.upper().split()), maxsplit=1)
    exceptions = _exceptions(text, days[0]) if days else ()
    windows: list[Window] = []
    texts: list[str] = []
    for rule in rules.split(";"):
        found = _RULE.fullmatch(rule.strip())
        if found is None:
            raise InvalidValueError(f"hours must look like {_LOOKS}, not {short_repr(text)}")
        named = re.sub(r"\s", "", found["days"] or "")
        periods = [_period(text, *one) for one in _PERIOD.findall(found["times"])]
        weekdays = _weekdays(text, named) if named else EVERY_DAY
        windows += [Window(begin, end, zone, weekdays=weekdays, exceptions=exceptions) for begin, end, _ in periods]
        texts.append(f"{named} {','.join(shown for _, _, shown in periods)}".lstrip())
    shown = f" except {','.join(exceptions)}" if exceptions else ""
    return Hours("; ".join(texts) + shown, tz, tuple(windows))


def _period(text: str, *numbers: str) -> tuple[time, time, str]:
    """Return begin, end and text of a part of the day; 24:00 is the end of the day."""
    hour, minute, last_hour, last_minute = map(int, numbers)
    shown = f"{hour:02}:{minute:02}-{last_hour:02}:{last_minute:02}"
    if (hour, minute) == (last_hour, last_minute):
        raise InvalidValueError(f"hours {short_repr(text)} never open: {shown} is empty; a whole day is 00:00-24:00")
    try:
        end = time() if (last_hour, last_minute) == (24, 0) else time(last_hour, last_minute)
        return time(hour, minute), end, shown
    except ValueError:
        raise InvalidValueError(f"hours {short_repr(text)} have an invalid time of day: {shown}") from None


def _weekdays(text: str, named: str) -> frozenset[int]:
    """Return the weekdays of a text such as `MON-WED,FRI`; from SAT to MON are three."""
    found = set[int]()
    for span in named.split(","):
        names = span.split("-")
        unknown = [name for name in names if name not in DAYS]
        if unknown or len(names) > 2:  # noqa: PLR2004
            wrong = unknown[0] if unknown else span
            raise InvalidValueError(f"hours {short_repr(text)}: {wrong} is no weekday such as MON, and no span MON-FRI")
        first, last = DAYS.index(names[0]), DAYS.index(names[-1])
        found |= {day % 7 for day in range(first, (last if last >= first else last + 7) + 1)}
    return frozenset(found)


def _exceptions(text: str, days: str) -> tuple[str, ...]:
    """Return the days on which nothing opens, as schedules have them; no files."""
    prefix = HOLIDAYS.upper()
    given = [
        HOLIDAYS + one.removeprefix(prefix) if one.startswith(prefix) else one for one in re.split(r"[,\s]+", days)
    ]
    wrong = next((one for one in given if not one.startswith(HOLIDAYS) and not _DATE.fullmatch(one)), None)
    if wrong is not None:
        raise InvalidValueError(
            f"hours {short_repr(text)} except dates such as 2026-12-24 and holidays:DE, not {wrong}"
        )
    try:
        return read_exceptions(given)
    except ConfigurationError as error:
        raise InvalidValueError(f"hours {short_repr(text)}: {error}") from None


def until_open(how: Debounce, attributes: Attributes, now: int) -> Debounce:
    """Return how a burst with these attributes is debounced: until its hours open if it would end outside of them."""
    opens = hours_of(attributes).opening(now + how.quiet)
    return how if opens == now + how.quiet else how._replace(quiet=opens - now, at_most=None)
