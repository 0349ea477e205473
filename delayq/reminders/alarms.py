"""The alarms of events (VALARM): when each is due, as offsets. A line that cannot be read costs only its alarm."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

from delayq.errors import short_repr
from delayq.reminders.offsets import Offset
from delayq.reminders.zone_table import UnknownZone, ZoneTable

MAX_REPEAT = 100
_MAX = timedelta(days=366)
"""An alarm further from its event is not used."""
_DAY = 86_400
_DURATION = re.compile(
    r"([+-]?)P(?:(\d{1,5})W)?(?:(\d{1,5})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,8})S)?)?", re.IGNORECASE
)
_TIME = re.compile(r"(\d{8})(?:T(\d{6})(Z?))?", re.IGNORECASE)
_LINE = re.compile(r'\s*([\w-]+)((?:;(?:"[^"]*"|[^":;])*)*):(.*)', re.DOTALL)

Report = Callable[[str], None]


class UnreadableAlarm(Exception):  # noqa: N818 - becomes the line of an event
    """An alarm or an end cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration in an iCalendar file: calendar days and elapsed time."""

    days: int
    seconds: int

    @classmethod
    def of(cls, text: str) -> Duration:
        """Return a duration such as `-P1DT12H`; may raise `UnreadableAlarm`."""
        found = _DURATION.fullmatch(text.strip())
        if found is None or not any(found.groups()[1:]):
            raise UnreadableAlarm(f"{short_repr(text)} is no duration")
        weeks, days, hours, minutes, seconds = (int(number or 0) for number in found.groups()[1:])
        sign = -1 if found[1] == "-" else 1
        return cls(sign * (7 * weeks + days), sign * (3600 * hours + 60 * minutes + seconds))

    @property
    def total(self) -> int:
        """All of it in seconds."""
        return self.days * _DAY + self.seconds


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm of an event, before it is known when the event starts."""

    trigger: Duration | datetime
    from_end: bool = False
    repeats: tuple[int, ...] = ()
    """Seconds after the trigger at which it is repeated."""

    def offsets(self, start: date, length: timedelta, zone: tzinfo) -> Iterator[Offset]:
        """Yield the offsets of the alarm for an event, in `zone` if it has none; none if they are a year from it."""
        trigger = self.trigger
        if isinstance(trigger, datetime):
            first = Offset(seconds=int((in_utc(start, zone) - trigger).total_seconds()))
        elif self.from_end:
            first = Offset(seconds=-int(length.total_seconds()) - trigger.total)
        elif trigger.total <= 0:
            first = Offset(-trigger.days, -trigger.seconds)
        else:
            first = Offset(seconds=-trigger.total)
        for after in (0, *self.repeats):
            offset = replace(first, seconds=first.seconds - after)
            if abs(timedelta(days=offset.days, seconds=offset.seconds)) <= _MAX:
                yield _on_the_day(offset) if not isinstance(start, datetime) else offset


def in_utc(start: date, zone: tzinfo) -> datetime:
    """Return when an event starts, in `zone` if it has none."""
    at = start if isinstance(start, datetime) else datetime.combine(start, time())
    return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)


def _on_the_day(offset: Offset) -> Offset:
    """Return an offset into the day of an all-day event as the time of day, which it is also if the clocks change."""
    minutes, rest = divmod(-offset.seconds, 60)
    if offset.days or rest or not 0 <= minutes < _DAY // 60:
        return offset
    return Offset(at=time(*divmod(minutes, 60)))


def read_alarms(alarms: list[list[str] | None], zones: ZoneTable, report: Report) -> list[Alarm]:
    """Return the alarms with these lines; reports those that cannot be read."""
    found = []
    for lines in alarms:
        try:
            if alarm := _read(lines, zones, report):
                found.append(alarm)
        except (UnreadableAlarm, UnknownZone) as error:
            report(f"its alarm cannot be read: {error}")
    return found


