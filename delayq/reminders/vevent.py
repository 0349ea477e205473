"""One VEVENT at a time: parsed by the library, its times put on the clocks that its file means."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import icalendar

from delayq.errors import shown
from delayq.reminders.event import Event
from delayq.reminders.offsets import Offset
from delayq.reminders.pieces import Piece
from delayq.reminders.problem import Problem
from delayq.reminders.zone_table import UnknownZone, ZoneTable

_TIMES = ("DTSTART", "RECURRENCE-ID", "RDATE", "EXDATE")
_ESSENTIAL = {*_TIMES, "RRULE", None}
"""What an event is not understood without; None stands for a line that is no property at all."""
_RECURRING = ("RRULE", "RDATE", "EXDATE", "RECURRENCE-ID")
# The library keeps one table of zones for all that a process ever reads, so it is not shown what they are called.
_TZID = re.compile(
    rf'^((?:{"|".join(_TIMES)});(?:[^:"\r\n]|"[^"\r\n]*")*?)(?<=;)TZID\s*=', re.IGNORECASE | re.MULTILINE
)
_HIDDEN = "X-TZID"
_LONGEST = timedelta(days=366)
"""Alarms further ahead of their event are none that anybody set."""

Component = Any
"""An event as the library parses it; each of its values is of one of thirty types, of which it is asked for few."""


class Unreadable(Exception):  # noqa: N818 - becomes the line of an event
    """An event that cannot be read, and why."""


@dataclass(slots=True)
class Part:
    """One VEVENT of a file, and what of its file it needs to be read."""

    file: str
    piece: Piece
    zones: ZoneTable
    calendar_zone: str
    """X-WR-TIMEZONE, '' for none that is known."""
    withdrawn: bool
    """Whether the file is one that cancels."""

    def problem(self, what: str) -> Problem:
        """Return a problem of this event."""
        uid = _plain(self.piece.value("UID"))
        name = _plain(self.piece.value("SUMMARY")) or uid or "without a name"
        return Problem(self.file, self.piece.line, what, name[:60], uid)

    def parse(self) -> Component:
        """Return the event with aware times where its file says whose clocks are meant; `Unreadable` says why not."""
        if not self.piece.whole:
            raise Unreadable("it is cut off: END:VEVENT is missing")
        component: Component = icalendar.Event.from_ical(_TZID.sub(rf"\1{_HIDDEN}=", self.piece.text))
        for name, told in component.errors:
            if name in _ESSENTIAL:
                raise Unreadable(f"its {name or 'lines'} cannot be read: {one_line(told)}")
        if "DTSTART" not in component:
            raise Unreadable("it has no start (DTSTART)")
        try:
            for name in _TIMES:
                if name in component:
                    self._place(component[name])
        except UnknownZone as error:
            raise Unreadable(str(error)) from error
        if isinstance(component["DTSTART"], list) or not hasattr(component["DTSTART"].dt, "year"):
            raise Unreadable("its DTSTART is not one time")
        return component

    def _place(self, value: Any) -> None:
        """Put the times of a property on the clocks of the zone that it names."""
        for one in value if isinstance(value, list) else [value]:
            tzid = one.params.get(_HIDDEN)
            if tzid:
                zone = self.zones.find(str(tzid))
                for time in getattr(one, "dts", [one]):
                    time.dt = _placed(time.dt, zone)

    def withdraws(self, component: Component) -> bool:
        """Tell whether the event is cancelled."""
        return self.withdrawn or str(component.get("STATUS", "")).upper() == "CANCELLED"


def _plain(text: str) -> str:
    """Return a text without the backslashes that iCalendar puts before some characters."""
    return re.sub(r"\\(.)", lambda found: " " if found[1] in "nN" else found[1], text)


def _placed(at: Any, zone: tzinfo) -> Any:
    if isinstance(at, tuple):
        return tuple(_placed(one, zone) for one in at)
    return at.replace(tzinfo=zone) if isinstance(at, datetime) and at.tzinfo is None else at


def uid_of(part: Part, component: Component) -> str:
    """Return the uid of an event; one made of what it says if its producer gave it none."""
    given = str(component.get("UID", "")).strip()
    if given:
        return given
    said = "\n".join(line for line in part.piece.lines if line.upper().startswith(("DTSTART", "SUMMARY")))
    return f"no-uid-{hashlib.blake2b(said.encode('utf-8', 'replace'), digest_size=12).hexdigest()}"


def recurs(component: Component) -> bool:
    """Tell whether an event is more than one, or one of several."""
    return any(name in component for name in _RECURRING)


def event_of(
    part: Part, component: Component, start: Any, recurrence: str = "", *, uid: str, alarms: bool = False
) -> Event:
    """Return an event, or the occurrence of it that begins at `start`."""
    return Event(
        uid,
        _known_zone(start),
        _said(component, "SUMMARY"),
        _said(component, "LOCATION"),
        recurrence,
        part.calendar_zone,
        _alarms(component, start) if alarms else (),
    )


def _known_zone(start: Any) -> Any:
    """Return a time with the standard library's UTC where it is given in UTC."""
    return start.replace(tzinfo=UTC) if getattr(getattr(start, "tzinfo", None), "key", "") == "UTC" else start


def _said(component: Component, name: str) -> str:
    value = component.get(name, "")
    return str(value[0] if isinstance(value, list) else value)


def _alarms(component: Component, start: Any) -> tuple[Offset, ...]:
    """Return the alarms that come before the event begins, or as it does."""
    found = (_alarm(alarm, start) for alarm in component.walk("VALARM"))
    return tuple(offset for offset in found if offset is not None)


def _alarm(alarm: Component, start: Any) -> Offset | None:
    trigger = alarm.get("TRIGGER")
    at = getattr(trigger, "dt", None)
    if str(alarm.get("ACTION", "")).upper() == "NONE" or getattr(trigger, "params", {}).get("RELATED") == "END":
        return None
    if isinstance(at, datetime) and at.tzinfo and isinstance(start, datetime) and start.tzinfo:
        before = start.astimezone(UTC) - at.astimezone(UTC)
        return Offset(seconds=int(before.total_seconds())) if timedelta(0) <= before <= _LONGEST else None
    return Offset.of(-at) if isinstance(at, timedelta) and timedelta(0) <= -at <= _LONGEST else None


def one_line(error: object) -> str:
    """Return an error of the library as part of a line."""
    return " ".join(str(error).split())[:120] or shown(error)
