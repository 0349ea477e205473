"""Expands recurring events in bounded time; each occurrence, also a moved one, has an identity of its own.

`schedules.recurrence` follows the rules, as it does for schedules; the library recurring-ical-events knows what becomes
of the dates: which are excluded, moved or cancelled, alone or from one on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from math import prod
from typing import Any

from recurring_ical_events import EventAdapter, Occurrence, Series
from recurring_ical_events.util import compare_greater

from delayq.errors import ConfigurationError
from delayq.reminders.alarms import in_utc
from delayq.reminders.event import Event
from delayq.reminders.known_events import Found
from delayq.reminders.offsets import find_zone
from delayq.reminders.vevent import Component, EventSource, UnreadableEvent, event_of
from delayq.schedules.recurring import bounded_rrule
from delayq.schedules.recurring.local_times import EPOCH, wall_seconds
from delayq.schedules.recurring.recurrence import Recurrence
from delayq.schedules.recurring.rrule_parts import read_rrule
from delayq.values.times import timestamp

MAX_OCCURRENCES = 20_000
"""Maximal occurrences of one event: one per hour for two years."""
MAX_RULES = 10
_YEARS_WITHOUT = 41
"""A rule that matches nothing for so long never will: in 40 years, each weekday has been a 29th of February."""


class UnboundedSeries(Exception):  # noqa: N818 - becomes the line of an event
    """A series that takes too long to expand; the text says why."""


class _Adapter(EventAdapter):  # type: ignore[misc]  # the library has no types
    """An event that keeps its component."""

    def __init__(self, component: Component) -> None:
        super().__init__(component)
        self.component = component


class _Occurrence(Occurrence):  # type: ignore[misc]  # as above
    """An occurrence that knows its component, and where the rule of the series puts it."""

    def __init__(self, adapter: _Adapter, start: Any = None, *more: Any, **named: Any) -> None:  # more: by version
        super().__init__(adapter, start, *more, **named)
        self.component = adapter.component
        self.origin: Any = None if start is None else start - adapter.move_recurrences_by
        """Where the rule of the series puts it; None for an occurrence that its component names."""


class _Rule:
    """One rule of a series."""

    def __init__(self, text: str, start: datetime) -> None:
        self.string = text
        parts = read_rrule(text, lenient=True)
        self.left_out = parts.left_out
        self._zone, self._begin = start.tzinfo, start.year
        self._counted = parts.count is not None
        self._recurrence = Recurrence(parts, _wall(start), bounded_rrule)
        self.until: datetime | None = None
        """The last time at which it may occur, in the form of its start."""
        if parts.until_wall is not None:
            self.until = (EPOCH + timedelta(seconds=parts.until_wall)).replace(tzinfo=self._zone)
        elif parts.until is not None:
            until = datetime.fromtimestamp(parts.until / 1000, UTC)
            self.until = until if self._zone else until.replace(tzinfo=None)
        self.goes_on = False
        """Whether it may occur after the range that was looked at last."""

    def between(self, first: datetime, last: datetime, count: Callable[[int], None]) -> Iterator[datetime]:
        """Yield its times in a range; `count` gets the steps."""
        self.goes_on = not (self._counted or (self.until is not None and self.until <= last))
        year = last.year + (_YEARS_WITHOUT if self._counted else 0)
        for wall in self._recurrence.times(_wall(first), year, count):
            at = (EPOCH + timedelta(seconds=wall)).replace(tzinfo=self._zone)
            if self.until is not None and at > self.until:
                return
            if at > last:
                self.goes_on = True
                return
            if at >= first:
                yield at

    def never_matches(self, count: Callable[[int], None]) -> bool:
        """Return whether it matches no date at all."""
        begin = self._begin + _YEARS_WITHOUT
        return self.until is None and next(self._recurrence.times(-(10**12), begin, count), None) is None


class _Rules(Series.RecurrenceRules):  # type: ignore[misc]  # as above
    """The rules of one series, followed to the end of the range, in at most `MAX_STEPS`."""

    def __init__(self, core: _Adapter) -> None:
        super().__init__(core)
        self._steps = 0
        self._excluding = [_Rule(_text(one), self.start) for one in _rules(core.component, "EXRULE")]
        self.problems = {
            f"{part} of its RRULE is not known, and left out"
            for rule in (*self.rrules[1:], *self._excluding)
            for part in rule.left_out
        }
        self.endless = False
        """Whether a rule goes on after the range."""

    def create_rule_with_start(self, rule_string: str) -> _Rule:
        return _Rule(rule_string, self.start)

    def rrule_between(self, span_start: Any, span_stop: Any) -> Iterator[Any]:
        first, last = (self._like_start(one) for one in (span_start, span_stop))
        excluded = {at for rule in self._excluding for at in rule.between(first, last, self._count)}
        dates, *rules = self.rrules
        yield from (at for at in dates.between(first, last, inc=True) if at not in excluded)
        self.endless = self.endless or dates.after(last) is not None
        for rule in rules:
            found = False
            for at in rule.between(first, last, self._count):
                found = True
                if at not in excluded:
                    yield at
            self.endless = self.endless or rule.goes_on
            if not found and rule.never_matches(self._count):
                self.problems.add(f"its RRULE:{rule.string} matches no date, using only its DTSTART")

    def _like_start(self, at: datetime) -> datetime:
        return at.replace(tzinfo=None) if self.tzinfo is None else at.astimezone(self.tzinfo)

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > bounded_rrule.MAX_STEPS:
            raise UnboundedSeries("its rule takes too long: it matches too many times, or begins too long ago")


class _Series(Series):  # type: ignore[misc]  # as above
    occurrence = _Occurrence
    RecurrenceRules = _Rules


def expand(components: list[Component], first: datetime, last: datetime) -> tuple[list[_Occurrence], list[str], bool]:
    """Return the occurrences of a series from `first` to `last`, what is wrong with its rules, and whether it ends.

    Raises `UnboundedSeries`, and `ConfigurationError` for a rule that cannot be read.
    """
    for component in components:
        _check(component)
    series = _Series([_Adapter(component) for component in components])
    found = []
    for occurrence in series.between(first, last):
        found.append(occurrence)
        if len(found) > MAX_OCCURRENCES:
            raise UnboundedSeries(f"it recurs over {MAX_OCCURRENCES:,} times until {last:%Y-%m-%d}, the limit")
    problems = sorted(getattr(series.recurrence, "problems", ()))
    ends = not getattr(series.recurrence, "endless", False)
    ends = ends and all(not compare_greater(change.start, last) for change in series.modifications)
    return found, problems, ends


def like(at: Any, start: date, zone: Any) -> Any:
    """Return a date or time of a series in the form of its start: a date, a floating time, or one of its time zone.

    `zone` is the one in which floating times are meant. A date stands for the time of the start on that day.
    """
    if isinstance(at, tuple):  # a period
        at = at[0]
    if not isinstance(start, datetime):
        return at.date() if isinstance(at, datetime) else at
    if not isinstance(at, datetime):
        return datetime.combine(at, start.timetz())
    if start.tzinfo is None:
        return at if at.tzinfo is None else at.astimezone(zone).replace(tzinfo=None)
    return at.replace(tzinfo=start.tzinfo) if at.tzinfo is None else at.astimezone(start.tzinfo)


def _wall(at: datetime) -> int:
    return wall_seconds(at.replace(tzinfo=None))


def _check(component: Component) -> None:
    """Refuse rules that would take too long or never finish."""
    rules = _rules(component, "RRULE") + _rules(component, "EXRULE")
    if len(rules) > MAX_RULES:
        raise UnboundedSeries(f"it has {len(rules):,} RRULEs; the limit is {MAX_RULES}")
    for rule in rules:
        frequency, interval = str(_one(rule, "FREQ", "")), _one(rule, "INTERVAL", 1)
        if frequency in {"SECONDLY", "MINUTELY"}:
            raise UnboundedSeries(f"it recurs {frequency.lower()}, which is not supported")
        if interval < 1:
            raise UnboundedSeries(f"its RRULE has an invalid interval of {interval}")
        times = prod(len(_list(rule, name)) for name in ("BYHOUR", "BYMINUTE", "BYSECOND"))
        if times > bounded_rrule.MAX_TIMES:
            raise UnboundedSeries(f"it recurs {times:,} times a day; the limit is {bounded_rrule.MAX_TIMES:,}")


def _rules(component: Component, name: str) -> list[Any]:
    rules = component.get(name, [])
    return rules if isinstance(rules, list) else [rules]


def _text(rule: Any) -> str:
    return str(rule.to_ical().decode())


def _list(rule: Any, name: str) -> list[Any]:
    value: Any = rule.get(name, 0)
    return value if isinstance(value, list) else [value]


def _one(rule: Any, name: str, default: Any) -> Any:
    value = rule.get(name, default)
    return value[0] if isinstance(value, list) else value


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
