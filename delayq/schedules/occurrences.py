"""Skips, moves and restores single occurrences: what changes in the definition of a schedule, and what has fired.

Pure: works on a schedule that was read, and times in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from delayq.errors import ConfigurationError, InvalidValueError, UnknownOccurrenceError, short_repr
from delayq.schedules.calls import FOREVER, SchedulePut, StoredSchedule
from delayq.schedules.definition import CLOCK_STEP, Definition, unpack, write
from delayq.schedules.recurring.timetable import Timetable
from delayq.values.times import from_millis, timestamp


def next_time(stored: StoredSchedule | None, timetable: Timetable, now: int) -> int | None:
    """Return when a schedule with a new timetable occurs next: never at or before its last fired occurrence.

    An occurrence that is due and not yet fired stays due if the new timetable has it, too. A last occurrence that is
    further ahead than `CLOCK_STEP` was fired while the clock was wrong, and does not count.
    """
    if stored is None:
        return timetable.after(now)
    return timetable.after(over_until(stored, now), stored.fired)


def over_until(stored: StoredSchedule, now: int) -> int:
    """Return the time up to which the occurrences of a schedule are over: fired, missed, skipped or paused."""
    since = now if stored.next is None else min(now, stored.next - 1)
    return max(since, stored.last if stored.last <= now + CLOCK_STEP else 0, stored.paused - 1)


def with_changes(spec: bytes, stored: StoredSchedule, now: int) -> bytes:
    """Return a new definition of a stored schedule with the changes of single occurrences that still count."""
    if b'"changes":' not in stored.spec.partition(b"\n")[0]:  # as in most: parsing takes its time
        return spec
    try:
        old = unpack(stored.spec).definition
    except ConfigurationError:
        return spec
    definition, payload = unpack(spec)
    new = replace(definition, changes=old.changes)
    same = write(new, payload)
    return same if same == stored.spec else write(replace(new, changes=new.rule.kept(over_until(stored, now))), payload)


MAX_CHANGES = 1000
"""The maximum of occurrences of a schedule that are skipped or moved at a time."""


class OccurrenceOutcome(StrEnum):
    """What became of an occurrence that was to be skipped, moved or restored."""

    SKIPPED = "skipped"
    MOVED = "moved"
    RESTORED = "restored"
    UNCHANGED = "unchanged"
    """It is so already."""
    CANCELLED = "cancelled"
    """It had fired, and its message, which was waiting, is cancelled."""
    RESCHEDULED = "rescheduled"
    """It had fired, and its message, which was waiting, has the new due time."""
    RUNNING = "running"
    """It had fired, and its message is being processed: nothing was changed."""
    DEAD = "dead"
    """It had fired, and its message is in the dead letter: nothing was changed."""
    OVER = "over"
    """Its message was settled, or it was missed or never fires: nothing was changed."""


@dataclass(frozen=True, slots=True)
class OccurrenceChange:
    """What became of one occurrence; times in the zone of the schedule."""

    occurrence: datetime
    """The time that the rule of the schedule gives it."""
    due: datetime | None
    """When it is due now; None if it is skipped or cancelled."""
    outcome: OccurrenceOutcome


@dataclass(frozen=True, slots=True)
class Backfill:
    """What `schedules.backfill` did, or with `dry_run` would have done."""

    times: list[datetime] = field(repr=False)
    """The occurrences, in the zone of the schedule."""
    sent: int
    """Messages that this call stored."""
    existed: int
    """Occurrences whose messages are in the queue, or were settled within its `dedupe_window`."""


class OccurrencePlan(NamedTuple):
    """What is to be done with occurrences."""

    definition: Definition
    """The schedule as it is then."""
    row: SchedulePut | None
    """What stores it; None if it does not change."""
    outcomes: dict[int, OccurrenceOutcome]
    """Of the occurrences that have not fired."""
    fired: list[int]
    """Occurrences that have fired or are over; the messages of some may still wait."""


def find_occurrences(name: str, definition: Definition, when: date) -> list[int]:
    """Return the occurrence at a time, or those of a local date; raises `UnknownOccurrenceError` if there are none.

    At a time, a moved occurrence is found by its own time and by its new one. Of a date are the occurrences that are
    due on it, and the skipped ones that would have been.
    """
    rule, zone = definition.rule, ZoneInfo(definition.tz)
    if isinstance(when, datetime):
        time = timestamp(when, "occurrence")
        if rule.has(time) or rule.origin(time) != time:
            return [time if rule.has(time) else rule.origin(time)]
        before, after, text = time, time, f"at {when.isoformat()}"
    elif isinstance(when, date):
        midnight = datetime.combine(when, time_of_day(), zone)
        since, until = timestamp(midnight, "date"), timestamp(midnight + timedelta(days=1), "date")
        found = {rule.origin(due) for due in rule.between(since, until, MAX_CHANGES + 1)}
        found |= {time for time in definition.changes if since <= time < until and rule.due(time) is None}
        if len(found) > MAX_CHANGES:
            raise ConfigurationError(f"{name} has more than {MAX_CHANGES:,} occurrences on {when}: pause it instead")
        if found:
            return sorted(found)
        before, after, text = since - 1, until - 1, f"on {when}"
    else:
        raise InvalidValueError(f"occurrence must be a datetime or a date, not {short_repr(when)}")
    times = [local_time(time, definition).isoformat() for time in (rule.up_to(before), rule.after(after)) if time]
    nearest = f"; the nearest: {' and '.join(times)}" if times else ""
    raise UnknownOccurrenceError(f"{name} has no occurrence {text}{nearest}")


def local_time(time: int, definition: Definition) -> datetime:
    """Return a time in the zone of a schedule."""
    return from_millis(time).astimezone(ZoneInfo(definition.tz))


def plan_skip(stored: StoredSchedule, now: int, when: date) -> OccurrencePlan:
    """Return what skips occurrences."""
    definition, _ = unpack(stored.spec)
    changes, outcomes, fired = dict(definition.changes), dict[int, OccurrenceOutcome](), list[int]()
    for origin in find_occurrences(stored.name, definition, when):
        due = definition.rule.due(origin)
        if due is None:
            outcomes[origin] = OccurrenceOutcome.UNCHANGED
        elif _fires(stored, definition, due, now):
            changes[origin], outcomes[origin] = None, OccurrenceOutcome.SKIPPED
        else:
            fired.append(origin)
    return _plan(stored, now, changes, outcomes, fired)


def plan_move(stored: StoredSchedule, now: int, occurrence: datetime, to: datetime) -> OccurrencePlan:
    """Return what moves an occurrence to a time, which must not have passed."""
    definition, _ = unpack(stored.spec)
    if not isinstance(occurrence, datetime):
        raise InvalidValueError(f"occurrence must be a datetime, not {short_repr(occurrence)}")
    time, (origin,) = timestamp(to, "to"), find_occurrences(stored.name, definition, occurrence)
    if time <= max(now, over_until(stored, now)):
        raise InvalidValueError(f"to must be a time that has not passed, not {to.isoformat()}")
    due = definition.rule.due(origin)
    if not _fires(stored, definition, time if due is None else due, now):
        return _plan(stored, now, definition.changes, {}, [origin])
    outcome = OccurrenceOutcome.UNCHANGED if due == time else OccurrenceOutcome.MOVED
    return _plan(stored, now, definition.changes | {origin: time}, {origin: outcome}, [])


def plan_restore(stored: StoredSchedule, now: int, when: date) -> OccurrencePlan:
    """Return what takes skips and moves of occurrences back, unless their own times have passed."""
    definition, _ = unpack(stored.spec)
    changes, outcomes = dict(definition.changes), dict[int, OccurrenceOutcome]()
    for origin in find_occurrences(stored.name, definition, when):
        due = definition.rule.due(origin)
        if origin not in changes:
            outcomes[origin] = OccurrenceOutcome.UNCHANGED
        elif _fires(stored, definition, origin if due is None else min(origin, due), now):
            del changes[origin]
            outcomes[origin] = OccurrenceOutcome.RESTORED
        else:
            outcomes[origin] = OccurrenceOutcome.OVER
    return _plan(stored, now, changes, outcomes, [])


def _fires(stored: StoredSchedule, definition: Definition, due: int, now: int) -> bool:
    """Return whether a schedule has yet to fire what is due at a time."""
    ended = definition.count is not None and stored.fired >= definition.count
    return not ended and due > over_until(stored, now)


def _plan(
    stored: StoredSchedule,
    now: int,
    changes: dict[int, int | None],
    outcomes: dict[int, OccurrenceOutcome],
    fired: list[int],
) -> OccurrencePlan:
    definition, payload = unpack(stored.spec)
    changes = {origin: time for origin, time in changes.items() if origin != time}
    if changes == definition.changes:
        return OccurrencePlan(definition, None, outcomes, fired)
    new = replace(definition, changes=changes)
    new = replace(new, changes=new.rule.kept(over_until(stored, now)))
    if len(new.changes) > MAX_CHANGES:
        raise ConfigurationError(f"{stored.name} has {MAX_CHANGES:,} skipped and moved occurrences, which is the most")
    time = None if stored.paused == FOREVER else next_time(stored, new.timetable, now)
    row = SchedulePut(stored.name, stored.revision, "" if time is None else time, stored.paused, write(new, payload))
    return OccurrencePlan(new, row, outcomes, fired)
