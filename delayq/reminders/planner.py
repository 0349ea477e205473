"""Plans the reminders of events: their due times, ids and payloads. Pure functions without a clock."""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from delayq.broker.keys import check_name
from delayq.errors import ConfigurationError, short_repr
from delayq.reminders.event import Event, EventStart, start_of, zone_name
from delayq.reminders.offsets import Offset, QuietHours, offsets_of
from delayq.schedules.recurring.local_times import check_zone
from delayq.values.times import timestamp

_PLAIN = re.compile(r"(?!=)[A-Za-z0-9._:@/+=-]{1,64}")
"""A uid and recurrence that can be part of an id unchanged."""

_MAX_NAME = 32
"""Characters of a calendar's name: it is part of every id, which is limited to 128."""

Before = str | timedelta | Offset | Iterable[str | timedelta | Offset]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which a calendar's events become reminders; stored with its plan."""

    calendar: str
    """The calendar's name: the ids of its reminders start with it."""
    offsets: tuple[Offset, ...]
    quiet: QuietHours | None = None
    tz: ZoneInfo | None = None
    """The time zone for days, times of day and quiet hours, instead of the events' own."""

    @classmethod
    def of(
        cls, calendar: str, before: Before, *, quiet: QuietHours | str | None = None, tz: ZoneInfo | str | None = None
    ) -> Rules:
        """Return rules from the user's options; raises `ConfigurationError` for invalid ones."""
        if len(check_name(calendar, "calendar")) > _MAX_NAME:
            raise ConfigurationError(f"calendar must be at most {_MAX_NAME} characters, not {short_repr(calendar)}")
        zone = check_zone(tz) if isinstance(tz, str) else tz
        if zone is not None and not (isinstance(zone, ZoneInfo) and zone.key):
            raise ConfigurationError(f"tz must be a named time zone such as 'Europe/Berlin', not {short_repr(tz)}")
        return cls(calendar, offsets_of(before), QuietHours.of(quiet), zone)

    @property
    def texts(self) -> tuple[list[str], str, str]:
        """The offsets, quiet hours and time zone as texts, '' for those not set."""
        offsets = [offset.text for offset in self.offsets]
        return offsets, self.quiet.text if self.quiet else "", self.tz.key if self.tz else ""


@dataclass(frozen=True, slots=True)
class Reminder:
    """One message of a plan, due before an event."""

    id: str
    due: int
    """In milliseconds since 1970."""
    offset: str
    event: Event
    start: str
    """The event's start as shown in the message."""
    zone: str
    """Name of the time zone of that start, '' if it has none."""

    @property
    def payload(self) -> dict[str, Any]:
        """The payload of its message."""
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
        """Return whether another reminder with this id has the same due time and content."""
        one, two = self.event, other.event
        ours, theirs = (self.due, self.start, self.zone), (other.due, other.start, other.zone)
        return ours == theirs and (one.summary, one.location) == (two.summary, two.location)


@dataclass(frozen=True, slots=True)
class Plan:
    """The reminders of a calendar, by id."""

    rules: Rules
    reminders: dict[str, Reminder] = field(repr=False)

    def __len__(self) -> int:
        return len(self.reminders)

    def __iter__(self) -> Iterator[Reminder]:
        """Yield the reminders in the order of their due times."""
        return iter(sorted(self.reminders.values(), key=lambda reminder: (reminder.due, reminder.id)))


def plan(events: Iterable[Event], rules: Rules, *, now: datetime, known: Iterable[Reminder] = ()) -> Plan:
    """Return the reminders of all events that have not started by `now`.

    Of events with the same uid and recurrence, the last counts. No reminder is due after the start of its event: if the
    offset would put it there (`0d@09:00` for an event at 08:00), it is due at the start. An all-day event can have
    reminders on its day. `known` are reminders of the same objects by the same rules and time zones.
    """
    at = timestamp(now, "now")
    reminders: dict[str, Reminder] = {}
    planned: dict[int, list[Reminder]] = {}
    for reminder in known:
        planned.setdefault(id(reminder.event), []).append(reminder)
    for event in {(event.uid, event.recurrence): event for event in events}.values():
        ready = planned.get(id(event))
        if ready and len(ready) == len({*rules.offsets, *event.alarms}) and min(one.due for one in ready) > at:
            reminders.update((reminder.id, reminder) for reminder in ready)
            continue
        try:
            starts = start_of(event, rules.tz)
            if starts.latest > now:
                reminders.update((reminder.id, reminder) for reminder in _reminders(event, starts, rules))
        except OverflowError as error:
            raise ConfigurationError(f"the start of event {short_repr(event.uid)} is out of range") from error
    return Plan(rules, reminders)


def _reminders(event: Event, starts: EventStart, rules: Rules) -> Iterator[Reminder]:
    prefix, zone = id_prefix(rules.calendar, event), zone_name(starts.zone)
    for text, offset in {offset.text: offset for offset in (*rules.offsets, *event.alarms)}.items():
        due = offset.before(starts.at, starts.zone)
        latest = max(starts.latest, due) if offset.seconds < 0 else starts.latest
        due = min(due, latest)
        if rules.quiet is not None:
            due = rules.quiet.move(due, starts.zone, latest)
        at = timestamp(due, f"a reminder of event {event.uid:.60}")
        yield Reminder(prefix + text, at, text, event, starts.text, zone)


def id_prefix(calendar: str, event: Event) -> str:
    """Return the prefix of the ids of an event's reminders; it is unique to the event.

    A recurrence has no slash, so the last slash separates it. A hash starts with `=`, as no plain text does.
    """
    if not isinstance(event.uid, str) or not event.uid:
        raise ConfigurationError(f"the uid of an event must be a non-empty str, not {short_repr(event.uid)}")
    both = f"{event.uid}/{event.recurrence}"
    if _PLAIN.fullmatch(both) and "/" not in event.recurrence:
        return f"{calendar}/{both}/"
    digest = hashlib.blake2b(f"{len(event.uid)}/{both}".encode("utf-8", "surrogatepass"), digest_size=15).digest()
    return f"{calendar}/={urlsafe_b64encode(digest).decode()}/"
