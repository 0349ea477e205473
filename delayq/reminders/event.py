"""Events to be reminded of, and when and in which time zone they start."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from delayq.errors import ConfigurationError, short_repr
from delayq.reminders.offsets import Offset, find_zone

PINNED = "?"
"""In place of the name of an unknown time zone: such an event keeps its time in UTC."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, or one occurrence of an event that recurs.

    `start` is an aware datetime, a naive one for local time anywhere, or a date for an all-day event. `uid` is the same
    whenever the event is read. `recurrence` identifies an occurrence by its original start.
    """

    uid: str
    start: datetime | date
    summary: str = ""
    location: str = ""
    recurrence: str = ""
    zone: str = ""
    """Name of the calendar's time zone, for a start without a zone or in UTC."""
    alarms: tuple[Offset, ...] = ()
    """Offsets of extra reminders of this event, in addition to those of the plan."""

    @property
    def all_day(self) -> bool:
        """Whether it is an all-day event."""
        return not isinstance(self.start, datetime)


class EventStart(NamedTuple):
    """When an event starts."""

    at: datetime
    """In UTC."""
    zone: tzinfo
    """The time zone for days, times of day and quiet hours."""
    latest: datetime
    """The latest useful time for a reminder: the start, or the end of the first day of an all-day event."""
    text: str
    """The start to show to people: a date, or the local time with its UTC offset."""


def start_of(event: Event, tz: ZoneInfo | None) -> EventStart:
    """Return when an event starts, in the zone `tz`, else its own, else its calendar's, else UTC."""
    start = event.start
    if not isinstance(start, datetime):
        if not isinstance(start, date):
            raise ConfigurationError(
                f"the start of event {short_repr(event.uid)} must be a datetime or a date, not {short_repr(start)}"
            )
        zone = tz or _calendar_zone(event)
        at = datetime.combine(start, time()).replace(tzinfo=zone)
        next_day = datetime.combine(start + timedelta(days=1), time()).replace(tzinfo=zone)
        return EventStart(at.astimezone(UTC), zone, next_day.astimezone(UTC), start.isoformat())
    if start.utcoffset() is None:
        zone = tz or _calendar_zone(event)
        start = start.replace(tzinfo=zone, fold=0)
    else:
        own = start.tzinfo
        in_utc = own is UTC or getattr(own, "key", "") == "UTC"
        zone = tz or (_calendar_zone(event) if in_utc or own is None else own)
    at = start.astimezone(UTC)
    return EventStart(at, zone, at, at.astimezone(zone).isoformat(timespec="seconds"))


def zone_name(zone: tzinfo) -> str:
    """Return the name of a time zone, '' if it has none."""
    return "UTC" if zone is UTC else getattr(zone, "key", "") or ""


def _calendar_zone(event: Event) -> tzinfo:
    if event.zone in ("", PINNED):
        return UTC
    zone = find_zone(event.zone)
    if zone is None:
        raise ConfigurationError(f"event {short_repr(event.uid)}: unknown time zone {short_repr(event.zone)}")
    return zone
