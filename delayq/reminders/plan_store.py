"""The plan of a calendar as it is kept in Redis: packed, with what a new plan needs to know of the last one.

An event is kept as its time on the wall with the name of its zone, so that it can be planned again where a newer
database of time zones puts it elsewhere.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from delayq.errors import ConfigurationError
from delayq.reminders.event import PINNED, Event
from delayq.reminders.offsets import Offset
from delayq.reminders.planning import Reminder, Rules, stem_of
from delayq.reminders.quiet import QuietHours
from delayq.reminders.zones import find_zone
from delayq.schedules.timetable import check_zone

VERSION = 1
"""Of what is packed."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a calendar."""

    revision: int = 0
    """0 where nothing is kept."""
    rules: Rules | None = None
    at: int = 0
    """When it was kept, in milliseconds since 1970."""
    reminders: dict[str, Reminder] = field(default_factory=dict, repr=False)
    """What is in the queue, or was and has been delivered."""
    doubtful: frozenset[str] = frozenset()
    """Ids of which it is not known whether they are in the queue: their import has not ended."""

    @property
    def pinned(self) -> list[Reminder]:
        """The reminders of events that cannot be planned again, since only their file knows their zone."""
        return [reminder for reminder in self.reminders.values() if reminder.event.zone == PINNED]


class _Row(msgspec.Struct, array_like=True, gc=False):
    """One event with its reminders."""

    uid: str
    recurrence: str
    start: str
    own_zone: str
    calendar_zone: str
    summary: str
    location: str
    told: str
    told_zone: str
    alarms: list[str]
    reminders: list[tuple[str, int]]


class _Packed(msgspec.Struct, array_like=True):
    version: int
    at: int
    offsets: list[str]
    quiet: str
    tz: str
    rows: list[_Row]
    doubtful: list[str]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


def pack(rules: Rules, reminders: Iterable[Reminder], *, at: int, doubtful: Iterable[str] = ()) -> bytes:
    """Return a plan as it is kept."""
    rows: dict[tuple[str, str], _Row] = {}
    for reminder in reminders:
        event = reminder.event
        row = rows.get((event.uid, event.recurrence))
        if row is None:
            row = rows[event.uid, event.recurrence] = _row(reminder)
        row.reminders.append((reminder.offset, reminder.due))
    packed = _Packed(VERSION, at, *rules.texts, [*rows.values()], [*doubtful])
    return zlib.compress(_encode(packed), 1)


def unpack(calendar: str, held: bytes | None) -> Kept:
    """Return what is kept of a calendar, as Redis holds it: the revision, a blank, and the plan."""
    if not held:
        return Kept()
    number, _, packed = held.partition(b" ")
    try:
        plan = _decode(zlib.decompress(packed))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ConfigurationError(f"the plan of calendar {calendar} is of no version that this delayq reads") from error
    offsets = tuple(Offset.of(text) for text in plan.offsets)
    rules = Rules(calendar, offsets, QuietHours.of(plan.quiet or None), check_zone(plan.tz) if plan.tz else None)
    reminders = {}
    for row in plan.rows:
        event = _event(row)
        stem = stem_of(calendar, event)
        for offset, due in row.reminders:
            reminders[stem + offset] = Reminder(stem + offset, due, offset, event, row.told, row.told_zone)
    return Kept(int(number), rules, plan.at, reminders, frozenset(plan.doubtful))


def _row(reminder: Reminder) -> _Row:
    event = reminder.event
    start, zone = _start_out(event.start)
    calendar_zone = event.zone
    if PINNED in {event.zone, zone}:
        zone = calendar_zone = PINNED
    alarms = [offset.text for offset in event.alarms]
    said = event.summary, event.location, reminder.start, reminder.zone
    return _Row(event.uid, event.recurrence, start, zone, calendar_zone, *said, alarms, [])


def _start_out(start: Any) -> tuple[str, str]:
    """Return a start as text, and the name of the zone on whose clocks it is."""
    zone = getattr(start, "tzinfo", None)
    if isinstance(zone, ZoneInfo) and zone.key:  # of a time that the clocks show twice, the second needs its distance
        return (start if start.fold else start.replace(tzinfo=None)).isoformat(), zone.key
    if zone is None or isinstance(zone, timezone):
        return start.isoformat(), ""
    return start.astimezone(UTC).isoformat(), "" if isinstance(zone, ZoneInfo) else PINNED


def _event(row: _Row) -> Event:
    start: datetime | date
    calendar_zone = row.calendar_zone
    if len(row.start) == len("2027-01-31"):
        start = date.fromisoformat(row.start)
    else:
        start = datetime.fromisoformat(row.start)
        if row.own_zone not in ("", PINNED):
            if zone := find_zone(row.own_zone):
                start = start.astimezone(zone) if start.tzinfo else start.replace(tzinfo=zone)
            else:  # this machine has an older database than the one that planned it
                start, calendar_zone = datetime.fromisoformat(row.told), PINNED
    alarms = tuple(Offset.of(text) for text in row.alarms)
    return Event(row.uid, start, row.summary, row.location, row.recurrence, calendar_zone, alarms)
