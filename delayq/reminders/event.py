"""An event that people are to be reminded of, and when it begins on whose clocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

from delayq.errors import ConfigurationError, shown
from delayq.reminders.offsets import Offset
from delayq.reminders.zones import find_zone

PINNED = "?"
"""In place of the name of a zone that is not known any more: such an event stays at the moment it was put to."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, or one occurrence of an event that recurs.

    `start` is an aware datetime; or a naive one, which is that time on the wall wherever one is; or a date, for an
    event that lasts all day. `uid` is the same whenever the event is read, and `recurrence` tells its occurrences apart
    by the start that each had at first.
    """

    uid: str
    start: datetime | date
    summary: str = ""
    location: str = ""
    recurrence: str = ""
    zone: str = ""
    """Name of the calendar's zone, for a start that has none of its own or is given in UTC."""
    alarms: tuple[Offset, ...] = ()
    """Offsets of reminders that this event has besides those of the plan."""

    @property
    def all_day(self) -> bool:
        """Whether it lasts all day."""
        return not isinstance(self.start, datetime)


class Beginning(NamedTuple):
    """When an event begins."""

    at: datetime
    """In UTC."""
    zone: tzinfo
    """The zone on whose clocks days, times of day and quiet hours are counted."""
    latest: datetime
    """The end of the time in which a reminder is of use: the beginning, or the end of an event's first whole day."""
    text: str
    """For whoever is reminded: a date, or the time on those clocks with its distance from UTC."""


def beginning(event: Event, tz: ZoneInfo | None) -> Beginning:
    """Return when an event begins, on the clocks of `tz`, else of its own zone, else of its calendar's, else of UTC."""
    start = event.start
    if not isinstance(start, datetime):
        if not isinstance(start, date):
            raise ConfigurationError(f"the start of event {shown(event.uid)} must be a datetime or a date")
        zone = tz or _calendar_zone(event)
        at = datetime.combine(start, time()).replace(tzinfo=zone)
        over = datetime.combine(start + timedelta(days=1), time()).replace(tzinfo=zone)
        return Beginning(at.astimezone(UTC), zone, over.astimezone(UTC), start.isoformat())
    if start.utcoffset() is None:
        zone = tz or _calendar_zone(event)
        start = start.replace(tzinfo=zone, fold=0)
    else:
        own = start.tzinfo
        in_utc = own is UTC or getattr(own, "key", "") == "UTC"
        zone = tz or (_calendar_zone(event) if in_utc or own is None else own)
    at = start.astimezone(UTC)
    return Beginning(at, zone, at, at.astimezone(zone).isoformat(timespec="seconds"))


def zone_name(zone: tzinfo) -> str:
    """Return how a zone is called; '' for one that has no name."""
    return "UTC" if zone is UTC else getattr(zone, "key", "") or ""


def _calendar_zone(event: Event) -> tzinfo:
    if event.zone in ("", PINNED):
        return UTC
    zone = find_zone(event.zone)
    if zone is None:
        raise ConfigurationError(f"event {shown(event.uid)}: unknown time zone {shown(event.zone)}")
    return zone