def _read(lines: list[str] | None, zones: ZoneTable, report: Report) -> Alarm | None:
    if lines is None:
        raise UnreadableAlarm("END:VALARM is missing")
    properties: dict[str, tuple[str, str]] = {}
    for line in lines:
        if found := _LINE.fullmatch(line):
            properties.setdefault(found[1].upper(), (found[2], found[3].strip()))
    if properties.get("ACTION", ("", ""))[1].upper() == "NONE":
        return None
    if "TRIGGER" not in properties:
        raise UnreadableAlarm("it has no TRIGGER")
    parameters, text = properties["TRIGGER"]
    repeats: tuple[int, ...] = ()
    try:
        repeats = _repeats(properties.get("REPEAT", ("", "0"))[1], properties.get("DURATION", ("", ""))[1])
    except UnreadableAlarm as error:
        report(f"its alarm is not repeated: {error}")
    if not _TIME.fullmatch(text):
        duration = Duration.of(text)
        if abs(duration.total) > _MAX.total_seconds():
            raise UnreadableAlarm(f"{short_repr(text)} is more than a year")
        return Alarm(duration, "RELATED=END" in parameters.upper().replace('"', ""), repeats)
    at = read_time(parameters, text, zones)
    if not (isinstance(at, datetime) and at.tzinfo):
        raise UnreadableAlarm(f"{short_repr(text)} is not in UTC")
    return Alarm(at.astimezone(UTC), repeats=repeats)


def _repeats(number: str, pause: str) -> tuple[int, ...]:
    if not re.fullmatch("[0-9]{1,9}", number):
        raise UnreadableAlarm(f"REPEAT:{number:.20} is no number")
    if not int(number):
        return ()
    step = Duration.of(pause).total
    if int(number) > MAX_REPEAT or step <= 0:
        raise UnreadableAlarm(f"{int(number):,} times every {pause:.20}; the limit is {MAX_REPEAT}")
    return tuple(step * turn for turn in range(1, int(number) + 1))


def read_time(parameters: str, text: str, zones: ZoneTable) -> Any:
    """Return a date or a time; may raise `UnreadableAlarm` and `UnknownZone`."""
    found = _TIME.fullmatch(text.strip())
    try:
        if found is None:
            raise UnreadableAlarm(f"{short_repr(text)} is no time")
        if found[2] is None:
            return date.fromisoformat(found[1])
        at = datetime.fromisoformat(f"{found[1]}T{found[2]}")
    except ValueError as error:
        raise UnreadableAlarm(f"{short_repr(text)} is no time") from error
    if found[3]:
        return at.replace(tzinfo=UTC)
    tzid = re.search(r';TZID="?([^";]+)', parameters, re.IGNORECASE)
    return at.replace(tzinfo=zones.find(tzid[1])) if tzid else at


def length_of(line: str, start: Any, zones: ZoneTable) -> timedelta:
    """Return how long an event is by its DTEND or DURATION; may raise `UnreadableAlarm` and `UnknownZone`."""
    found = _LINE.fullmatch(line)
    if found is None:
        return timedelta(0) if isinstance(start, datetime) else timedelta(days=1)
    if found[1].upper() == "DURATION":
        length = timedelta(seconds=Duration.of(found[3]).total)
    else:
        end = read_time(found[2], found[3], zones)
        if isinstance(end, datetime) != isinstance(start, datetime):
            raise UnreadableAlarm(f"{short_repr(found[3])} is not like its start")
        aware = isinstance(end, datetime) and end.tzinfo and start.tzinfo
        length = end.astimezone(UTC) - start.astimezone(UTC) if aware else _naive(end) - _naive(start)
    if length < timedelta(0):
        raise UnreadableAlarm("it ends before it starts")
    return length


def _naive(at: Any) -> Any:
    return at.replace(tzinfo=None) if isinstance(at, datetime) else at
