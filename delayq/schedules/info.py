"""Schedules as users see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from delayq.clock import moment
from delayq.errors import UndecodableError
from delayq.schedules.definition import Misfire, unpack
from delayq.schedules.placing import ScheduleOutcome
from delayq.schedules.standing import Standing


class ScheduleState(StrEnum):
    """Whether a schedule goes on."""

    ACTIVE = "active"
    PAUSED = "paused"
    ENDED = "ended"
    """After its `end` or `count`; it stays listed until it is removed."""


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule as it stands in Redis; times in UTC, None for none. Its `repr` leaves payload and headers out."""

    name: str
    state: ScheduleState
    next: datetime | None
    """When it occurs next."""
    last: datetime | None
    """The time of the last occurrence that was fired."""
    fired: int
    """Messages fired so far."""
    cron: str | None
    every: timedelta | None
    tz: str
    payload: Any = field(repr=False)
    """The decoded payload; the raw bytes if they are undecodable."""
    retries: int
    headers: Mapping[str, str] = field(repr=False)
    start: datetime | None
    end: datetime | None
    count: int | None
    misfire: Misfire
    late_after: timedelta
    declared: bool
    """Whether it was declared in code."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying the declared schedules did, by name."""

    outcomes: Mapping[str, ScheduleOutcome]
    removed: list[str]


def describe(standing: Standing, decode: Callable[[bytes], Any]) -> ScheduleInfo:
    """Return what is known of a schedule."""
    definition, payload, _ = unpack(standing.spec)
    try:
        decoded = decode(payload)
    except UndecodableError:
        decoded = payload
    state = ScheduleState.ACTIVE if standing.next is not None else ScheduleState.ENDED
    return ScheduleInfo(
        name=standing.name,
        state=ScheduleState.PAUSED if standing.paused else state,
        next=_moment(standing.next),
        last=_moment(standing.last or None),
        fired=standing.fired,
        cron=definition.cron or None,
        every=timedelta(milliseconds=definition.every) if definition.every else None,
        tz=definition.tz,
        payload=decoded,
        retries=definition.retries,
        headers=definition.headers,
        start=_moment(definition.start),
        end=_moment(definition.end),
        count=definition.count,
        misfire=definition.misfire,  # type: ignore[arg-type]  # as it was checked when it was packed
        late_after=timedelta(milliseconds=definition.late_after),
        declared=definition.declared,
    )


def _moment(time: int | None) -> datetime | None:
    return None if time is None else moment(time)
