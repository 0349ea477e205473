"""What of a file cannot be read: one line for the user, naming file and event."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that cannot be read."""

    file: str
    line: int
    what: str
    """What is wrong with it."""
    event: str = ""
    """How the event is called, '' if it is about the file."""
    uid: str = ""
    """The event's uid, '' if it is not known."""
    hides: bool = True
    """Whether an event may be missing for it."""

    def __str__(self) -> str:
        """Return the line that users read."""
        return f"{self.file}, line {self.line}: {f'event {self.event!r}: ' if self.event else ''}{self.what}"
