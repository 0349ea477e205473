"""From events to reminders: when each is due, under which id, and what its message says. Nothing here reads a clock."""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from delayq.clock import timestamp
from delayq.errors import ConfigurationError, shown
from delayq.keys import check_name
from delayq.reminders.event import Beginning, Event, beginning, zone_name
from delayq.reminders.offsets import Offset, offsets_of
from delayq.reminders.quiet import QuietHours
from delayq.schedules.timetable import check_zone

_PLAIN = re.compile(r"(?!=)[A-Za-z0-9._:@/+=-]{1,64}")
"""What of an event's uid and recurrence stands in an id as it is."""

_LONGEST_NAME = 32
"""Characters of a calendar's name: it is part of every id, which has 128."""

Before = str | timedelta | Offset | Iterable[str | timedelta | Offset]


@dataclass(frozen=True, slots=True)
class Rules:
    """What turns the events of a calendar into reminders; kept with its plan."""

    calendar: str
    """The calendar's name: its reminders' ids begin with it."""
    offsets: tuple[Offset, ...]
    quiet: QuietHours | None = None
    tz: ZoneInfo | None = None
    """The zone on whose clocks days, times of day and quiet hours are counted, in place of the events' own."""

    @classmethod
    def of(
        cls, calendar: str, before: Before, *, quiet: QuietHours | str | None = None, tz: ZoneInfo | str | None = None
    ) -> Rules:
        """Return rules from what users write; `ConfigurationError` says what of it is wrong."""
        if len(check_name(calendar, "calendar")) > _LONGEST_NAME:
            raise ConfigurationError(f"calendar must be at most {_LONGEST_NAME} characters, not {shown(calendar)}")
        zone = check_zone(tz) if isinstance(tz, str) else tz
        if zone is not None and not (isinstance(zone, ZoneInfo) and zone.key):
            raise ConfigurationError(f"tz must be a zone with a name, such as 'Europe/Berlin', not {shown(tz)}")
        return cls(calendar, offsets_of(before), QuietHours.of(quiet), zone)

    @property
    def texts(self) -> tuple[list[str], str, str]:
        """The offsets, the quiet hours and the zone as texts; '' for what there is not."""
        offsets = [offset.text for offset in self.offsets]
        return offsets, self.quiet.text if self.quiet else "", self.tz.key if self.tz else ""


@dataclass(frozen=True, slots=True)
class Reminder:
    """One message of a plan: that an event is near."""

    id: str
    due: int
    """In milliseconds since 1970."""
    offset: str
    event: Event
    start: str
    """The event's start as its message gives it."""
    zone: str
    """Name of the zone of that start, '' for one without a name."""

    @property
    def payload(self) -> dict[str, Any]:
        """What its message says."""
        event = self.event
        return {
            "calendar": self.id.partition("/")[0],
            "uid": event.uid,
            "recurrence": event.recurrence,
            "summary": event.summary,
            "location": event.location,
            "start": self.start,
            "zone": self.zone,
            "all_day": event.all_day,
            "offset": self.offset,
        }

    def same_as(self, other: Reminder) -> bool:
        """Tell whether another reminder of this id is due at the same time and says the same."""
        one, two = self.event, other.event
        return (
            self.due == other.due
            and self.start == other.start
            and self.zone == other.zone
            and one.summary == two.summary
            and one.location == two.location
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The reminders of a calendar, by id."""

    rules: Rules
    reminders: dict[str, Reminder] = field(repr=False)

    def __len__(self) -> int:
        """Return how many reminders there are."""
        return len(self.reminders)

    def __iter__(self) -> Iterator[Reminder]:
        """Yield the reminders in the order of their due times."""
        return iter(sorted(self.reminders.values(), key=lambda reminder: (reminder.due, reminder.id)))


def plan(events: Iterable[Event], rules: Rules, *, now: datetime) -> Plan:
    """Return the reminders of all events that have not begun by `now`.

    Of two events with the same uid and recurrence the last counts. A reminder comes never after its event has begun:
    one whose offset says so (`0d@09:00` of an event at 08:00) is due at the beginning. An event that lasts all day may
    still be told of on its day.
    """
    timestamp(now, "now")
    reminders: dict[str, Reminder] = {}
    for event in {(event.uid, event.recurrence): event for event in events}.values():
        for reminder in reminders_of(event, rules, now=now):
            reminders[reminder.id] = reminder
    return Plan(rules, reminders)


def reminders_of(event: Event, rules: Rules, *, now: datetime) -> list[Reminder]:
    """Return the reminders of one event; none of one that has begun by `now`."""
    try:
        begins = beginning(event, rules.tz)
        if begins.latest <= now:
            return []
        return _reminders(event, begins, rules)
    except OverflowError as error:
        raise ConfigurationError(f"the start of event {shown(event.uid)} is out of range") from error


def _reminders(event: Event, begins: Beginning, rules: Rules) -> list[Reminder]:
    stem = stem_of(rules.calendar, event)
    zone, made, seen = zone_name(begins.zone), [], set()
    for offset in (*rules.offsets, *event.alarms):
        text = offset.text
        if text in seen:
            continue
        seen.add(text)
        due = min(offset.before(begins.at, begins.zone), begins.latest)
        if rules.quiet is not None:
            due = rules.quiet.move(due, begins.zone, begins.latest)
        at = timestamp(due, f"a reminder of event {event.uid:.60}")
        made.append(Reminder(stem + text, at, text, event, begins.text, zone))
    return made


def stem_of(calendar: str, event: Event) -> str:
    """Return what the ids of an event's reminders begin with; two events never have the same.

    A recurrence has no slash, so that the last one divides; what is hashed begins as no plain text does.
    """
    if not isinstance(event.uid, str) or not event.uid:
        raise ConfigurationError(f"an event needs a uid, a text, not {shown(event.uid)}")
    both = f"{event.uid}/{event.recurrence}"
    if _PLAIN.fullmatch(both) and "/" not in event.recurrence:
        return f"{calendar}/{both}/"
    digest = hashlib.blake2b(f"{len(event.uid)}/{both}".encode("utf-8", "surrogatepass"), digest_size=15).digest()
    return f"{calendar}/={urlsafe_b64encode(digest).decode()}/"
