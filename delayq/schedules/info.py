"""Descriptions of stored schedules for users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from delayq.broker.message.attributes import Attributes
from delayq.errors import ConfigurationError, UndecodableError
from delayq.schedules.calls import FOREVER, StoredSchedule
from delayq.schedules.definition import Definition, Misfire, Overlap, unpack
from delayq.schedules.recurring.local_times import MAX_LATE
from delayq.schedules.store import ScheduleOutcome, is_paused
from delayq.values.text import format_duration
from delayq.values.times import from_millis


class ScheduleState(StrEnum):
    """Whether a schedule fires."""

    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"
    """Its `end` or `count` was reached; it stays in the list until you remove it."""


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule as stored in Redis; times are in UTC, or None. Its `repr` omits payload and headers."""

    name: str
    state: ScheduleState
    paused_until: datetime | None
    """When its pause ends by itself."""
    next: datetime | None
    """When it occurs next."""
    last: datetime | None
    """The time of the last occurrence that was fired."""
    fired: int
    """Messages fired so far."""
    cron: str | None
    every: timedelta | None
    rrule: str | None
    tz: str
    payload: Any = field(repr=False)
    """The decoded payload; the raw bytes if they cannot be decoded."""
    message_name: str | None
    """The name of its messages, such as that of a task."""
    retries: int
    headers: Mapping[str, str] = field(repr=False)
    start: datetime | None
    end: datetime | None
    count: int | None
    misfire: Misfire
    except_: tuple[str, ...]
    """Days on which it does not occur: dates, and codes such as `holidays:DE`."""
    jitter: timedelta
    overlap: Overlap
    hours: str | None
    """When its messages may be delivered, in its time zone; None for at any time, or as its payload says."""
    late_after: timedelta
    """How late the next occurrence may be before it counts as missed."""
    labels: tuple[str, ...]
    changes: Mapping[datetime, datetime | None]
    """The new times of occurrences that were moved, by their own times; None for skipped ones. May have past ones."""
    declared: bool
    """Whether it was declared in code."""


@dataclass(frozen=True, slots=True)
class SchedulesPage:
    """Some schedules, and the cursor of the next page (None if this is the last)."""

    schedules: list[ScheduleInfo]
    cursor: str | None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Schedules that cannot be read, which another program has stored, and why; they do not fire either."""


class Occurrence(NamedTuple):
    """When a schedule occurs."""

    name: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Applied:
    """What `schedules.apply` did, by the names of the schedules."""

    outcomes: Mapping[str, ScheduleOutcome]
    removed: list[str]


@dataclass(frozen=True, slots=True)
class Replanned:
    """What `schedules.replan` did."""

    moved: Mapping[str, tuple[datetime | None, datetime | None]]
    """The old and the new time of those that moved, by name; None for no occurrence."""
    zones: str
    """The release of the time zone data of this machine, such as 2026a; '' if it is not known."""
    zones_before: str
    """That by which the schedules were planned before, '' if it is not known."""


def rule_text(schedule: ScheduleInfo) -> str:
    """Return when a schedule occurs, as it was defined, with its time zone: an interval only if it is not in UTC."""
    if schedule.every is None:
        return f"{schedule.cron or schedule.rrule} {schedule.tz}"
    every = f"every {format_duration(schedule.every.total_seconds())}"
    return every if schedule.tz == "UTC" else f"{every} {schedule.tz}"


def describe(stored: StoredSchedule, now: int, decode: Callable[[bytes], Any]) -> ScheduleInfo:
    """Return the description of a stored schedule at a time (ms)."""
    definition, payload = unpack(stored.spec)
    try:
        decoded = decode(payload)
    except UndecodableError:
        decoded = payload
    state = ScheduleState.ACTIVE if stored.next is not None else ScheduleState.ENDED
    paused = is_paused(stored, now)
    return ScheduleInfo(
        name=stored.name,
        state=ScheduleState.PAUSED if paused else state,
        paused_until=from_millis(stored.paused) if paused and stored.paused != FOREVER else None,
        next=_datetime(stored.next),
        last=_datetime(stored.last or None),
        fired=stored.fired,
        cron=definition.cron or None,
        every=timedelta(milliseconds=definition.every) if definition.every else None,
        rrule=definition.rrule or None,
        tz=definition.tz,
        payload=decoded,
        message_name=Attributes.of(definition.attributes.encode()).name or None,
        retries=definition.retries,
        headers=definition.headers,
        start=_datetime(definition.start),
        end=_datetime(definition.end),
        count=definition.count,
        except_=definition.except_,
        jitter=timedelta(milliseconds=definition.jitter),
        overlap=definition.overlap,  # type: ignore[arg-type]  # the same
        hours=definition.hours or None,
        misfire=definition.misfire,  # type: ignore[arg-type]  # as it was checked when it was packed
        late_after=timedelta(milliseconds=_tolerance(definition, stored)),
        labels=definition.labels,
        changes={from_millis(time): _datetime(due) for time, due in definition.changes.items() if due != 0},
        declared=definition.declared,
    )


def _tolerance(definition: Definition, stored: StoredSchedule) -> int:
    try:
        return definition.timetable.tolerance(stored.last if stored.next is None else stored.next)
    except ConfigurationError:  # this system cannot work its times out
        return MAX_LATE


def _datetime(time: int | None) -> datetime | None:
    return None if time is None else from_millis(time)
