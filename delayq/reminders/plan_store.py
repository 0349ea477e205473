"""The plan of a calendar as it is stored in Redis: packed, with what the next import needs to compare with.

An event is stored as its local time with the name of its time zone, so that it can be planned again after a time zone
update.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from delayq.broker.calls import Calls
from delayq.broker.replies import integers, pairs
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.errors import ConfigurationError, UndecodableError
from delayq.privacy.ciphertext import is_encrypted
from delayq.privacy.encrypted import QueueCipher
from delayq.reminders.event import PINNED, Event
from delayq.reminders.known_events import KnownEvents, Mark
from delayq.reminders.offsets import Offset
from delayq.reminders.planner import Reminder, Rules, id_prefix
from delayq.reminders.quiet_hours import QuietHours
from delayq.reminders.zones import find_zone
from delayq.schedules.recurring.local_times import check_zone

VERSION = 1
"""Version of the packed format."""


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """The stored plan of a calendar."""

    revision: int = 0
    """0 if nothing is stored."""
    rules: Rules | None = None
    at: int = 0
    """When it was stored, in milliseconds since 1970."""
    reminders: dict[str, Reminder] = field(default_factory=dict, repr=False)
    """Reminders in the queue, or delivered already."""
    unconfirmed: frozenset[str] = frozenset()
    """Ids that may or may not be in the queue, because their import has not completed."""
    known: KnownEvents = field(default_factory=KnownEvents, repr=False)
    """What the last import has read."""

    @property
    def pinned(self) -> dict[str, Reminder]:
        """The reminders of events that cannot be planned again: only their file defines their time zone."""
        return {id: one for id, one in self.reminders.items() if one.event.zone == PINNED}


class _PackedEvent(msgspec.Struct, array_like=True, gc=False):
    """One event with its reminders."""

    uid: str
    recurrence: str
    start: str
    own_zone: str
    calendar_zone: str
    summary: str
    location: str
    shown_start: str
    shown_zone: str
    alarms: list[str]
    reminders: list[tuple[str, int]]


class _PackedPlan(msgspec.Struct, array_like=True):
    version: int
    at: int
    offsets: list[str]
    quiet: str
    tz: str
    rows: list[_PackedEvent]
    """Also events that are known but have no reminders."""
    unconfirmed: list[str]
    context: str = ""
    read_at: int = 0
    files: bytes = b""
    found: int = 0
    marks: list[tuple[str, bytes, int, int, str]] = []


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_PackedPlan).decode


def pack(
    rules: Rules,
    reminders: Iterable[Reminder],
    *,
    at: int,
    unconfirmed: Iterable[str] = (),
    known: KnownEvents | None = None,
) -> bytes:
    """Return a plan as bytes to store, with what the import has read."""
    known = known or KnownEvents()
    events = {(event.uid, event.recurrence): event for found in known.events.values() for event in found}
    rows: dict[tuple[str, str], _PackedEvent] = {}
    others: set[str] = set()
    for reminder in reminders:
        event = reminder.event
        key = event.uid, event.recurrence
        row = rows.get(key)
        if row is None:
            row = rows[key] = _row(event, reminder.start, reminder.zone)
            if events.pop(key, None) != event:
                others.add(event.uid)
        row.reminders.append((reminder.offset, reminder.due))
    for key, event in events.items():
        if event.uid not in others:
            rows[key] = _row(event, "", "")
    # A uid whose reminders are of other events than those just read is read again.
    marks = [(uid, *mark) for uid, mark in known.marks.items() if uid not in others]
    packed = _PackedPlan(
        VERSION,
        at,
        *rules.texts,
        [*rows.values()],
        [*unconfirmed],
        known.context,
        known.at,
        b"" if others else known.files,
        known.found,
        marks,
    )
    return zlib.compress(_encode(packed), 1)


def seal_plan(packed: bytes, codec: Any) -> bytes:
    """Return a packed plan as it is stored: encrypted if the codec of the queue encrypts."""
    return codec.for_plans().seal(packed) if packed and isinstance(codec, QueueCipher) else packed


def is_sealed(data: bytes | None, codec: Any) -> bool:
    """Tell whether a stored plan is as `codec` would store it now: with its first key, if it encrypts."""
    return not isinstance(codec, QueueCipher) or (data or b"").partition(b" ")[2].startswith(codec.head)


def is_encrypted_plan(data: bytes) -> bool:
    """Tell whether a stored plan is encrypted."""
    return is_encrypted(data.partition(b" ")[2])


def encrypted_plan(calendar: str) -> ConfigurationError:
    """Return the error of a plan that cannot be read without a key."""
    return ConfigurationError(f"the plan of calendar {calendar} is encrypted: use a program that has its keys")


def unpack(calendar: str, data: bytes | None, codec: Any = None) -> StoredPlan:
    """Return a plan from its stored bytes: the revision, a blank, and the packed plan, which `codec` may decrypt."""
    if not data:
        return StoredPlan()
    number, _, packed = data.partition(b" ")
    if is_encrypted(packed):
        if not isinstance(codec, QueueCipher):
            raise encrypted_plan(calendar)
        try:
            packed = codec.for_plans().unseal(packed)
        except UndecodableError as error:
            raise ConfigurationError(f"cannot read the plan of calendar {calendar}: {error}") from None
    try:
        plan = _decode(zlib.decompress(packed))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ConfigurationError(
            f"cannot read the plan of calendar {calendar}: it was stored by another version of delayq"
        ) from error
    offsets = tuple(Offset.of(text) for text in plan.offsets)
    rules = Rules(calendar, offsets, QuietHours.of(plan.quiet or None), check_zone(plan.tz) if plan.tz else None)
    reminders = {}
    events: dict[str, list[Event]] = {}
    for row in plan.rows:
        event = _event(row)
        events.setdefault(row.uid, []).append(event)
        prefix = id_prefix(calendar, event) if row.reminders else ""
        for offset, due in row.reminders:
            reminders[prefix + offset] = Reminder(prefix + offset, due, offset, event, row.shown_start, row.shown_zone)
    marks = {uid: Mark(digest, until, size, why) for uid, digest, until, size, why in plan.marks}
    events = {uid: ones for uid, ones in events.items() if uid in marks}
    known = KnownEvents(plan.context, plan.read_at, marks, events, plan.files, plan.found)
    return StoredPlan(int(number), rules, plan.at, reminders, frozenset(plan.unconfirmed), known)


def _row(event: Event, shown_start: str, shown_zone: str) -> _PackedEvent:
    start, zone = _start_out(event.start)
    calendar_zone = event.zone
    if PINNED in {event.zone, zone}:
        zone = calendar_zone = PINNED
    alarms = [offset.text for offset in event.alarms]
    texts = event.summary, event.location, shown_start, shown_zone
    return _PackedEvent(event.uid, event.recurrence, start, zone, calendar_zone, *texts, alarms, [])


def _start_out(start: Any) -> tuple[str, str]:
    """Return a start as text and the name of its time zone."""
    zone = getattr(start, "tzinfo", None)
    if isinstance(zone, ZoneInfo) and zone.key:  # the second of two equal local times needs its UTC offset
        return (start if start.fold else start.replace(tzinfo=None)).isoformat(), zone.key
    if zone is None or isinstance(zone, timezone):
        return start.isoformat(), ""
    return start.astimezone(UTC).isoformat(), "" if isinstance(zone, ZoneInfo) else PINNED


def _event(row: _PackedEvent) -> Event:
    start: datetime | date
    calendar_zone = row.calendar_zone
    if len(row.start) == len("2027-01-31"):
        start = date.fromisoformat(row.start)
    else:
        start = datetime.fromisoformat(row.start)
        if row.own_zone not in ("", PINNED):
            if zone := find_zone(row.own_zone):
                start = start.astimezone(zone) if start.tzinfo else start.replace(tzinfo=zone)
            else:  # the time zone database here is older than at the import
                start, calendar_zone = datetime.fromisoformat(row.shown_start), PINNED
    alarms = tuple(Offset.of(text) for text in row.alarms)
    return Event(row.uid, start, row.summary, row.location, row.recurrence, calendar_zone, alarms)


def keep_plan_call(calls: Calls, calendar: str, revision: int, plan: bytes) -> ScriptCall[bool]:
    """Store the plan of a calendar (b'' deletes it) if it still has `revision`; returns whether it did."""
    return calls.script("keep_plan", [calls.now, calendar, revision, plan], lambda reply: integers(reply)[0] == 1)


def read_plan(calls: Calls, calendar: str) -> RedisCommand[bytes | None]:
    """Read the stored plan of a calendar."""
    return RedisCommand(("HGET", calls.keys.plans, calendar), lambda reply: reply)


def read_plans(calls: Calls) -> RedisCommand[dict[bytes, bytes]]:
    """Read the stored plans of all calendars."""
    return RedisCommand(("HGETALL", calls.keys.plans), pairs)
