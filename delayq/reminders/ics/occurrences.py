"""The occurrences of recurring events, including moved and cancelled ones, each with an identity of its own."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from delayq.errors import ConfigurationError
from delayq.reminders.event import Event
from delayq.reminders.ics.alarms import in_utc
from delayq.reminders.ics.expansion import UnboundedSeries, expand, like
from delayq.reminders.ics.vevent import Component, EventSource, UnreadableEvent, event_of
from delayq.reminders.known_events import Found
from delayq.reminders.zones import find_zone
from delayq.values.times import timestamp

_SLACK = timedelta(days=2)
"""Occurrences are sought this much around a range, since times of all zones are compared with it."""


def occurrences(
    members: list[tuple[EventSource, Component]], uid: str, first: datetime, last: datetime, *, alarms: bool
) -> Found:
    """Return the occurrences from `first` to `last` of all components that share a uid; may raise `UnreadableEvent`.

    Cancelled occurrences are left out, and all of them if the series is cancelled. The recurrence of an occurrence is
    its original local time in the series, wherever it was moved to, alone or by RANGE=THISANDFUTURE.
    """
    cores = [(source, component) for source, component in members if "RECURRENCE-ID" not in component]
    core = max(cores, key=lambda member: member[1].get("SEQUENCE", -1), default=None)
    if core and core[0].is_cancelled(core[1]):
        return Found([], why="cancelled")
    source_of = {id(component): source for source, component in members}
    if core:
        _align(members, core)
    try:
        found, problems, ends = expand([component for _, component in members], first - _SLACK, last + _SLACK)
    except UnboundedSeries as error:
        raise UnreadableEvent(str(error)) from error
    except ConfigurationError as error:
        raise UnreadableEvent(f"its RRULE cannot be read: {error}") from error
    for problem in problems:
        (core or members[0])[0].report(problem)
    events: list[Event] = []
    for occurrence in sorted(found, key=_order) if alarms else found:
        component = occurrence.component
        source = source_of[id(component)]
        if not source.is_cancelled(component):
            origin = occurrence.origin
            if origin is None:
                named = component.get("RECURRENCE-ID")
                origin = named.dt if named else occurrence.start
            since = None if occurrence.origin is None and "RECURRENCE-ID" in component else first - _SLACK
            offsets = source.alarms(occurrence.start, since) if alarms else ()
            events.append(event_of(source, component, occurrence.start, _stamp(origin), uid=uid, alarms=offsets))
    return Found(events) if ends else Found(events, timestamp(last), "later")


def _order(occurrence: Any) -> datetime:
    return in_utc(occurrence.start, UTC)


def _align(members: list[tuple[EventSource, Component]], core: tuple[EventSource, Component]) -> None:
    """Bring all dates that name an occurrence into the form of the series' start: the same instant is the same one."""
    start, zone = core[1]["DTSTART"].dt, find_zone(core[0].calendar_zone) or UTC
    for _, component in members:
        if "RECURRENCE-ID" in component:
            component["RECURRENCE-ID"].dt = like(component["RECURRENCE-ID"].dt, start, zone)
        for name in ("EXDATE", "RDATE"):
            for one in (one for line in component.get(name, []) for one in line.dts):
                if name == "RDATE" or isinstance(one.dt, datetime):  # a date excludes all of its day
                    one.dt = like(one.dt, start, zone)


def _stamp(at: date) -> str:
    return f"{at:%Y%m%dT%H%M%S}" if isinstance(at, datetime) else f"{at:%Y%m%d}"
