"""Operations that store schedules: each schedule is read, its next time is worked out, and it is written.

The write fails if a consumer has fired the schedule meanwhile, or another process has changed it. Then the schedule is
read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from delayq.broker.batches import batched, byte_slices
from delayq.broker.context import QueueContext
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, InvalidValueError, short_repr
from delayq.options import Settings
from delayq.schedules.calls import (
    FOREVER,
    SchedulePage,
    SchedulePut,
    StoredSchedule,
    note_schedules,
    schedule_put_call,
    schedule_remove_call,
    schedules_page_call,
)
from delayq.schedules.definition import (
    CLOCK_STEP,
    DECLARED_LABEL,
    Definition,
    Schedule,
    TimedOptions,
    define,
    unpack,
    write,
)
from delayq.schedules.occurrences import next_time, with_changes
from delayq.schedules.recurring.local_times import zone_release
from delayq.values.checks import check_options
from delayq.values.codec import encode_payload
from delayq.values.times import Duration, from_millis, timestamp, to_millis

BATCH = 500
"""Schedules read or stored in one call."""
BATCH_BYTES = 1 << 20
"""Bytes of definitions and payloads in a batch; a single one may be larger."""

Change = Callable[[StoredSchedule, int], SchedulePut | None]
"""Returns how to change a stored schedule at a server time (ms); None to leave it as it is."""

Move = tuple[int | None, int | None]
"""The old and the new next time of a schedule (ms), None for no occurrence."""


class ScheduleOutcome(StrEnum):
    """What became of a schedule that was added."""

    NEW = "new"
    CHANGED = "changed"
    """It has the new definition, and keeps the count of what it has fired."""
    UNCHANGED = "unchanged"


def read_one(context: QueueContext, name: str) -> Operation[tuple[StoredSchedule | None, int]]:
    """Read a schedule, and the server's time (ms)."""
    (page,) = yield [schedules_page_call(context.calls, [name], limit=1)]
    return (page.schedules[0] if page.schedules else None), page.now


def put(
    context: QueueContext, specs: Mapping[str, bytes], *, dry_run: bool = False
) -> Operation[dict[str, ScheduleOutcome]]:
    """Store definitions, by name; a schedule that is stored already and is the same does not change.

    With `dry_run`, only returns what it would do.
    """
    outcomes: dict[str, ScheduleOutcome] = {}
    names = list(specs)
    for batch in byte_slices(list(map(len, specs.values())), BATCH_BYTES, BATCH):
        remaining = names[batch]
        while remaining:
            (page,) = yield [schedules_page_call(context.calls, remaining, limit=BATCH)]
            stored = {schedule.name: schedule for schedule in page.schedules}
            rows = []
            for name in remaining:
                row = row_of(name, stored.get(name), specs[name], page.now)
                if row is None:
                    outcomes[name] = ScheduleOutcome.UNCHANGED
                else:
                    rows.append(row)
                    outcomes[name] = ScheduleOutcome.CHANGED if name in stored else ScheduleOutcome.NEW
            remaining = [] if dry_run else (yield from put_rows(context, rows))
    return outcomes


def update(context: QueueContext, name: str, change: Change) -> Operation[StoredSchedule | None]:
    """Change a stored schedule; returns it as it was before, None if no schedule has this name."""
    while True:
        stored, now = yield from read_one(context, name)
        row = None if stored is None else change(stored, now)
        if row is None or not (yield from put_rows(context, [row])):
            return stored


def replan(context: QueueContext) -> Operation[tuple[dict[str, Move], str]]:
    """Work out all next times anew, page by page.

    Returns those that moved, by name, and the release of the time zone data by which they were planned before ('' if
    not known). Raises `ConfigurationError` if that of this machine is older.
    """
    moved: dict[str, Move] = {}
    zones, noted = zone_release(), ""
    cursor = ""
    while cursor != "0":
        (page,) = yield [schedules_page_call(context.calls, cursor=cursor or "0", limit=BATCH)]
        if not cursor:
            noted = page.zones
            if zones and zones < noted:
                raise ConfigurationError(older_zones(zones, noted))
        rows = moves(page)
        fired = set((yield from put_rows(context, rows)))  # by a consumer meanwhile: they are up to date
        before = {stored.name: stored.next for stored in page.schedules}
        moved |= {row.name: (before[row.name], int(row.next or 0) or None) for row in rows if row.name not in fired}
        cursor = page.cursor
    if page.latest > page.now + CLOCK_STEP or zones > noted:
        yield [note_schedules(context.calls, page.now, zones=zones)]
    return moved, noted


def older_zones(mine: str, noted: str) -> str:
    """Say that this machine has older time zone data than that by which schedules were planned."""
    return (
        f"the time zone data of this machine is {mine}, but the schedules were planned with {noted}: update the tzdata"
        " of the system, or of Python where the system has none"
    )


def moves(page: SchedulePage) -> list[SchedulePut]:
    """Return the changes to the schedules of a page that have another next time than they should have."""
    rows = []
    for stored in page.schedules:
        if stored.paused == FOREVER:
            continue
        try:
            time = next_time(stored, unpack(stored.spec).definition.timetable, page.now)
        except ConfigurationError:  # it cannot be worked out here
            continue
        if time != stored.next:
            rows.append(SchedulePut(stored.name, stored.revision, "" if time is None else time, stored.paused, b""))
    return rows


