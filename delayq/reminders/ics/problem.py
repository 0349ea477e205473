"""Problems of calendar files: one line for the user, with file, line and event."""

from __future__ import annotations

from dataclasses import dataclass


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
