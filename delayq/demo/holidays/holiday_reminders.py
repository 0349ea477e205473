"""What the demo sends: a reminder the day before each public holiday of every country, at nine in the morning there."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import TZPATH, ZoneInfo

import msgspec
from msgspec import structs

from delayq.errors import ConfigurationError

REMIND_AT = time(9)
"""The local time of a reminder, on the day before the holiday."""
ZONELESS = {"XK": "Europe/Belgrade"}
"""Countries missing in zone.tab: Kosovo has no ISO code of its own, and the time of Belgrade."""
NOWHERE = "UTC"
"""The zone of all others: uninhabited islands, or any country on a system without the time zone database."""


class SimulatedResult(StrEnum):
    """How the callback of a reminder ends; it is part of the payload, so that every worker does the same."""

    REACHED = "reached"
    """It succeeds."""
    BUSY = "busy"
    """It fails at the first attempt."""
    BOUNCES = "bounces"
    """It fails at every attempt."""
    UNSUBSCRIBED = "unsubscribed"
    """It is discarded."""


_SHARES = {SimulatedResult.BUSY: 0.03, SimulatedResult.BOUNCES: 0.003, SimulatedResult.UNSUBSCRIBED: 0.002}


class HolidayReminder(msgspec.Struct, frozen=True):
    """The payload: a holiday, and when and where the reminder is due, in real time."""

    country: str
    """Its ISO code."""
    holiday: str
    """Its name in the country's own language."""
    day: date
    at: datetime
    """When the reminder is due, with the country's offset from UTC on that day."""
    zone: str
    result: SimulatedResult = SimulatedResult.REACHED


class UnknownCountryError(ConfigurationError):
    """The package `holidays` does not know this country."""


@dataclass(frozen=True, slots=True)
class TimeLapse:
    """The year, compressed: converts real times to the server's clock and back."""

    first: datetime
    end: datetime
    zero: int
    """When the year begins on the server's clock (ms)."""
    seconds: float

    @property
    def factor(self) -> float:
        """How many times faster than real time it runs."""
        return (self.end - self.first).total_seconds() / self.seconds

    def due(self, at: datetime) -> int:
        """Return the time on the server's clock for a real time (ms)."""
        return self.zero + math.ceil((at - self.first).total_seconds() / self.factor * 1000)

    def share(self, now: float) -> float:
        """Return which part of the year is over at a server time (ms), 0 to 1."""
        return min(max((now - self.zero) / self.seconds / 1000, 0.0), 1.0)


def plan_year(now: datetime, *, countries: Iterable[str] | None = None, seed: int = 0) -> dict[str, HolidayReminder]:
    """Return the reminders due in the twelve months from `now`, in order, by message id.

    An id consists of country, date and the number of the holiday on that day, so planning again gives the same ids.
    `countries` are ISO codes, by default all that `holidays` knows; `seed` determines which callbacks fail.
    """
    import holidays

    known = holidays.list_supported_countries(include_aliases=False)
    wanted = sorted(known) if countries is None else sorted({code.upper() for code in countries})
    if unknown := [code for code in wanted if code not in known]:
        raise UnknownCountryError(f"unknown country {', '.join(unknown)}: use ISO codes such as PT or JP")
    end = a_year_after(now)
    planned = [
        (id, reminder)
        for code in wanted
        for id, reminder in _reminders(code, range(now.year, end.year + 2))
        if now <= reminder.at < end
    ]
    planned.sort(key=lambda pair: (pair[1].at, pair[0]))
    results = _draw_results([id for id, _ in planned], seed)
    return {id: structs.replace(reminder, result=results.get(id, SimulatedResult.REACHED)) for id, reminder in planned}


def a_year_after(now: datetime) -> datetime:
    """Return the same day and time of the next year; the 28th for a 29th of February."""
    try:
        return now.replace(year=now.year + 1)
    except ValueError:
        return now.replace(year=now.year + 1, day=28)


def zone_of(country: str) -> str:
    """Return the first zone of a country in the time zone database."""
    return _first_zones().get(country) or ZONELESS.get(country, NOWHERE)


def _reminders(code: str, years: range) -> Iterator[tuple[str, HolidayReminder]]:
    import holidays

    language = holidays.country_holidays(code).default_language
    calendar = holidays.country_holidays(code, years=years, language=language)
    zone = zone_of(code)
    clock = ZoneInfo(zone)
    for day in sorted(calendar):
        at = datetime.combine(day - timedelta(days=1), REMIND_AT, clock)
        for number, name in enumerate(calendar.get_list(day), 1):
            yield f"{code}-{day}-{number}", HolidayReminder(code, name, day, at, zone)


@cache
def _first_zones() -> dict[str, str]:
    """Read zone.tab from the package tzdata, else from the system: country code → its first zone."""
    tables: list[Any] = [Path(folder, "zone.tab") for folder in TZPATH]
    with suppress(ModuleNotFoundError):
        tables.insert(0, files("tzdata").joinpath("zoneinfo", "zone.tab"))
    table = next((table.read_text(encoding="utf-8") for table in tables if table.is_file()), "")
    zones: dict[str, str] = {}
    for line in table.splitlines():
        if not line.startswith("#"):
            code, _, zone = line.split("\t")[:3]
            zones.setdefault(code, zone)
    return zones


def _draw_results(ids: list[str], seed: int) -> dict[str, SimulatedResult]:
    """Return the results other than success by id: each kind's share of the ids, and at least one."""
    drawn = random.Random(seed).sample(ids, len(ids))  # noqa: S311 - reproducible, not secret
    results: dict[str, SimulatedResult] = {}
    for result, share in _SHARES.items():
        for _ in range(min(len(drawn), max(1, round(len(ids) * share)))):
            results[drawn.pop()] = result
    return results
