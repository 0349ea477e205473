"""Splits an iCalendar file into its components, so that a broken one does not affect the others.

It handles only BEGIN, END and folded lines; the library parses the components. Of an event it keeps only the lines that
a reminder needs: parsing is twice as fast, and errors in other lines do no harm.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that cannot be read."""

    file: str
    line: int
    what: str
    event: str = ""
    """The name of the event, '' if the problem is about the file."""
    uid: str = ""
    """The event's uid, '' if unknown."""
    hides: bool = True
    """Whether an event may be missing because of it."""

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {f'event {self.event!r}: ' if self.event else ''}{self.what}"


_NEEDED = frozenset(b"UID DTSTART RRULE EXRULE RDATE EXDATE RECURRENCE-ID SEQUENCE STATUS SUMMARY LOCATION".split())
_OF_ALARM = frozenset(b"TRIGGER ACTION REPEAT DURATION".split())
_OF_END = frozenset(b"DTEND DURATION".split())
_HEADS = frozenset(name[:3] for name in (b"BEGIN", b"END", *_NEEDED, *_OF_ALARM, *_OF_END))
_RECURRING = frozenset(b"RRULE RDATE EXDATE RECURRENCE-ID".split())
_NAME = re.compile(rb"\s*([A-Za-z0-9-]+)\s*[;:]")
_VALUE = re.compile(r'[^:;]*(?:;(?:"[^"]*"|[^":])*)*:')
_TOP = frozenset(["VEVENT", "VTIMEZONE"])


@dataclass(slots=True)
class RawComponent:
    """The lines of one component, from BEGIN to END."""

    name: str
    line: int
    """The line number in the file where it begins, from 1."""
    lines: list[str] = field(default_factory=list)
    whole: bool = True
    """Whether its END is there."""
    uid: str = ""
    """The unparsed UID, '' if missing."""
    start: str = ""
    """The unparsed DTSTART, '' if missing."""
    end: str = ""
    """The line with its DTEND or DURATION, '' if missing."""
    alarms: list[list[str] | None] = field(default_factory=list)
    """The lines of each alarm, None for one that is cut off."""
    recurs: bool = False
    """Whether it has a property of a series or of its occurrences."""

    @property
    def text(self) -> str:
        """The component as text for the library."""
        return "\r\n".join([*self.lines, ""])

    @property
    def content(self) -> bytes:
        """All that its reminders depend on."""
        return repr((self.end, self.alarms, self.whole)).encode() + self.text.encode()

    def value(self, name: str) -> str:
        """Return the raw value of a property, '' if missing; used to name components that cannot be parsed."""
        return next((_value(line) for line in self.lines if line.upper().startswith((f"{name}:", f"{name};"))), "")


@dataclass(slots=True)
class RawCalendar:
    """The unparsed components of one VCALENDAR."""

    events: list[RawComponent] = field(default_factory=list)
    zones: list[RawComponent] = field(default_factory=list)
    zone: str = ""
    """X-WR-TIMEZONE: the time zone of events without one."""
    method: str = ""
    errors: list[tuple[int, str]] = field(default_factory=list)
    """Errors of its structure: line number and description."""


def split(data: bytes) -> list[RawCalendar]:
    """Return the calendars of a file, at least one; errors of its structure are returned, not raised."""
    splitter = _Splitter()
    for number, line in _lines(data):
        head = line[:6].upper()
        if splitter.in_event and head[:3] not in _HEADS and head[:1].isalpha():
            continue  # most lines, of which nothing is needed
        if head == b"BEGIN:":
            splitter.begin(_name(line[6:]), line, number)
        elif head.startswith(b"END:"):
            splitter.end(_name(line[4:]), line, number)
        else:
            splitter.add(line)
    return splitter.finish()


