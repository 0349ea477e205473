"""Reminders planned from the holidays of all countries."""

from __future__ import annotations

import unicodedata
from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest

from delayq.broker.keys import check_id
from delayq.demo.holidays.holiday_demo import plan_year
from delayq.errors import ConfigurationError

NOW = datetime(2026, 11, 20, 17, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def year():
    return plan_year(NOW)


def test_plan_covers_the_world_and_a_whole_year(year):
    assert len({reminder.country for reminder in year.values()}) >= 200
    due = [reminder.at for reminder in year.values()]
    assert due == sorted(due)
    assert due[0] - NOW < timedelta(days=2)
    assert NOW + timedelta(days=363) < due[-1] < NOW + timedelta(days=365)


def test_reminder_is_due_at_nine_on_the_day_before(year):
    for id, reminder in year.items():
        day = date.fromisoformat(check_id(id)[3:13])
        assert (reminder.at.hour, reminder.at.minute) == (9, 0)
        assert reminder.at.date() == day - timedelta(days=1)


def test_holiday_names_are_in_the_local_language(year):
    scripts = {unicodedata.name(reminder.holiday[0]).split()[0] for reminder in year.values()}
    assert {"LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "CJK", "HANGUL", "THAI", "GEORGIAN"} <= scripts


def test_local_time_follows_daylight_saving_time():
    year = plan_year(NOW, countries="PT")
    assert year["PT-2027-01-01-1"].at.astimezone(UTC) == datetime(2026, 12, 31, 9, tzinfo=UTC)
    assert year["PT-2027-06-10-1"].at.astimezone(UTC) == datetime(2027, 6, 9, 8, tzinfo=UTC)


def test_zone_of_a_country_is_its_first(year):
    zones = {reminder.country: reminder.zone for reminder in year.values()}
    assert (zones["US"], zones["RU"], zones["JP"]) == ("America/New_York", "Europe/Kaliningrad", "Asia/Tokyo")


def test_seed_decides_which_callbacks_fail(year):
    results = Counter(reminder.result for reminder in year.values())
    assert 0.02 < results["busy"] / len(year) < 0.04
    assert 0 < results["bounces"] < 20
    assert 0 < results["unsubscribed"] < 20
    small = plan_year(NOW, countries="pt, jp")
    assert {reminder.result for reminder in small.values()} == {"reached", "busy", "bounces", "unsubscribed"}
    assert plan_year(NOW, countries="PT,JP") == small
    assert plan_year(NOW, countries="PT,JP", seed=1) != small


def test_unknown_country_is_an_error():
    with pytest.raises(ConfigurationError, match="XY"):
        plan_year(NOW, countries="PT,XY")
