"""Parses single VEVENTs with the library and resolves their time zones."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import icalendar

from delayq.errors import short_repr
from delayq.reminders.event import Event
from delayq.reminders.ics_splitter import RawComponent
from delayq.reminders.offsets import Offset
from delayq.reminders.problem import Problem
from delayq.reminders.zone_table import UnknownZone, ZoneTable

_TIMES = ("DTSTART", "RECURRENCE-ID", "RDATE", "EXDATE")
_ESSENTIAL = {*_TIMES, "RRULE", None}
"""Properties without which an event cannot be read; None stands for an invalid line."""
_RECURRING = ("RRULE", "RDATE", "EXDATE", "RECURRENCE-ID")
# The library keeps one table of time zones for the whole process, so the names of zones are hidden from it.
_TZID = re.compile(rf'(?im)^((?:{"|".join(_TIMES)});(?:[^:"\r\n]|"[^"\r\n]*")*?)(?<=;)TZID\s*=')
_HIDDEN = "X-TZID"
_MAX_OFFSET = timedelta(days=366)
"""Alarms further ahead of their event are ignored."""

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

    def problem(self, what: str) -> Problem:
        """Return a problem with this event."""
        uid = _plain(self.raw.value("UID"))
        name = _plain(self.raw.value("SUMMARY")) or uid or "without a name"
        return Problem(self.file, self.raw.line, what, name[:60], uid)

    def parse(self) -> Component:
        """Return the parsed event, with aware times if it has a time zone; may raise `UnreadableEvent`."""
        if not self.raw.whole:
            raise UnreadableEvent("it is cut off: END:VEVENT is missing")
        component: Component = icalendar.Event.from_ical(_TZID.sub(rf"\1{_HIDDEN}=", self.raw.text))
        for name, error in component.errors:
            if name in _ESSENTIAL:
                raise UnreadableEvent(f"its {name or 'lines'} cannot be read: {one_line(error)}")
        if "DTSTART" not in component:
            raise UnreadableEvent("it has no start (DTSTART)")
        try:
            for name in _TIMES:
                if name in component:
                    self._set_zone(component[name])
        except UnknownZone as error:
            raise UnreadableEvent(str(error)) from error
        if isinstance(component["DTSTART"], list) or not hasattr(component["DTSTART"].dt, "year"):
            raise UnreadableEvent("its DTSTART is not one time")
        return component

    def _set_zone(self, value: Any) -> None:
        """Set the time zone of the times of a property to the one it names."""
        for one in value if isinstance(value, list) else [value]:
            tzid = one.params.get(_HIDDEN)
            if tzid:
                zone = self.zones.find(str(tzid))
                for time in getattr(one, "dts", [one]):
                    time.dt = _with_zone(time.dt, zone)

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
    source: EventSource, component: Component, start: Any, recurrence: str = "", *, uid: str, alarms: bool = False
) -> Event:
    """Return an event, or its occurrence that starts at `start`."""
    return Event(
        uid,
        _known_zone(start),
        _text_of(component, "SUMMARY"),
        _text_of(component, "LOCATION"),
        recurrence,
        source.calendar_zone,
        _alarms(component, start) if alarms else (),
    )


def _known_zone(start: Any) -> Any:
    """Return a time with the standard library's UTC if it is in UTC."""
    return start.replace(tzinfo=UTC) if getattr(getattr(start, "tzinfo", None), "key", "") == "UTC" else start


def _text_of(component: Component, name: str) -> str:
    value = component.get(name, "")
    return str(value[0] if isinstance(value, list) else value)


def _alarms(component: Component, start: Any) -> tuple[Offset, ...]:
    """Return the alarms at or before the start of the event."""
    found = (_alarm(alarm, start) for alarm in component.walk("VALARM"))
    return tuple(offset for offset in found if offset is not None)


def _alarm(alarm: Component, start: Any) -> Offset | None:
    trigger = alarm.get("TRIGGER")
    at = getattr(trigger, "dt", None)
    if str(alarm.get("ACTION", "")).upper() == "NONE" or getattr(trigger, "params", {}).get("RELATED") == "END":
        return None
    if isinstance(at, datetime) and at.tzinfo and isinstance(start, datetime) and start.tzinfo:
        before = start.astimezone(UTC) - at.astimezone(UTC)
        return Offset(seconds=int(before.total_seconds())) if timedelta(0) <= before <= _MAX_OFFSET else None
    return Offset.of(-at) if isinstance(at, timedelta) and timedelta(0) <= -at <= _MAX_OFFSET else None


def one_line(error: object) -> str:
    """Return an error of the library as a short line."""
    return " ".join(str(error).split())[:120] or short_repr(error)
