"""From the calendars of the world to reminders."""

from __future__ import annotations

import unicodedata
from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest

from delayq.demo.reminders import Fate, TimeLapse, UnknownCountryError, a_year_after, plan_year, zone_of
from delayq.keys import check_id

NOW = datetime(2026, 11, 20, 17, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def year():
    return plan_year(NOW)


def test_the_whole_world_is_reminded_of_a_whole_year(year):
    assert len({reminder.country for reminder in year.values()}) >= 200
    assert len(year) >= 3000
    assert all(NOW <= reminder.at < a_year_after(NOW) for reminder in year.values())
    months = Counter(reminder.at.month for reminder in year.values())
    assert set(months) == set(range(1, 13))


def test_a_reminder_is_due_at_nine_in_the_morning_there_a_day_before(year):
    for reminder in year.values():
        assert (reminder.at.hour, reminder.at.minute) == (9, 0)
        assert reminder.at.date() == reminder.day - timedelta(days=1)


def test_ids_are_valid_and_the_same_when_planned_again(year):
    assert all(check_id(id) == id for id in year)
    assert list(plan_year(NOW)) == list(year)
    later = plan_year(NOW + timedelta(days=30))
    assert {id for id in year if year[id].at >= NOW + timedelta(days=30)} <= later.keys()


def test_two_holidays_of_one_day_are_two_reminders(year):
    days = Counter((reminder.country, reminder.day) for reminder in year.values())
    assert max(days.values()) > 1
    (country, day), _ = days.most_common(1)[0]
    assert {f"{country}-{day}-1", f"{country}-{day}-2"} <= year.keys()


def test_reminders_come_in_the_order_in_which_they_are_due(year):
    due = [reminder.at for reminder in year.values()]
    assert due == sorted(due)


def test_names_are_in_the_languages_of_their_countries(year):
    scripts = {unicodedata.name(reminder.holiday[0]).split()[0] for reminder in year.values()}
    assert {"LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "CJK", "HANGUL", "THAI", "GEORGIAN"} <= scripts
    assert any(reminder.holiday == "Sexta-feira Santa" for reminder in year.values() if reminder.country == "PT")


def test_nine_in_the_morning_follows_the_clocks_of_the_country():
    year = plan_year(NOW, countries=["PT"])
    winter = year["PT-2027-01-01-1"]
    summer = year["PT-2027-06-10-1"]
    assert winter.at.astimezone(UTC) == datetime(2026, 12, 31, 9, tzinfo=UTC)
    assert summer.at.astimezone(UTC) == datetime(2027, 6, 9, 8, tzinfo=UTC)


def test_the_clock_that_counts_is_that_of_the_day_of_the_reminder():
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
def test_a_country_has_the_first_zone_of_the_table_or_a_stand_in(country, zone):
    assert zone_of(country) == zone


def test_the_seed_decides_whose_callbacks_fail(year):
    fates = Counter(reminder.fate for reminder in year.values())
    assert 0.02 < fates[Fate.BUSY] / len(year) < 0.04
    assert 0 < fates[Fate.BOUNCES] < 20
    assert 0 < fates[Fate.UNSUBSCRIBED] < 20
    assert plan_year(NOW, seed=0) == year
    assert plan_year(NOW, seed=1) != year


def test_a_small_year_has_one_of_each_fate():
    assert {reminder.fate for reminder in plan_year(NOW, countries=["pt"]).values()} == set(Fate)


def test_an_unknown_country_is_named():
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
