"""Splits an iCalendar file into its components, so that a broken one does not affect the others.

It handles only BEGIN, END and folded lines; the library parses the components. Of an event it keeps only the lines that
a reminder needs: parsing is twice as fast, and errors in other lines do no harm.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_NEEDED = frozenset(
    b"BEGIN END UID DTSTART RRULE RDATE EXDATE RECURRENCE-ID SEQUENCE STATUS SUMMARY LOCATION TRIGGER ACTION".split()
)
_NAME = re.compile(rb"\s*([A-Za-z0-9-]+)\s*[;:]")
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

    @property
    def text(self) -> str:
        """The component as text for the library."""
        return "\r\n".join([*self.lines, ""])

    def value(self, name: str) -> str:
        """Return the raw value of a property, '' if missing; used to name components that cannot be parsed."""
        for line in self.lines:
            if line.upper().startswith((f"{name}:", f"{name};")):
                return line.partition(":")[2].strip()
        return ""


@dataclass(slots=True)
class RawCalendar:
    """The unparsed components of one file."""

    events: list[RawComponent] = field(default_factory=list)
    zones: list[RawComponent] = field(default_factory=list)
    zone: str = ""
    """X-WR-TIMEZONE: the time zone of events without one."""
    method: str = ""
    errors: list[tuple[int, str]] = field(default_factory=list)
    """Errors of the file itself: line number and description."""


def split(data: bytes) -> RawCalendar:
    """Return the components of a file; errors of its structure are returned, not raised."""
    splitter = _Splitter()
    for number, line in _lines(data):
        head = line[:6].upper()
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
        self._calendar = RawCalendar()
        self._raw: RawComponent | None = None
        self._depth: list[str] = []
        self._calendars = self._ended = 0
        self._last = 1

    def begin(self, name: str, line: bytes, number: int) -> None:
        self._last = number
        if name == "VCALENDAR":
            self._end_unfinished()
            self._calendars += 1
            return
        if name in _TOP:
            self._end_unfinished()
        if self._raw is None:
            self._raw = RawComponent(name, number)
        self._depth.append(name)
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
            self._raw.lines.append(_text(line))
            if not self._depth:
                self._put(self._raw)
        elif name == self._raw.name:
            self._end_unfinished()
        else:
            self._raw.whole = False

    def add(self, line: bytes) -> None:
        found = _NAME.match(line)
        name = found[1].upper() if found else b""
        if self._raw is not None:
            if self._raw.name != "VEVENT" or name in _NEEDED:
                self._raw.lines.append(_text(line))
        elif name == b"X-WR-TIMEZONE":
            self._calendar.zone = self._calendar.zone or _text(line).partition(":")[2].strip()
        elif name == b"METHOD":
            self._calendar.method = _text(line).partition(":")[2].strip().upper()

    def finish(self) -> RawCalendar:
        self._end_unfinished()
        if not self._calendars:
            self._calendar.errors.append((1, "not an iCalendar file: BEGIN:VCALENDAR is missing"))
        elif self._ended < self._calendars:
            self._calendar.errors.append((self._last, "the file is cut off: END:VCALENDAR is missing"))
        return self._calendar

    def _end_unfinished(self) -> None:
        if self._raw is not None:
            self._raw.whole = False
            self._put(self._raw)

    def _put(self, raw: RawComponent) -> None:
        kinds = {"VEVENT": self._calendar.events, "VTIMEZONE": self._calendar.zones}
        kinds.get(raw.name, []).append(raw)
        self._raw, self._depth = None, []


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


def _name(rest: bytes) -> str:
    return rest.strip().upper().decode("ascii", "replace")
