"""When a stored schedule occurs next, after a change of its definition or of single occurrences."""

from __future__ import annotations

from msgspec.structs import replace

from delayq.errors import ConfigurationError
from delayq.schedules.calls import StoredSchedule
from delayq.schedules.definition import CLOCK_STEP, unpack, write
from delayq.schedules.recurring.timetable import Timetable


def next_time(stored: StoredSchedule | None, timetable: Timetable, now: int) -> int | None:
    """Return when a schedule with a new timetable occurs next: never at or before its last fired occurrence.

    An occurrence that is due and not yet fired stays due if the new timetable has it, too. A last occurrence that is
    further ahead than `CLOCK_STEP` was fired while the clock was wrong, and does not count.
    """
    if stored is None:
        return timetable.after(now)
    return timetable.after(over_until(stored, now), stored.fired)


def over_until(stored: StoredSchedule, now: int) -> int:
    """Return the time up to which the occurrences of a schedule are over: fired, missed or skipped."""
    since = now if stored.next is None else min(now, stored.next - 1)
    return max(since, stored.last if stored.last <= now + CLOCK_STEP else 0)


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