class _Splitter:
    """Collects the components from the lines of a file."""

    def __init__(self) -> None:
        self._all = [RawCalendar()]
        self._raw: RawComponent | None = None
        self._depth: list[str] = []
        self._calendars = self._ended = 0
        self._last = 1
        self.in_event = False
        """Whether the next line is of an event."""

    def begin(self, name: str, line: bytes, number: int) -> None:
        self._last = number
        if name == "VCALENDAR":
            self._end_unfinished()
            self._calendars += 1
            if self._calendars > 1:
                self._all.append(RawCalendar())
            return
        if name in _TOP:
            self._end_unfinished()
        if self._raw is None:
            self._raw = RawComponent(name, number)
            self.in_event = name == "VEVENT"
        self._depth.append(name)
        if self.in_event and len(self._depth) == 2:  # noqa: PLR2004 - directly in it
            self._raw.alarms += [[] for _ in range(name == "VALARM")]
        elif not self.in_event or len(self._depth) == 1:
            self._raw.lines.append(_text(line))

    def end(self, name: str, line: bytes, number: int) -> None:
        self._last = number
        if name == "VCALENDAR":
            self._end_unfinished()
            self._ended += 1
        elif self._raw is None:
            self._calendar.errors.append((number, f"END:{name[:40]} without its BEGIN"))
        elif self._depth[-1] == name:
            self._depth.pop()
            if not self.in_event or not self._depth:
                self._raw.lines.append(_text(line))
            if not self._depth:
                self._put(self._raw)
        elif name == self._raw.name and self._depth == [name, "VALARM"]:
            self._raw.alarms[-1] = None
            self._raw.lines.append(_text(line))
            self._put(self._raw)
        elif name == self._raw.name:
            self._end_unfinished()
        else:
            self._raw.whole = False

    def add(self, line: bytes) -> None:
        found = _NAME.match(line)
        name = found[1].upper() if found else b""
        if self._raw is not None:
            self._add_to(self._raw, name, line)
        elif name == b"X-WR-TIMEZONE":
            self._calendar.zone = self._calendar.zone or _text(line).partition(":")[2].strip()
        elif name == b"METHOD":
            self._calendar.method = _text(line).partition(":")[2].strip().upper()

    def _add_to(self, raw: RawComponent, name: bytes, line: bytes) -> None:
        if not self.in_event:
            raw.lines.append(_text(line))
        elif len(self._depth) > 1:
            alarm = raw.alarms[-1] if self._depth[1:] == ["VALARM"] else None
            if alarm is not None and name in _OF_ALARM:
                alarm.append(_text(line))
        elif name in _NEEDED:
            raw.lines.append(text := _text(line))
            if name == b"UID":
                raw.uid = raw.uid or _value(text)
            elif name == b"DTSTART":
                raw.start = raw.start or text.rpartition(":")[2].strip()
            elif name in _RECURRING:
                raw.recurs = True
        elif name in _OF_END:
            raw.end = raw.end or _text(line)

    @property
    def _calendar(self) -> RawCalendar:
        return self._all[-1]

    def finish(self) -> list[RawCalendar]:
        self._end_unfinished()
        if not self._calendars:
            self._calendar.errors.append((1, "not an iCalendar file: BEGIN:VCALENDAR is missing"))
        elif self._ended < self._calendars:
            self._calendar.errors.append((self._last, "the file is cut off: END:VCALENDAR is missing"))
        return self._all

    def _end_unfinished(self) -> None:
        if self._raw is not None:
            self._raw.whole = False
            self._put(self._raw)

    def _put(self, raw: RawComponent) -> None:
        kinds = {"VEVENT": self._calendar.events, "VTIMEZONE": self._calendar.zones}
        kinds.get(raw.name, []).append(raw)
        self._raw, self._depth, self.in_event = None, [], False


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield unfolded lines with their first line numbers; as bytes, since a fold may split a character."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", "replace").encode()
    first, line = 0, b""
    for number, raw in enumerate(data.removeprefix(codecs.BOM_UTF8).splitlines(), 1):
        if raw[:1] in (b" ", b"\t"):
            line += raw[1:]
            continue
        if line:
            yield first, line
        first, line = number, raw
    if line:
        yield first, line


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:  # written by older Windows programs
        return line.decode("cp1252", "replace")


def _value(line: str) -> str:
    """Return the value of a property, behind parameters that may have a colon in quotes."""
    return _VALUE.sub("", line, count=1).strip()


def _name(rest: bytes) -> str:
    return rest.strip().upper().decode("ascii", "replace")
