"""Parses single VEVENTs with the library and resolves their time zones."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

import icalendar
from icalendar.prop import vDDDLists, vRecur

from delayq.errors import short_repr
from delayq.reminders.alarms import Alarm, UnreadableAlarm, in_utc, length_of, read_alarms
from delayq.reminders.event import Event
from delayq.reminders.ics_splitter import Problem, RawComponent
from delayq.reminders.offsets import Offset, find_zone
from delayq.reminders.zone_table import UnknownZone, ZoneTable

_TIMES = ("DTSTART", "RECURRENCE-ID", "RDATE", "EXDATE")
_ESSENTIAL = {"DTSTART", "RECURRENCE-ID", "RRULE", None}
"""Properties without which an event cannot be read; None stands for an invalid line."""
_LINES = {"EXDATE": vDDDLists, "RDATE": vDDDLists, "EXRULE": vRecur}
"""Lines that cost only themselves if they cannot be read, and what they are read as."""
_RECURRING = ("RRULE", "RDATE", "EXDATE", "RECURRENCE-ID")
# The library keeps one table of time zones for the whole process, so the names of zones are hidden from it.
_TZID = re.compile(rf'(?im)^((?:{"|".join(_TIMES)});(?:[^:"\r\n]|"[^"\r\n]*")*?)(?<=;)TZID\s*=')
_HIDDEN = "X-TZID"
_RULE = re.compile(r"(?im)^(?:RRULE|EXRULE)[;:][^\r\n]*")

Component = Any
"""An event as parsed by the library."""


class UnreadableEvent(Exception):  # noqa: N818 - becomes the line of an event
    """An event cannot be read; the text says why."""


@dataclass(slots=True)
class EventSource:
    """One VEVENT with the information from its file that is needed to read it."""

    file: str
    raw: RawComponent
    zones: ZoneTable
    calendar_zone: str
    """X-WR-TIMEZONE, '' if missing or unknown."""
    cancelled: bool
    """Whether the METHOD of the file is CANCEL."""
    problems: list[Problem] = field(default_factory=list, repr=False)
    """The problems of all events that are read together."""
    context: bytes = b""
    """A digest of what it depends on in its file."""
    _alarms: list[Alarm] | None = None
    _given: set[datetime] = field(default_factory=set)
    """The alarms at absolute times that an occurrence has."""
    _start: Any = None
    _length: timedelta = timedelta(0)

    def report(self, what: str, *, hides: bool = False) -> None:
        """Report a problem that costs less than the event; if it hides reminders, those planned before stay."""
        self.problems.append(replace(self.problem(what), hides=hides))

    def problem(self, what: str) -> Problem:
        """Return a problem with this event."""
        uid = _plain(self.raw.uid).strip()
        name = _plain(self.raw.value("SUMMARY")) or uid or "without a name"
        return Problem(self.file, self.raw.line, what, name[:60], uid)

    def parse(self) -> Component:
        """Return the parsed event, with aware times if it has a time zone; may raise `UnreadableEvent`."""
        if not self.raw.whole:
            raise UnreadableEvent("it is cut off: END:VEVENT is missing")
        text = _RULE.sub(lambda line: line[0].replace(" ", ""), self.raw.text)
        component: Component = icalendar.Event.from_ical(_TZID.sub(rf"\1{_HIDDEN}=", text))
        for name, error in component.errors:
            if name in _ESSENTIAL:
                raise UnreadableEvent(f"its {name or 'lines'} cannot be read: {one_line(error)}")
        if "DTSTART" not in component:
            raise UnreadableEvent("it has no start (DTSTART)")
        if isinstance(component.get("RECURRENCE-ID"), list):
            raise UnreadableEvent("its RECURRENCE-ID is not one time")
        try:
            for name in ("DTSTART", "RECURRENCE-ID"):
                if name in component:
                    self._set_zone(component[name])
        except UnknownZone as error:
            raise UnreadableEvent(str(error)) from error
        self._remove_broken_lines(component)
        self._read_sequence(component)
        if isinstance(component["DTSTART"], list) or not hasattr(component["DTSTART"].dt, "year"):
            raise UnreadableEvent("its DTSTART is not one time")
        self._start = component["DTSTART"].dt
        return component

    def _remove_broken_lines(self, component: Component) -> None:
        """Report and remove lines that cannot be read and cost only themselves; the library may keep them."""
        for name, kind in _LINES.items() if self.raw.recurs else ():
            errors = [one_line(error) for one, error in component.errors if one == name]
            values = component.pop(name, [])
            readable = []
            for value in values if isinstance(values, list) else [values]:
                try:
                    self._check_line(value, kind)
                    readable.append(value)
                except (UnknownZone, UnreadableEvent) as error:
                    errors.append(str(error))
            if readable:
                component[name] = readable
            lines = sum(re.match(rf"{name}[;:]", line, re.IGNORECASE) is not None for line in self.raw.lines)
            if len(readable) < lines:
                self.report(f"one {name} is not used: {errors[0] if errors else 'it is empty'}", hides=name == "RDATE")

    def _read_sequence(self, component: Component) -> None:
        """Have the SEQUENCE be one number: the highest of several; 0, and reported, if it cannot be read."""
        sequence = component.get("SEQUENCE", 0)
        if isinstance(sequence, list):
            sequence = max((one for one in sequence if isinstance(one, int)), default="")
        if not isinstance(sequence, int) or any(name == "SEQUENCE" for name, _ in component.errors):
            self.report("its SEQUENCE is no number: it counts as 0")
            sequence = 0
        if "SEQUENCE" in component:
            component["SEQUENCE"] = sequence

    def _check_line(self, value: Any, kind: type) -> None:
        """Set the time zone of the times of a line; raises `UnreadableEvent`, or `UnknownZone`."""
        if not isinstance(value, kind) or not getattr(value, "dts", True):
            raise UnreadableEvent("it is empty")
        self._set_zone(value)
        for one in getattr(value, "dts", ()):
            first = one.dt[0] if isinstance(one.dt, tuple) else one.dt
            if not isinstance(first, date):
                raise UnreadableEvent(f"{first} is no date")

    def _set_zone(self, value: Any) -> None:
        """Set the time zone of the times of a property to the one it names."""
        for one in value if isinstance(value, list) else [value]:
            tzid = one.params.get(_HIDDEN)
            if tzid:
                zone = self.zones.find(str(tzid))
                for time in getattr(one, "dts", [one]):
                    time.dt = _with_zone(time.dt, zone)

    def alarms(self, start: Any, since: datetime | None = None) -> tuple[Offset, ...]:
        """Return the offsets of the alarms of an event that starts at `start`.

        For the occurrences of a series, in their order, `since` is when they were looked for. An alarm at an absolute
        time is of the first that starts after it.
        """
        if self._alarms is None:
            self._alarms = read_alarms(self.raw.alarms, self.zones, self._report_alarm)
            if any(alarm.from_end for alarm in self._alarms):
                self._read_length()
        zone = find_zone(self.calendar_zone) or UTC
        alarms = [alarm for alarm in self._alarms if since is None or self._is_first(alarm, in_utc(start, zone), since)]
        return tuple(offset for alarm in alarms for offset in alarm.offsets(start, self._length, zone))

    def _is_first(self, alarm: Alarm, start: datetime, since: datetime) -> bool:
        if not isinstance(alarm.trigger, datetime):
            return True
        if not since <= alarm.trigger <= start or alarm.trigger in self._given:
            return False
        self._given.add(alarm.trigger)
        return True

    def _report_alarm(self, what: str) -> None:
        self.report(what, hides=True)

    def _read_length(self) -> None:
        try:
            self._length = length_of(self.raw.end, self._start, self.zones)
        except (UnreadableAlarm, UnknownZone) as error:
            self._report_alarm(f"its alarms before its end cannot be planned: {error}")
            self._alarms = [alarm for alarm in self._alarms or () if not alarm.from_end]

    def is_cancelled(self, component: Component) -> bool:
        """Return whether the event is cancelled."""
        return self.cancelled or str(component.get("STATUS", "")).upper() == "CANCELLED"


def _plain(text: str) -> str:
    """Return a text without the backslash escapes of iCalendar."""
    return re.sub(r"\\(.)", lambda found: " " if found[1] in "nN" else found[1], text)


def _with_zone(at: Any, zone: tzinfo) -> Any:
    if isinstance(at, tuple):
        return tuple(_with_zone(one, zone) for one in at)
    return at.replace(tzinfo=zone) if isinstance(at, datetime) and at.tzinfo is None else at


def uid_of(source: EventSource, component: Component) -> str:
    """Return the uid of an event; a hash of its content if it has none."""
    uid = str(component.get("UID", "")).strip()
    if uid:
        return uid
    content = "\n".join(line for line in source.raw.lines if line.upper().startswith(("DTSTART", "SUMMARY")))
    return f"no-uid-{hashlib.blake2b(content.encode('utf-8', 'replace'), digest_size=12).hexdigest()}"


def recurs(component: Component) -> bool:
    """Return whether an event recurs or is an occurrence of one that does."""
    return any(name in component for name in _RECURRING)


def event_of(
    source: EventSource, component: Component, start: Any, recurrence: str = "", *, uid: str, alarms: tuple[Offset, ...]
) -> Event:
    """Return an event, or its occurrence that starts at `start`."""
    return Event(
        uid,
        _known_zone(start),
        _text_of(component, "SUMMARY"),
        _text_of(component, "LOCATION"),
        recurrence,
        source.calendar_zone,
        alarms,
    )


def _known_zone(start: Any) -> Any:
    """Return a time with the standard library's UTC if it is in UTC."""
    return start.replace(tzinfo=UTC) if getattr(getattr(start, "tzinfo", None), "key", "") == "UTC" else start


def _text_of(component: Component, name: str) -> str:
    value = component.get(name, "")
    return str(value[0] if isinstance(value, list) else value)


def one_line(error: object) -> str:
    """Return an error of the library as a short line."""
    return " ".join(str(error).split())[:120] or short_repr(error)
