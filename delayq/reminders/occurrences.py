"""Finds the occurrences of recurring events, including moved and cancelled ones; the library expands the rules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

from icalendar import Calendar
from recurring_ical_events import CalendarQuery, ComponentsWithName, EventAdapter, Occurrence

from delayq.reminders.event import Event
from delayq.reminders.vevent import Component, EventSource, UnreadableEvent, event_of

MAX_OCCURRENCES = 20_000
"""Maximal occurrences of one event: one per hour for two years."""
_SLACK = timedelta(days=2)
_STEP = {"DAILY": timedelta(days=1), "WEEKLY": timedelta(weeks=1)}


class _Adapter(EventAdapter):  # type: ignore[misc]  # the library has no types
    """An event that keeps its component."""

    def __init__(self, component: Component) -> None:
        super().__init__(component)
        self.component = component


class _Occurrence(Occurrence):  # type: ignore[misc]  # as above
    """An occurrence without its own copy of the component; copying takes longer than finding it."""

    def __init__(self, adapter: _Adapter, *more: Any, **named: Any) -> None:  # the arguments differ between versions
        super().__init__(adapter, *more, **named)
        self.component = adapter.component

    def as_component(self, keep_recurrence_attributes: bool) -> Any:  # noqa: ARG002, FBT001 - the library's signature
        return self


_EVENTS = [ComponentsWithName("VEVENT", adapter=_Adapter, occurrence=_Occurrence)]


def occurrences(
    members: list[tuple[EventSource, Component]], uid: str, first: datetime, last: datetime, *, alarms: bool
) -> Iterator[Event]:
    """Yield the occurrences from `first` to `last` of all components that share a uid; may raise `UnreadableEvent`.

    Cancelled occurrences are left out, and all of them if the series is cancelled. The recurrence of an occurrence is
    its original local time in the series, wherever it was moved to.
    """
    cores = [(source, component) for source, component in members if "RECURRENCE-ID" not in component]
    core = max(cores, key=lambda member: _sequence(member[1]), default=None)
    if core and core[0].is_cancelled(core[1]):
        return
    source_of = {id(component): source for source, component in members}
    for occurrence in _between([component for _, component in members], first, last):
        component = occurrence.component
        source = source_of[id(component)]
        if not source.is_cancelled(component):
            moved = component.get("RECURRENCE-ID")
            origin = occurrence.start if moved is None else _like(moved.dt, core[1]["DTSTART"].dt if core else None)
            yield event_of(source, component, occurrence.start, _stamp(origin), uid=uid, alarms=alarms)


def _between(components: list[Component], first: datetime, last: datetime) -> list[Any]:
    calendar = Calendar()
    for component in components:
        _check(component)
        _bring_near(component, first - 2 * _SLACK)
        calendar.add_component(component)
    found: list[Any] = CalendarQuery(calendar, components=_EVENTS).between(first - _SLACK, last + _SLACK)
    if len(found) > MAX_OCCURRENCES:
        raise UnreadableEvent(f"it recurs {len(found):,} times until {last:%Y-%m-%d}; the limit is {MAX_OCCURRENCES:,}")
    return found


def _check(component: Component) -> None:
    """Refuse a rule that would never finish."""
    for rule in _rules(component):
        frequency, interval = str(_one(rule, "FREQ", "")), _one(rule, "INTERVAL", 1)
        if frequency in {"SECONDLY", "MINUTELY"}:
            raise UnreadableEvent(f"it recurs {frequency.lower()}, which is not supported")
        if interval < 1:
            raise UnreadableEvent(f"its RRULE has an invalid interval of {interval}")


def _bring_near(component: Component, before: datetime) -> None:
    """Move the start of a daily or weekly series close to a time, since the library counts up from the start.

    It moves by whole intervals in local time, so later occurrences stay the same. A series with a COUNT is not moved.
    """
    rules, start = _rules(component), component["DTSTART"].dt
    if len(rules) != 1 or {"COUNT", "BYSETPOS"} & set(rules[0]):
        return
    step = _STEP.get(str(_one(rules[0], "FREQ", "")))
    if step is None:
        return
    step *= _one(rules[0], "INTERVAL", 1)
    ahead = before.date() - (start.date() if isinstance(start, datetime) else start) - timedelta(days=1)
    if ahead > step:
        component["DTSTART"].dt = start + (ahead // step) * step


def _rules(component: Component) -> list[Any]:
    rules = component.get("RRULE", [])
    return rules if isinstance(rules, list) else [rules]


def _one(rule: Any, name: str, default: Any) -> Any:
    value = rule.get(name, default)
    return value[0] if isinstance(value, list) else value


def _sequence(component: Component) -> int:
    value = component.get("SEQUENCE", -1)
    return value if isinstance(value, int) else -1


def _like(at: Any, core: Any) -> Any:
    """Return a time in the time zone of another, if both have one."""
    zones = getattr(at, "tzinfo", None), getattr(core, "tzinfo", None)
    return at.astimezone(zones[1]) if all(zones) else at


def _stamp(at: date) -> str:
    return f"{at:%Y%m%dT%H%M%S}" if isinstance(at, datetime) else f"{at:%Y%m%d}"
