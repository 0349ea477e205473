"""Cutting an iCalendar file into its components, so that one that is broken does not take the others with it.

Only the lines BEGIN and END are understood here, and unfolding; what a component says is the library's to parse. Of an
event only the lines go there that a reminder needs: that is twice as fast, and a mistake in any other harms nothing.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_WANTED = frozenset(
    b"BEGIN END UID DTSTART RRULE RDATE EXDATE RECURRENCE-ID SEQUENCE STATUS SUMMARY LOCATION TRIGGER ACTION".split()
)
_NAME = re.compile(rb"\s*([A-Za-z0-9-]+)\s*[;:]")
_TOP = frozenset(["VEVENT", "VTIMEZONE"])


@dataclass(slots=True)
class Piece:
    """The lines of one component, from BEGIN to END."""

    name: str
    line: int
    """The line of the file on which it begins, as an editor counts."""
    lines: list[str] = field(default_factory=list)
    whole: bool = True
    """Whether it ends as it should."""

    @property
    def text(self) -> str:
        """The component as the library parses it."""
        return "\r\n".join([*self.lines, ""])

    def value(self, name: str) -> str:
        """Return the value of a property as it stands there, to name a component that cannot be parsed; '' if none."""
        for line in self.lines:
            if line.upper().startswith((f"{name}:", f"{name};")):
                return line.partition(":")[2].strip()
        return ""


@dataclass(slots=True)
class Pieces:
    """What one file holds."""

    events: list[Piece] = field(default_factory=list)
    zones: list[Piece] = field(default_factory=list)
    zone: str = ""
    """X-WR-TIMEZONE: the zone of what has none."""
    method: str = ""
    trouble: list[tuple[int, str]] = field(default_factory=list)
    """What is wrong with the file itself: the line, and what it is."""


def cut(data: bytes) -> Pieces:
    """Return the components of a file; what is wrong with its frame is told, not raised."""
    cutter = _Cutter()
    for number, line in _lines(data):
        head = line[:6].upper()
        if head == b"BEGIN:":
            cutter.begin(_name(line[6:]), line, number)
        elif head.startswith(b"END:"):
            cutter.end(_name(line[4:]), line, number)
        else:
            cutter.add(line)
    return cutter.finish()


class _Cutter:
    """Takes the lines of a file one after another."""

    def __init__(self) -> None:
        self._pieces = Pieces()
        self._piece: Piece | None = None
        self._depth: list[str] = []
        self._calendars = self._ended = 0
        self._last = 1

    def begin(self, name: str, line: bytes, number: int) -> None:
        self._last = number
        if name == "VCALENDAR":
            self._break_off()
            self._calendars += 1
            return
        if name in _TOP:
            self._break_off()
        if self._piece is None:
            self._piece = Piece(name, number)
        self._depth.append(name)
        self._piece.lines.append(_text(line))

    def end(self, name: str, line: bytes, number: int) -> None:
        self._last = number
        if name == "VCALENDAR":
            self._break_off()
            self._ended += 1
        elif self._piece is None:
            self._pieces.trouble.append((number, f"END:{name[:40]} without its BEGIN"))
        elif self._depth[-1] == name:
            self._depth.pop()
            self._piece.lines.append(_text(line))
            if not self._depth:
                self._put(self._piece)
        elif name == self._piece.name:
            self._break_off()
        else:
            self._piece.whole = False

    def add(self, line: bytes) -> None:
        found = _NAME.match(line)
        name = found[1].upper() if found else b""
        if self._piece is not None:
            if self._piece.name != "VEVENT" or name in _WANTED:
                self._piece.lines.append(_text(line))
        elif name == b"X-WR-TIMEZONE":
            self._pieces.zone = self._pieces.zone or _text(line).partition(":")[2].strip()
        elif name == b"METHOD":
            self._pieces.method = _text(line).partition(":")[2].strip().upper()

    def finish(self) -> Pieces:
        self._break_off()
        if not self._calendars:
            self._pieces.trouble.append((1, "not an iCalendar file: BEGIN:VCALENDAR is missing"))
        elif self._ended < self._calendars:
            self._pieces.trouble.append((self._last, "the file is cut off: END:VCALENDAR is missing"))
        return self._pieces

    def _break_off(self) -> None:
        """End a component whose END is missing."""
        if self._piece is not None:
            self._piece.whole = False
            self._put(self._piece)

    def _put(self, piece: Piece) -> None:
        if piece.name == "VEVENT":
            self._pieces.events.append(piece)
        elif piece.name == "VTIMEZONE":
            self._pieces.zones.append(piece)
        self._piece, self._depth = None, []


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines unfolded, with the numbers that they begin on: bytes, for a fold may divide a character."""
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
    except UnicodeDecodeError:  # what older programs on Windows write
        return line.decode("cp1252", "replace")


def _name(rest: bytes) -> str:
    return rest.strip().upper().decode("ascii", "replace")
