"""A year of schedules in twenty zones, compared with the wall clock of `zoneinfo` at every quarter of an hour."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from delayq.schedules.cron import Cron
from delayq.schedules.recurring.timetable import Timetable

ZONES = [
    ("Australia/Lord_Howe", 2026),  # half an hour
    ("Asia/Kathmandu", 2026),  # 5:45, never set
    ("Africa/Casablanca", 2026),  # back for Ramadan
    ("Antarctica/Troll", 2026),  # two hours
    ("Pacific/Apia", 2011),  # left out 30 December
    ("Europe/Berlin", 2026),
    ("Europe/London", 2026),
    ("Europe/Dublin", 2026),  # whose winter is the exception
    ("America/New_York", 2026),
    ("America/St_Johns", 2026),  # half an hour off the others
    ("America/Havana", 2026),  # at midnight
    ("America/Santiago", 2026),  # at midnight, in the south
    ("America/Asuncion", 2023),
    ("Pacific/Chatham", 2026),  # 12:45
    ("Asia/Tehran", 2021),  # at midnight, by another calendar
    ("Asia/Beirut", 2026),
    ("Asia/Gaza", 2026),
    ("Africa/Cairo", 2026),
    ("Atlantic/Azores", 2026),
    ("America/Sao_Paulo", 2018),
    ("UTC", 2024),
]
QUARTER = 900
GAP = 3 * 3600

COUNTED = {
    "*/30 0-3 * * *": lambda wall: wall.minute % 30 == 0 and wall.hour < 4,
    "45 */2 * * 0": lambda wall: wall.minute == 45 and wall.hour % 2 == 0 and wall.isoweekday() == 7,
    "*/15 1,23 L * *": lambda wall: wall.hour in (1, 23) and (wall + timedelta(days=1)).day == 1,
    "0 15 * 29-31 * *": lambda wall: wall.minute == 15 and wall.day >= 29,
}
"""Expressions that count on: whether they match what the wall clock shows."""
FIXED = {
    "30 2 * * *": [(2, 30)],
    "0 0 * * *": [(0, 0)],
    "@daily": [(0, 0)],
    "15,45 2 * * *": [(2, 15), (2, 45)],
    "0 45 23 * * *": [(23, 45)],
    "0 9 * * *": [(9, 0)],
}
"""Expressions that name times of every day."""
COUNTED_LONG = COUNTED | {
    "*/15 * * * *": lambda wall: True,
    "0 * * * *": lambda wall: wall.minute == 0,
    "0 */3 * * *": lambda wall: wall.minute == 0 and wall.hour % 3 == 0,
    "*/15 0-3 * * *": lambda wall: wall.hour < 4,
}
FIXED_LONG = FIXED | {
    "0,15,30,45 0,1,2,3 * * *": [(hour, minute) for hour in range(4) for minute in (0, 15, 30, 45)],
}


@cache
def walls(zone: str, year: int) -> dict[int, datetime]:
    """Return the wall-clock time at every quarter of an hour of a year and a day around it."""
    first = int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) - 2 * 86_400
    times = range(first, first + 370 * 86_400, QUARTER)
    return {time: datetime.fromtimestamp(time, ZoneInfo(zone)).replace(tzinfo=None) for time in times}


def named(read: dict[int, datetime], times: list[tuple[int, int]]) -> set[int]:
    """Return when the clocks showed these times of each day first, or had gone on from where they are skipped."""
    first: dict[datetime, int] = {}
    for time, wall in read.items():
        first.setdefault(wall, time)
    gaps = [
        (before, after, time)
        for (_, before), (time, after) in pairwise(read.items())
        if timedelta(seconds=QUARTER) < after - before <= timedelta(seconds=GAP + QUARTER)
    ]
    found = set()
    day, last = min(read.values()).date(), max(read.values()).date()
    while day <= last:
        for hour, minute in times:
            wall = datetime.combine(day, datetime.min.time()).replace(hour=hour, minute=minute)
            if wall in first:
                found.add(first[wall])
            else:
                found |= {time for before, after, time in gaps if before < wall < after}
        day += timedelta(days=1)
    return found


def year_of(text: str, zone: str, first: int, last: int) -> list[int]:
    """Return the occurrences from one time to another, in seconds."""
    timetable = Timetable(Cron(text, zone), start=first * 1000, end=last * 1000)
    return [time // 1000 for time in timetable.upcoming(timetable.after(0), 40_000)]


def back_from(text: str, zone: str, first: int, last: int) -> list[int]:
    rule, found = Cron(text, zone), []
    time = rule.up_to(last * 1000)
    while time is not None and time >= first * 1000:
        found.append(time // 1000)
        time = rule.up_to(time - 1)
    return found[::-1]


def occurs_as_shown(
    zone: str, year: int, counted: Mapping[str, Any], fixed: Mapping[str, Any], back: list[str]
) -> None:
    """Compare a year of expressions with what the wall clock shows, and some of them backwards."""
    read = walls(zone, year)
    first, last = min(read) + 86_400, max(read) - 86_400
    expected = {text: {time for time, wall in read.items() if fits(wall)} for text, fits in counted.items()}
    expected |= {text: named(read, times) for text, times in fixed.items()}
    for text, times in expected.items():
        within = sorted(time for time in times if first <= time <= last)
        assert year_of(text, zone, first, last) == within, text
        if text in back:
            assert back_from(text, zone, first, last) == within, text


@pytest.mark.parametrize(
    ("zone", "year"), [*ZONES[:5], *(pytest.param(*zone, marks=pytest.mark.long) for zone in ZONES[5:])]
)
def test_occurrences_of_a_year_match_the_wall_clock(zone, year):
    occurs_as_shown(zone, year, COUNTED, FIXED, ["30 2 * * *", "@daily", "*/15 1,23 L * *"])


@pytest.mark.torture
@pytest.mark.parametrize(("zone", "year"), ZONES)
def test_frequent_occurrences_of_a_year_match_the_wall_clock_both_ways(zone, year):
    occurs_as_shown(zone, year, COUNTED_LONG, FIXED_LONG, [*COUNTED_LONG, *FIXED_LONG])


def at(text: str, zone: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def local(text: str, zone: str, since: str, n: int) -> list[str]:
    """Return the next occurrences as a wall clock of the zone shows them."""
    rule = Timetable(Cron(text, zone))
    times = rule.upcoming(rule.after(at(since, zone) * 1000 - 1), n)
    return [datetime.fromtimestamp(time // 1000, ZoneInfo(zone)).strftime("%d %H:%M:%S %z") for time in times]


def test_time_skipped_in_spring_occurs_after_the_gap():
    berlin = "Europe/Berlin"
    assert local("30 2 * * *", berlin, "2026-03-28T12:00", 2) == ["29 03:00:00 +0200", "30 02:30:00 +0200"]
    assert local("0 30 2 * * *", berlin, "2026-03-28T12:00", 2) == ["29 03:00:00 +0200", "30 02:30:00 +0200"]
    assert local("0,30 2,3 * * *", berlin, "2026-03-29T00:00", 3) == [
        *("29 03:00:00 +0200", "29 03:30:00 +0200", "30 02:00:00 +0200")
    ]
    assert local("*/30 2 * * *", berlin, "2026-03-28T12:00", 1) == ["30 02:00:00 +0200"]
    assert local("*/30 * * * *", berlin, "2026-03-29T01:30", 2) == ["29 01:30:00 +0100", "29 03:00:00 +0200"]


def test_fixed_time_repeated_in_autumn_occurs_once():
    berlin = "Europe/Berlin"
    assert local("30 2 * * *", berlin, "2026-10-25T00:00", 2) == ["25 02:30:00 +0200", "26 02:30:00 +0100"]
    assert local("*/30 2 * * *", berlin, "2026-10-25T00:00", 5) == [
        *("25 02:00:00 +0200", "25 02:30:00 +0200", "25 02:00:00 +0100", "25 02:30:00 +0100", "26 02:00:00 +0100")
    ]


def test_skipped_day_has_no_occurrence():
    apia = "Pacific/Apia"
    assert local("0 9 * * *", apia, "2011-12-29T00:00", 2) == ["29 09:00:00 -1000", "31 09:00:00 +1400"]
    assert local("0 0 30 12 *", apia, "2011-12-01T00:00", 1)[0].startswith("30 00:00:00")
    assert Cron("0 0 30 12 *", apia).after(at("2011-12-01T00:00", apia) * 1000) == at("2012-12-30T00:00", apia) * 1000


def test_gap_of_half_an_hour_is_handled():
    howe = "Australia/Lord_Howe"
    assert local("15 2 * * *", howe, "2026-10-03T12:00", 2) == ["04 02:30:00 +1100", "05 02:15:00 +1100"]
    assert local("*/10 3 * * *", howe, "2026-10-04T00:00", 2) == ["04 03:00:00 +1100", "04 03:10:00 +1100"]


def test_leap_days_and_last_days_of_months_are_found():
    assert local("0 12 29 2 *", "UTC", "2026-01-01T00:00", 2) == ["29 12:00:00 +0000"] * 2
    assert [text[:2] for text in local("0 0 L * *", "UTC", "2026-01-15T00:00", 4)] == ["31", "28", "31", "30"]


def test_distant_date_is_found_across_clock_changes():
    berlin = "Europe/Berlin"
    timetable = Timetable(Cron("*/20 3 29 2 *", berlin))
    times = timetable.upcoming(timetable.after(at("2028-03-01T00:00", berlin) * 1000), 2)
    assert times == [at("2032-02-29T03:00", berlin) * 1000, at("2032-02-29T03:20", berlin) * 1000]
