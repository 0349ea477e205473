"""Days on which a schedule does not occur: dates, the days of an iCalendar file, and public holidays.

The package `holidays` knows the public holidays of 250 countries, and of exchanges. A schedule stores only their code,
so each consumer works them out with its own release of the package.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from delayq.errors import ConfigurationError, did_you_mean, short_repr
from delayq.schedules.recurring.changed_rule import OccurrenceRule

Exceptions = str | date | Path | Iterable[str | date | Path]

HOLIDAYS = "holidays:"
"""What the code of a country or an exchange follows."""
MAX_DATES = 1000
"""The maximum of dates of a schedule on which it does not occur."""
AHEAD = timedelta(days=3653)
"""For how long the days of an iCalendar file are taken. A schedule that is excepted for so long has ended."""
_AHEAD = AHEAD // timedelta(milliseconds=1)
_MISSING = "public holidays need the package holidays: pip install 'delayq[holidays]'"


def read_exceptions(given: Exceptions) -> tuple[str, ...]:
    """Return them as they are stored: dates such as `2026-12-24`, and `holidays:DE-BY`.

    Reads the days of `.ics` files. Raises `ConfigurationError` if one is not valid.
    """
    if not isinstance(given, str | date | Path) and not isinstance(given, Iterable):
        raise ConfigurationError(f"except_ must be days such as 'holidays:DE' or dates, not {short_repr(given)}")
    each: list[Any] = [given] if isinstance(given, str | date | Path) else list(given)
    found = {text for one in each for text in _read(one)}
    if len(found) > MAX_DATES:
        raise ConfigurationError(f"except_ may have {MAX_DATES:,} days, not {len(found):,}")
    return tuple(sorted(found))


def _read(one: Any) -> Iterable[str]:
    if isinstance(one, Path) or (isinstance(one, str) and one.endswith(".ics")):
        return map(date.isoformat, _days_of_file(Path(one)))
    if isinstance(one, str) and one.startswith(HOLIDAYS):
        _holidays(one)
        return [one]
    if isinstance(one, date) and not isinstance(one, datetime):
        return [one.isoformat()]
    try:
        return [date.fromisoformat(one).isoformat()]
    except (TypeError, ValueError):
        text = f"except_ takes dates, 'holidays:DE' and .ics files, not {short_repr(one)}"
        raise ConfigurationError(text) from None


def _days_of_file(path: Path) -> set[date]:
    """Return the days of the all-day events of an iCalendar file."""
    try:
        import icalendar
        import recurring_ical_events
    except ImportError:
        raise ConfigurationError("iCalendar files need a package: pip install 'delayq[reminders]'") from None
    today = datetime.now(UTC).date()
    try:
        calendar: Any = icalendar.Calendar.from_ical(path.read_bytes())
        whole = [event for event in calendar.walk("VEVENT") if _is_whole_day(event)]
        calendar.subcomponents = [part for part in calendar.subcomponents if part.name != "VEVENT"] + whole
        events = recurring_ical_events.of(calendar).between(today, today + AHEAD)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ConfigurationError(f"except_: {path} cannot be read: {error}") from None
    days: set[date] = set()
    for event in events:
        first, end = event["DTSTART"].dt, event["DTEND"].dt
        days.update(first + timedelta(days=n) for n in range(min(max(1, (end - first).days), MAX_DATES + 1)))
        if len(days) > MAX_DATES:
            break
    if not days:
        raise ConfigurationError(f"except_: {path} has no whole days from now on")
    return days


def _is_whole_day(event: Any) -> bool:
    start, rule = event.get("DTSTART"), event.get("RRULE")
    frequencies = rule.get("FREQ", []) if isinstance(rule, dict) else [] if rule is None else ["?"]
    return (
        isinstance(getattr(start, "dt", None), date)
        and not isinstance(start.dt, datetime)
        and all(frequency in {"DAILY", "WEEKLY", "MONTHLY", "YEARLY"} for frequency in frequencies)
    )


@lru_cache(maxsize=256)
def _holidays(text: str) -> Container[date]:
    """Return the public holidays that a text such as `holidays:DE-BY` names."""
    try:
        import holidays
    except ImportError:
        raise ConfigurationError(_MISSING) from None
    code = text.removeprefix(HOLIDAYS)
    country, _, part = code.partition("-")
    try:
        if country in holidays.list_supported_financial():
            return holidays.financial_holidays(country)
        return holidays.country_holidays(country, subdiv=part or None)
    except NotImplementedError as error:
        countries = holidays.list_supported_countries()
        hint = did_you_mean(
            code, countries if country not in countries else [f"{country}-{one}" for one in countries[country]]
        )
        raise ConfigurationError(f"{text}: {str(error)[:1].lower()}{str(error)[1:]}{hint}") from None


class ExceptRule:
    """The occurrences of a rule, without those on some days of a time zone."""

    def __init__(self, rule: OccurrenceRule, zone: ZoneInfo, exceptions: Iterable[str]) -> None:
        """Read stored exceptions; raises `ConfigurationError` if the package `holidays` is missing or lacks them."""
        self._rule = rule
        self._zone = zone
        self._dates = {date.fromisoformat(one) for one in exceptions if not one.startswith(HOLIDAYS)}
        self._holidays = [_holidays(one) for one in exceptions if one.startswith(HOLIDAYS)]

    def after(self, time: int) -> int | None:
        """Return the first occurrence after a time."""
        found = self._rule.after(time)
        while found is not None and found <= time + _AHEAD:
            day = self._excepted(found)
            if day is None:
                return found
            found = self._rule.after(max(found, self._begin(day + timedelta(days=1)) - 1))
        return None

    def up_to(self, time: int) -> int | None:
        """Return the last occurrence that is not after a time."""
        found = self._rule.up_to(time)
        while found is not None and found >= time - _AHEAD:
            day = self._excepted(found)
            if day is None:
                return found
            found = self._rule.up_to(min(found, self._begin(day)) - 1)
        return None

    def gap(self, time: int) -> int:
        """Return the milliseconds from an occurrence to the next of the rule, as if no day were excepted."""
        return self._rule.gap(time)

    def _excepted(self, time: int) -> date | None:
        """Return the day of a time if it is an exception."""
        day = datetime.fromtimestamp(time / 1000, self._zone).date()
        return day if day in self._dates or any(day in one for one in self._holidays) else None

    def _begin(self, day: date) -> int:
        """Return when a day begins (ms)."""
        return int(datetime(day.year, day.month, day.day, tzinfo=self._zone).timestamp() * 1000)
