"""What the demo sends: a reminder the day before each public holiday of every country, at nine in the morning there."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import datetime, time, timedelta
from importlib.resources import files
from zoneinfo import ZoneInfo

import holidays
from msgspec import structs

from delayq.demo.holidays.holiday_worker import HolidayReminder
from delayq.errors import ConfigurationError

YEAR = timedelta(days=365)
_SHARES = {"busy": 0.03, "bounces": 0.003, "unsubscribed": 0.002}


def plan_year(now: datetime, *, countries: str | None = None, seed: int = 0) -> dict[str, HolidayReminder]:
    """Return the reminders due in the year from `now`, in order, by message id: country, date, number on that day.

    `countries` are ISO codes such as `PT,JP`, by default all that are known; `seed` determines which callbacks fail.
    """
    known = holidays.list_supported_countries(include_aliases=False)
    wanted = known if countries is None else set(re.findall(r"\w+", countries.upper()))
    if unknown := sorted(code for code in wanted if code not in known):
        raise ConfigurationError(f"unknown country {', '.join(unknown)}: use ISO codes such as PT or JP")
    years = range(now.year, now.year + 3)  # the last for a New Year's Day just after the end
    table = files("tzdata").joinpath("zoneinfo", "zone.tab").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in reversed(table) if not line.startswith("#"))
    zones = {row[0]: row[2] for row in rows} | {"XK": "Europe/Belgrade"}  # the first of each; Kosovo has none
    found = {id: reminder for code in wanted for id, reminder in _reminders(code, years, zones.get(code, "UTC"))}
    ids = [id for at, id in sorted((one.at, id) for id, one in found.items()) if now <= at < now + YEAR]
    drawn = iter(random.Random(seed).sample(ids, len(ids)))  # noqa: S311 - reproducible, not secret
    for result, share in _SHARES.items():
        for _, id in zip(range(max(1, round(len(ids) * share))), drawn, strict=False):
            found[id] = structs.replace(found[id], result=result)
    return {id: found[id] for id in ids}


def _reminders(code: str, years: range, zone: str) -> Iterator[tuple[str, HolidayReminder]]:
    language = holidays.country_holidays(code).default_language
    calendar = holidays.country_holidays(code, years=years, language=language)
    for day in calendar:
        at = datetime.combine(day - timedelta(days=1), time(9), ZoneInfo(zone))
        for number, name in enumerate(calendar.get_list(day), 1):
            yield f"{code}-{day}-{number}", HolidayReminder(code, name, at, zone)
