"""Reminders planned from the holidays of all countries."""

from __future__ import annotations

import unicodedata
from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest

from delayq.broker.keys import check_id
from delayq.demo.holidays.holiday_reminders import (
    SimulatedResult,
    TimeLapse,
    UnknownCountryError,
    a_year_after,
    plan_year,
    zone_of,
)

NOW = datetime(2026, 11, 20, 17, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def year():
    return plan_year(NOW)


def test_plan_covers_the_world_and_a_whole_year(year):
    assert len({reminder.country for reminder in year.values()}) >= 200
    assert len(year) >= 3000
    assert all(NOW <= reminder.at < a_year_after(NOW) for reminder in year.values())
    months = Counter(reminder.at.month for reminder in year.values())
    assert set(months) == set(range(1, 13))


@pytest.mark.long
def test_reminder_is_due_the_day_before_at_nine_local_time(year):
    for reminder in year.values():
        assert (reminder.at.hour, reminder.at.minute) == (9, 0)
        assert reminder.at.date() == reminder.day - timedelta(days=1)


@pytest.mark.long
def test_ids_are_valid_and_stable(year):
    assert all(check_id(id) == id for id in year)
    assert list(plan_year(NOW)) == list(year)
    later = plan_year(NOW + timedelta(days=30))
    assert {id for id in year if year[id].at >= NOW + timedelta(days=30)} <= later.keys()


def test_two_holidays_on_one_day_have_two_reminders(year):
    days = Counter((reminder.country, reminder.day) for reminder in year.values())
    assert max(days.values()) > 1
    (country, day), _ = days.most_common(1)[0]
    assert {f"{country}-{day}-1", f"{country}-{day}-2"} <= year.keys()


def test_reminders_are_sorted_by_due_time(year):
    due = [reminder.at for reminder in year.values()]
    assert due == sorted(due)


def test_holiday_names_are_in_the_local_language(year):
    scripts = {unicodedata.name(reminder.holiday[0]).split()[0] for reminder in year.values()}
    assert {"LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "CJK", "HANGUL", "THAI", "GEORGIAN"} <= scripts
    assert any(reminder.holiday == "Sexta-feira Santa" for reminder in year.values() if reminder.country == "PT")


def test_local_time_follows_daylight_saving_time():
    year = plan_year(NOW, countries=["PT"])
    winter = year["PT-2027-01-01-1"]
    summer = year["PT-2027-06-10-1"]
    assert winter.at.astimezone(UTC) == datetime(2026, 12, 31, 9, tzinfo=UTC)
    assert summer.at.astimezone(UTC) == datetime(2027, 6, 9, 8, tzinfo=UTC)


def test_offset_is_that_of_the_day_of_the_reminder():
    # New Zealand's summer time began on 2026-09-27.
    before = plan_year(datetime(2026, 9, 1, tzinfo=UTC), countries=["NZ"])
    labour_day = next(reminder for reminder in before.values() if reminder.day == date(2026, 10, 26))
    assert labour_day.at.astimezone(UTC) == datetime(2026, 10, 24, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("country", "zone"),
    [
        ("PT", "Europe/Lisbon"),
        ("US", "America/New_York"),
        ("JP", "Asia/Tokyo"),
        ("RU", "Europe/Kaliningrad"),
        ("XK", "Europe/Belgrade"),
        ("BV", "UTC"),
    ],
)
def test_zone_of_a_country_is_the_first_of_the_table_or_a_default(country, zone):
    assert zone_of(country) == zone


def test_seed_decides_which_callbacks_fail(year):
    results = Counter(reminder.result for reminder in year.values())
    assert 0.02 < results[SimulatedResult.BUSY] / len(year) < 0.04
    assert 0 < results[SimulatedResult.BOUNCES] < 20
    assert 0 < results[SimulatedResult.UNSUBSCRIBED] < 20
    assert plan_year(NOW, seed=0) == year
    assert plan_year(NOW, seed=1) != year


def test_small_plan_has_every_simulated_result():
    assert {reminder.result for reminder in plan_year(NOW, countries=["pt"]).values()} == set(SimulatedResult)


def test_unknown_country_is_an_error():
    with pytest.raises(UnknownCountryError, match="XY"):
        plan_year(NOW, countries=["PT", "XY"])


def test_a_year_after_a_leap_day_is_the_28th():
    assert a_year_after(datetime(2028, 2, 29, 12, tzinfo=UTC)) == datetime(2029, 2, 28, 12, tzinfo=UTC)


def test_time_lapse_keeps_the_order_and_is_never_early():
    lapse = TimeLapse(NOW, a_year_after(NOW), 1_000_000, 30)
    half = lapse.due(NOW + timedelta(days=182.5))
    assert half == 1_000_000 + 15_000
    assert lapse.share(half) == 0.5
    assert lapse.due(NOW + timedelta(seconds=1)) == 1_000_001
    assert (lapse.share(0), lapse.share(9_999_999)) == (0, 1)