def pausing(until: Duration | datetime | None) -> Change:
    """Return the change that pauses a schedule, which goes on by itself with its first occurrence from `until` on."""
    end, lasts = FOREVER, 0
    if isinstance(until, datetime):
        end = max(timestamp(until, "until"), FOREVER + 1)
    elif until is not None:
        lasts = to_millis(until, "until", min=1)

    def pause(stored: StoredSchedule, now: int) -> SchedulePut | None:
        ends = now + lasts if lasts else end
        if ends == stored.paused:
            return None
        if ends == FOREVER:
            return SchedulePut(stored.name, stored.revision, "", FOREVER, b"")
        if ends <= now:
            raise InvalidValueError(f"until {short_repr(str(until))} has passed: give a time to come, or a duration")
        return _replanned(stored, ends, now)

    return pause


def resume(stored: StoredSchedule, now: int) -> SchedulePut | None:
    """Return the change that continues a paused schedule from now on; None if it is not paused."""
    return _replanned(stored, 0, now) if is_paused(stored, now) else None


def is_paused(stored: StoredSchedule, now: int) -> bool:
    """Return whether a schedule is paused at a time (ms)."""
    return stored.paused == FOREVER or stored.paused > now


def _replanned(stored: StoredSchedule, paused: int, now: int) -> SchedulePut:
    """Return the change by which a schedule goes on from now, or from the end of a pause (ms)."""
    held = stored._replace(next=None, paused=paused)
    time = next_time(held, unpack(stored.spec).definition.timetable, now)
    return SchedulePut(stored.name, stored.revision, "" if time is None else time, paused, b"")


def remove(context: QueueContext, names: Iterable[str]) -> Operation[list[str]]:
    """Remove schedules; returns the names of those that existed."""
    removed = []
    for batch in batched(names, BATCH):
        remaining = batch
        while remaining:  # one call reads a limited number of bytes
            statuses, *_ = yield [schedule_remove_call(context.calls, remaining), *context.confirming]
            removed += [name for name, status in zip(remaining, statuses, strict=False) if status == "1"]
            remaining = remaining[len(statuses) :]
    return removed


def put_rows(context: QueueContext, rows: list[SchedulePut]) -> Operation[list[str]]:
    """Write schedules; returns the names of those that have changed meanwhile."""
    if not rows:
        return []
    statuses, *_ = yield [schedule_put_call(context.calls, rows), *context.confirming]
    return [row.name for row, status in zip(rows, statuses, strict=True) if status == "0"]


def row_of(name: str, stored: StoredSchedule | None, spec: bytes, now: int) -> SchedulePut | None:
    """Return what stores a definition in place of what is stored; None if that is the same."""
    if stored is None:
        time = next_time(None, unpack(spec).definition.timetable, now)
        return SchedulePut(name, "0", "" if time is None else time, 0, spec)
    spec = with_changes(spec, stored, now)
    timetable = unpack(spec).definition.timetable
    time = None if stored.paused == FOREVER else next_time(stored, timetable, now)
    # The time is compared as well: the rules of a zone may have changed since the schedule was stored.
    if (stored.spec, stored.next) == (spec, time):
        return None
    return SchedulePut(name, stored.revision, "" if time is None else time, stored.paused, spec)


_RULES = {"cron", "every", "rrule"}
"""The options that say when a schedule occurs: it has one of them."""


def redefine(
    options: Mapping[str, Any], settings: Settings, encode: Callable[[Any], bytes], attributes: bytes | None = None
) -> Change:
    """Return the change that gives stored schedules these options; raises `ConfigurationError` if there are none.

    Without `attributes`, their messages keep those they have. A time zone changes only schedules that have one: not
    those of elapsed time.
    """
    check_options(options, TimedOptions.__annotations__)
    if not options:
        raise ConfigurationError("set what? Give options such as tz='Europe/Berlin'")
    payload = encode_payload(options["payload"], encode, settings.max_payload) if "payload" in options else None

    def change(stored: StoredSchedule, now: int) -> SchedulePut | None:
        try:
            definition, kept = unpack(stored.spec)
            changed = _changed(stored.name, definition, options, settings)
            if attributes is not None:
                changed = replace(changed, attributes=attributes.decode())
            return row_of(stored.name, stored, write(changed, kept if payload is None else payload), now)
        except ConfigurationError as error:
            raise type(error)(f"schedule {stored.name}: {error}") from None

    return change


def _changed(name: str, old: Definition, options: Mapping[str, Any], settings: Settings) -> Definition:
    given = {option: value for option, value in options.items() if option != "payload"}
    zoned = not old.every or old.wall
    if not zoned and not given.keys() & _RULES:
        given.pop("tz", None)
    fields = set(given)
    # The other options are there to be checked together with these.
    others: dict[str, Any] = {"cron": old.cron or None, "every": old.every / 1000 or None, "rrule": old.rrule or None}
    if fields & _RULES:
        others = dict.fromkeys(_RULES)
        fields |= {*_RULES, "tz", "wall"}
    if zoned and (old.wall or given.get("every") is None):
        others["tz"] = old.tz
    for option in ("start", "end"):
        time = getattr(old, option)
        others[option] = None if time is None else from_millis(time)
    new = define(Schedule(name, **(others | given)), settings, declared=False)
    changed = replace(old, **{field: getattr(new, field) for field in fields})
    if "labels" in fields:  # but not that of the owner
        owner = {label for label in old.labels if old.declared and label.startswith(DECLARED_LABEL)}
        changed = replace(changed, labels=tuple(sorted({*new.labels, *owner})))
    changed.timetable  # noqa: B018 - raises if it never occurs
    return changed
