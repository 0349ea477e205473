"""What the demo sends: a reminder a day before each public holiday of every country, at nine in the morning there."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo

import msgspec

REMIND_AT = time(9)
"""When a reminder is due, by the clocks of its country, on the day before the holiday."""
ZONELESS = {"XK": "Europe/Belgrade"}
"""Countries that zone.tab does not list: Kosovo has no ISO code of its own, and its clocks are Belgrade's."""
NOWHERE = "UTC"
"""The zone of a country that neither names: uninhabited islands, or a system without the time zone database."""

_BUSY_SHARE, _BOUNCING_SHARE, _UNSUBSCRIBED_SHARE = 0.03, 0.003, 0.002


class Fate(StrEnum):
    """What will happen to the callback of a reminder; the payload says it, so that any worker acts it out alike."""

    REACHED = "reached"
    """It succeeds."""
    BUSY = "busy"
    """It fails at the first attempt."""
    BOUNCES = "bounces"
    """It fails at every attempt."""
    UNSUBSCRIBED = "unsubscribed"
    """It is discarded."""


class Reminder(msgspec.Struct, frozen=True):
    """The payload: a holiday, and when and where to remind of it, in true time however fast the demo runs."""

    country: str
    """Its ISO code."""
    holiday: str
    """Its name in the country's own language."""
    day: date
    at: datetime
    """When the reminder is due, with the country's offset from UTC on that day."""
    zone: str
    fate: Fate = Fate.REACHED


class UnknownCountryError(ValueError):
    """A country was asked for that the package `holidays` does not know."""


@dataclass(frozen=True, slots=True)
class TimeLapse:
    """The year, shrunk: true times to the server's clock and back."""

    first: datetime
    end: datetime
    zero: int
    """When the year begins on the server's clock (ms)."""
    seconds: float

    @property
    def factor(self) -> float:
        """How many times faster than life it goes."""
        return (self.end - self.first).total_seconds() / self.seconds

    def due(self, at: datetime) -> int:
        """Return when something of a true time is due on the server's clock (ms)."""
        return self.zero + math.ceil((at - self.first).total_seconds() / self.factor * 1000)

    def share(self, now: float) -> float:
        """Return how much of the year is over at a server time (ms), 0 to 1."""
        return min(max((now - self.zero) / self.seconds / 1000, 0.0), 1.0)


def plan_year(now: datetime, *, countries: Iterable[str] | None = None, seed: int = 0) -> dict[str, Reminder]:
    """Return the reminders due in the twelve months from `now`, in order, by message id.

    An id is made of country, date and the number of the holiday on that day, and so is the same whenever it is
    planned. `countries` are ISO codes, by default all that `holidays` knows, without aliases; `seed` decides whose
    callbacks fail.
    """
    import holidays

    known = holidays.list_supported_countries(include_aliases=False)
    wanted = sorted(known) if countries is None else sorted({code.upper() for code in countries})
    if unknown := [code for code in wanted if code not in known]:
        raise UnknownCountryError(f"unknown country: {', '.join(unknown)}; a code is like PT or JP")
    end = a_year_after(now)
    planned = [
        (id, reminder)
        for code in wanted
        for id, reminder in _reminders(code, range(now.year, end.year + 2))
        if now <= reminder.at < end
    ]
    planned.sort(key=lambda pair: (pair[1].at, pair[0]))
    fates = _draw_fates([id for id, _ in planned], seed)
    return {id: msgspec.structs.replace(reminder, fate=fates.get(id, Fate.REACHED)) for id, reminder in planned}


def a_year_after(now: datetime) -> datetime:
    """Return the same day and time of the next year; the 28th for a 29th of February."""
    try:
        return now.replace(year=now.year + 1)
    except ValueError:
        return now.replace(year=now.year + 1, day=28)


def zone_of(country: str) -> str:
    """Return the first zone of a country in the table of the time zone database."""
    return _first_zones().get(country) or ZONELESS.get(country, NOWHERE)


def _reminders(code: str, years: range) -> Iterator[tuple[str, Reminder]]:
    import holidays

    language = holidays.country_holidays(code).default_language
    calendar = holidays.country_holidays(code, years=years, language=language)
    zone = zone_of(code)
    clock = ZoneInfo(zone)
    for day in sorted(calendar):
        at = datetime.combine(day - timedelta(days=1), REMIND_AT, clock)
        for number, name in enumerate(calendar.get_list(day), 1):
            yield f"{code}-{day}-{number}", Reminder(code, name, day, at, zone)


@cache
def _first_zones() -> dict[str, str]:
    """Read zone.tab, of the package tzdata if it is there, else of the system: country code → its first zone."""
    zones: dict[str, str] = {}
    for line in _zone_table().splitlines():
        if not line.startswith("#"):
            code, _, zone = line.split("\t")[:3]
            zones.setdefault(code, zone)
    return zones


def _zone_table() -> str:
    try:
        return files("tzdata").joinpath("zoneinfo", "zone.tab").read_text(encoding="utf-8")
    except (ModuleNotFoundError, FileNotFoundError):
        tables = [Path(folder, "zone.tab") for folder in TZPATH]
        return next((table.read_text(encoding="utf-8") for table in tables if table.is_file()), "")


def _draw_fates(ids: list[str], seed: int) -> dict[str, Fate]:
    """Return who does not simply succeed: of each kind its share, and at least one while there are any left."""
    drawn = random.Random(seed).sample(ids, len(ids))  # noqa: S311 - the same every time, not secret
    fates: dict[str, Fate] = {}
    for fate, share in (
        (Fate.BUSY, _BUSY_SHARE),
        (Fate.BOUNCES, _BOUNCING_SHARE),
        (Fate.UNSUBSCRIBED, _UNSUBSCRIBED_SHARE),
    ):
        for _ in range(min(len(drawn), max(1, round(len(ids) * share)))):
            fates[drawn.pop()] = fate
    return fates
