"""Days of the wall clock, compared with the local times of `zoneinfo`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq.schedules.rules import WallDays
from delayq.values.times import from_millis, timestamp

ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Pacific/Apia", "Asia/Tehran"]
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def first_shown(wall: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the first minute at which the clock shows a time, or has skipped it; None if it skips the whole day."""
    at = wall.replace(tzinfo=UTC) - timedelta(hours=28)
    while (clock := at.astimezone(zone).replace(tzinfo=None)) < wall:
        at += MINUTE if wall - clock < 26 * HOUR else HOUR
    return at if clock - wall <= 3 * HOUR else None


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(ZONES), st.integers(0, 13 * 366 * 1440), st.integers(1, 30))
def test_occurrences_are_at_the_same_local_time(tz, minutes, days):
    zone = ZoneInfo(tz)
    begin = datetime(2008, 1, 1, tzinfo=UTC) + minutes * MINUTE
    rule = WallDays(days, tz, timestamp(begin))
    at = rule.after(timestamp(begin) - 1)
    assert at == timestamp(begin)
    wall = begin.astimezone(zone).replace(tzinfo=None)
    for _ in range(8):
        shown = None
        while shown is None:
            wall += timedelta(days=days)
            shown = first_shown(wall, zone)
        at = rule.after(at)
        assert at is not None
        assert from_millis(at) == shown
        assert rule.up_to(at) == at
        assert rule.after(rule.up_to(at - 1) or 0) == at


@pytest.mark.parametrize(
    ("start", "days", "shown"),
    [
        ("2027-03-27T02:30+01:00", 1, ["27 02:30 +0100", "28 03:00 +0200", "29 02:30 +0200"]),  # skipped on the 28th
        ("2026-10-24T02:30+02:00", 1, ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]),  # twice on the 25th
        ("2026-10-25T02:30+01:00", 1, ["25 02:30 +0100", "26 02:30 +0100", "27 02:30 +0100"]),  # from the second one
    ],
)
def test_skipped_and_repeated_local_times(start, days, shown):
    begin, zone = datetime.fromisoformat(start), ZoneInfo("Europe/Berlin")
    rule, at, found = WallDays(days, zone.key, timestamp(begin)), timestamp(begin) - 1, []
    for _ in shown:
        at = rule.after(at) or 0
        found.append(f"{from_millis(at).astimezone(zone):%d %H:%M %z}")
    assert found == shown


def test_days_without_a_start_are_counted_from_midnight_in_1970():
    rule = WallDays(7, "Europe/Berlin", None)
    at = rule.after(timestamp(datetime(2026, 11, 20, tzinfo=UTC))) or 0
    assert from_millis(at).astimezone(ZoneInfo("Europe/Berlin")).isoformat() == "2026-11-26T00:00:00+01:00"  # Thursday
