"""Operations that store schedules: each schedule is read, its next time is worked out, and it is written.

The write fails if a consumer has fired the schedule meanwhile, or another process has changed it. Then the schedule is
read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from delayq.broker.batches import batched, byte_slices
from delayq.broker.context import QueueContext
from delayq.broker.replies import StoredSchedule
from delayq.broker.requests import SchedulePut
from delayq.broker.transport.operation import Operation
from delayq.schedules.definition import next_time, unpack

BATCH = 500
"""Schedules read or stored in one call."""
BATCH_BYTES = 1 << 20
"""Bytes of definitions and payloads in a batch; a single one may be larger."""

Change = Callable[[StoredSchedule, int], SchedulePut | None]
"""Returns how to change a stored schedule at a server time (ms); None to leave it as it is."""


class ScheduleOutcome(StrEnum):
    """What became of a schedule that was added."""

    NEW = "new"
    CHANGED = "changed"
    """It has the new definition, and keeps the count of what it has fired."""
    UNCHANGED = "unchanged"


def read_one(context: QueueContext, name: str) -> Operation[tuple[StoredSchedule | None, int]]:
    """Read a schedule, and the server's time (ms)."""
    (page,) = yield [context.calls.schedules_page([name], limit=1)]
    return (page.schedules[0] if page.schedules else None), page.now


def read_all(context: QueueContext) -> Operation[dict[str, StoredSchedule]]:
    """Read all schedules, page by page."""
    schedules: dict[str, StoredSchedule] = {}
    cursor = ""
    while cursor != "0":
        (page,) = yield [context.calls.schedules_page(cursor=cursor or "0", limit=BATCH)]
        schedules |= {stored.name: stored for stored in page.schedules}
        cursor = page.cursor
    return schedules


def put(context: QueueContext, specs: Mapping[str, bytes]) -> Operation[dict[str, ScheduleOutcome]]:
    """Store definitions, by name; a schedule that is stored already and is the same does not change."""
    outcomes: dict[str, ScheduleOutcome] = {}
    names = list(specs)
    for batch in byte_slices(list(map(len, specs.values())), BATCH_BYTES, BATCH):
        remaining = names[batch]
        while remaining:
            (page,) = yield [context.calls.schedules_page(remaining, limit=BATCH)]
            stored = {schedule.name: schedule for schedule in page.schedules}
            rows = []
            for name in remaining:
                row = _row(name, stored.get(name), specs[name], page.now)
                if row is None:
                    outcomes[name] = ScheduleOutcome.UNCHANGED
                else:
                    rows.append(row)
                    outcomes[name] = ScheduleOutcome.CHANGED if name in stored else ScheduleOutcome.NEW
            remaining = yield from _put_rows(context, rows)
    return outcomes


def update(context: QueueContext, name: str, change: Change) -> Operation[StoredSchedule | None]:
    """Change a stored schedule; returns it as it was before, None if no schedule has this name."""
    while True:
        stored, now = yield from read_one(context, name)
        row = None if stored is None else change(stored, now)
        if row is None or not (yield from _put_rows(context, [row])):
            return stored


def pause(stored: StoredSchedule, _now: int) -> SchedulePut | None:
    """Return the change that pauses a schedule; None if it is paused already."""
    return None if stored.paused else SchedulePut(stored.name, stored.revision, "", 1, b"")


def resume(stored: StoredSchedule, now: int) -> SchedulePut | None:
    """Return the change that continues a paused schedule from now on; None if it is not paused."""
    if not stored.paused:
        return None
    time = next_time(stored, unpack(stored.spec).definition.timetable, now)
    return SchedulePut(stored.name, stored.revision, "" if time is None else time, 0, b"")


def remove(context: QueueContext, names: Iterable[str]) -> Operation[list[str]]:
    """Remove schedules; returns the names of those that existed."""
    removed = []
    for batch in batched(names, BATCH):
        statuses, *_ = yield [context.calls.schedule_remove(batch), *context.confirming]
        removed += [name for name, status in zip(batch, statuses, strict=True) if status == "1"]
    return removed


def _put_rows(context: QueueContext, rows: list[SchedulePut]) -> Operation[list[str]]:
    """Write schedules; returns the names of those that have changed meanwhile."""
    if not rows:
        return []
    statuses, *_ = yield [context.calls.schedule_put(rows), *context.confirming]
    return [row.name for row, status in zip(rows, statuses, strict=True) if status == "0"]


def _row(name: str, stored: StoredSchedule | None, spec: bytes, now: int) -> SchedulePut | None:
    timetable = unpack(spec).definition.timetable
    if stored is None:
        time = next_time(None, timetable, now)
        return SchedulePut(name, "0", "" if time is None else time, 0, spec)
    time = None if stored.paused else next_time(stored, timetable, now)
    # The time is compared as well: the rules of a zone may have changed since the schedule was stored.
    if (stored.spec, stored.next) == (spec, time):
        return None
    return SchedulePut(name, stored.revision, "" if time is None else time, int(stored.paused), spec)
