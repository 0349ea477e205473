"""What an import knows of the one before: the events of each uid, as long as their lines in the files are the same.

Reading an event takes a hundred times as long as comparing its lines, and most have not changed since last night.
"""

from __future__ import annotations

import hashlib
import zoneinfo
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timezone
from typing import NamedTuple

from delayq.reminders.event import PINNED, Event
from delayq.schedules.recurring.local_times import releases

_READER = 4
"""Changes whenever a new version reads other events from the same lines."""
FOREVER = 0
"""In place of the time until which a uid is known: there is nothing later."""


class Found(NamedTuple):
    """The events of a uid."""

    events: list[Event]
    until: int = FOREVER
    """Until when there are no others, in milliseconds since 1970, or `FOREVER`."""
    why: str = "past"
    """Why there are none, if there are none."""


class Mark(NamedTuple):
    """What is known of a uid."""

    digest: bytes
    """Of its lines in the files, and of what else they depend on."""
    until: int
    """Until when its events are known, in milliseconds since 1970, or `FOREVER`."""
    size: int = 1
    """Events in the files that have the uid."""
    why: str = "past"
    """Why it has no events, if it has none."""


@dataclass(frozen=True, slots=True)
class KnownEvents:
    """The events that an import has read, for the next one."""

    context: str = ""
    """What all events depend on: the time zone database and the options of reading."""
    at: int = 0
    """When they were read, in milliseconds since 1970; earlier ones are not known."""
    marks: dict[str, Mark] = field(default_factory=dict, repr=False)
    """By uid; those that have problems are missing, so that they are reported again."""
    events: dict[str, list[Event]] = field(default_factory=dict, repr=False)
    """By uid, also some beyond the horizon of the import."""
    files: bytes = b""
    """A digest of the files if all that is in them is known."""
    found: int = 0
    """Events in the files."""

    def find(self, uid: str, digest: bytes, last: int) -> list[Event] | None:
        """Return the events of a uid until a time in milliseconds, or later ones too; None if not known."""
        mark = self.marks.get(uid)
        if mark is None or mark.digest != digest or (mark.until != FOREVER and mark.until < last):
            return None
        return self.events.get(uid, [])

    def find_all(self, files: bytes, last: int) -> bool:
        """Return whether all events of files are known until a time in milliseconds."""
        return self.files == files and all(mark.until == FOREVER or mark.until >= last for mark in self.marks.values())

    def same_as(self, other: KnownEvents) -> bool:
        """Return whether the next import gains nothing from this that it does not have from the other."""
        return not self.marks or (self.context, self.files, self.marks) == (other.context, other.files, other.marks)


def can_be_known(event: Event) -> bool:
    """Return whether an event can be stored as it is: its time zone is not defined by its file alone."""
    zone = getattr(event.start, "tzinfo", None)
    named = zone is None or isinstance(zone, timezone) or bool(isinstance(zone, zoneinfo.ZoneInfo) and zone.key)
    return named and event.zone != PINNED


def context_of(*, alarms: bool) -> str:
    """Return what all events depend on besides their files."""
    return f"{_READER} {'alarms' if alarms else ''} {' '.join(releases())}"


def digest_of(parts: Iterable[bytes]) -> bytes:
    """Return a short digest of parts, each of which ends by itself."""
    return hashlib.blake2b(b"\0".join(parts), digest_size=8).digest()
