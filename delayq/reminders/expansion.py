"""Expands recurring events in bounded time; the libraries know the rules, this module ends their work.

dateutil looks for the next day of a rule until the year 9999, and lists each second of a rule that names them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from math import prod
from typing import Any

from recurring_ical_events import EventAdapter, Occurrence, Series
from recurring_ical_events.util import compare_greater

from delayq.schedules.bounded_rrule import DAYS_OF_A_MONTH, MAX_STEPS, MAX_TIMES, NoMoreDays, matches

MAX_OCCURRENCES = 20_000
"""Maximal occurrences of one event: one per hour for two years."""
MAX_RULES = 10
_YEARS_WITHOUT = 41
"""A rule that matches nothing for so long never will: in 40 years, each weekday has been a 29th of February."""
_MARGIN = timedelta(days=2)
"""A moved start is at least this long before the range: it need not match its own rule."""
_STEP = {"HOURLY": timedelta(hours=1), "DAILY": timedelta(days=1), "WEEKLY": timedelta(weeks=1)}

Component = Any
"""An event as parsed by the library."""


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


class _Rules(Series.RecurrenceRules):  # type: ignore[misc]  # as above
    """The rules of one series, followed from its start to the end of the range, in at most `MAX_STEPS`."""

    def __init__(self, core: _Adapter) -> None:
        super().__init__(core)
        self.steps = 0
        self.unmatched: set[str] = set()
        """The rules that match no date."""
        self.endless = False
        """Whether a rule goes on after the range."""

    def rrule_between(self, span_start: Any, span_stop: Any) -> Iterator[Any]:
        first, last = (self._like_start(one) for one in (span_start, span_stop))
        dates, *rules = self.rrules
        yield from dates.between(first, last, inc=True)
        self.endless = self.endless or dates.after(last) is not None
        for rule in rules:
            begin, found = self.start.year, False

            def follow(year: int, begin: int = begin) -> None:
                self._count(DAYS_OF_A_MONTH)
                if year > last.year and (found or year > begin + _YEARS_WITHOUT):  # noqa: B023 - called in this turn
                    raise NoMoreDays

            try:
                for start in matches(rule, follow):
                    self._count(1)
                    found = True
                    if start > last:
                        self.endless = True
                        break
                    if start >= first and not (rule.until and compare_greater(start, rule.until)):
                        yield start
            except NoMoreDays:
                self.endless = True
            if not (found or rule.until):
                self.unmatched.add(rule.string)

    def _like_start(self, at: datetime) -> datetime:
        return at.replace(tzinfo=None) if self.tzinfo is None else at

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise UnboundedSeries("its rule takes too long: it matches too many times, or begins too long ago")


class _Series(Series):  # type: ignore[misc]  # as above
    occurrence = _Occurrence
    RecurrenceRules = _Rules


def expand(components: list[Component], first: datetime, last: datetime) -> tuple[list[_Occurrence], list[str], bool]:
    """Return the occurrences of a series from `first` to `last`, what is wrong with its rules, and whether it ends.

    Changes the components. Raises `UnboundedSeries`.
    """
    ahead = max((_Adapter(one).move_recurrences_by for one in components), default=timedelta())
    for component in components:
        _check(component)
        if "RECURRENCE-ID" not in component:
            _bring_near(component, first - _MARGIN - max(ahead, timedelta()))
    series = _Series([_Adapter(component) for component in components])
    found = []
    for occurrence in series.between(first, last):
        found.append(occurrence)
        if len(found) > MAX_OCCURRENCES:
            raise UnboundedSeries(f"it recurs over {MAX_OCCURRENCES:,} times until {last:%Y-%m-%d}, the limit")
    unmatched = sorted(getattr(series.recurrence, "unmatched", ()))
    ends = not getattr(series.recurrence, "endless", False)
    ends = ends and all(not compare_greater(change.start, last) for change in series.modifications)
    return found, [f"its RRULE:{rule} matches no date, using only its DTSTART" for rule in unmatched], ends


def _check(component: Component) -> None:
    """Refuse rules that would take too long or never finish."""
    rules = _rules(component)
    if len(rules) > MAX_RULES:
        raise UnboundedSeries(f"it has {len(rules):,} RRULEs; the limit is {MAX_RULES}")
    for rule in rules:
        frequency, interval = str(_one(rule, "FREQ", "")), _one(rule, "INTERVAL", 1)
        if frequency in {"SECONDLY", "MINUTELY"}:
            raise UnboundedSeries(f"it recurs {frequency.lower()}, which is not supported")
        if interval < 1:
            raise UnboundedSeries(f"its RRULE has an invalid interval of {interval}")
        times = prod(len(_list(rule, name)) for name in ("BYHOUR", "BYMINUTE", "BYSECOND"))
        if times > MAX_TIMES:
            raise UnboundedSeries(f"it recurs {times:,} times a day; the limit is {MAX_TIMES:,}")


def _bring_near(component: Component, before: datetime) -> None:
    """Move the start of an hourly, daily or weekly series close to a time, since the library counts from the start.

    It moves by whole intervals in local time, so later occurrences stay the same. A series with a COUNT is not moved.
    """
    rules, start = _rules(component), component["DTSTART"].dt
    if len(rules) != 1 or {"COUNT", "BYSETPOS"} & set(rules[0]):
        return
    frequency = str(_one(rules[0], "FREQ", ""))
    step, is_time = _STEP.get(frequency), isinstance(start, datetime)
    if step is None or (frequency == "HOURLY" and not is_time):
        return
    step *= _one(rules[0], "INTERVAL", 1)
    ahead = before.date() - (start.date() if is_time else start) - timedelta(days=1)
    if ahead > step:
        component["DTSTART"].dt = start + (ahead // step) * step


def _rules(component: Component) -> list[Any]:
    rules = component.get("RRULE", [])
    return rules if isinstance(rules, list) else [rules]


def _list(rule: Any, name: str) -> list[Any]:
    value: Any = rule.get(name, 0)
    return value if isinstance(value, list) else [value]


def _one(rule: Any, name: str, default: Any) -> Any:
    value = rule.get(name, default)
    return value[0] if isinstance(value, list) else value
