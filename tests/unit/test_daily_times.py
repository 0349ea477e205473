"""Times of cron expressions that restrict neither date nor month: the same as those that cronsim finds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from delayq.schedules.cron import Cron, _following, _parse, daily_times

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of the wall clock
MINUTES = ["*", "0", "59", "5,7,30", "*/15", "10-12", "3-40/7"]
HOURS = ["*", "0", "23", "9,17", "*/5", "8-18"]
WEEKDAYS = ["*", "0", "7", "1-5", "SUN,WED", "6", "0-7", "5-7", "*/2"]
expressions = st.tuples(*map(st.sampled_from, (MINUTES, HOURS, WEEKDAYS))).map(lambda one: "{} {} * * {}".format(*one))


@given(expressions, st.integers(0, 4_000_000_000))
def test_times_are_those_of_cronsim(text, wall):
    parsed = CronSim(text, EPOCH)
    expected = (next(CronSim(text, EPOCH + timedelta(seconds=wall))) - EPOCH) // timedelta(seconds=1)
    assert daily_times(parsed).after(wall) == expected


@pytest.mark.parametrize("wall", [0, 1, 86_399, 86_400, 1_795_000_000])
@pytest.mark.parametrize("text", ["30 0 9 * * *", "*/20 0 0 * * 1", "59 59 23 * * 7"])
def test_seconds_count(text, wall):
    parsed = CronSim(text, EPOCH)
    assert daily_times(parsed).after(wall) == _following(parsed, wall)


RESTRICTED = ["0 9 1 * *", "0 9 L * *", "0 9 * 2 *", "0 9 */2 * *", "0 9 * * 5L", "0 9 * * 1#2", "0 9 * * 7,5L"]


@pytest.mark.parametrize("text", RESTRICTED)
def test_dates_and_months_are_left_to_cronsim(text):
    assert daily_times(CronSim(text, EPOCH)) is None


def test_very_many_times_a_day_are_not_listed():
    assert daily_times(CronSim("* * * * * *", EPOCH)) is None
    assert _parse("* * * * *").daily is not None
    now = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
    assert Cron("* * * * * *").after(int(now.timestamp() * 1000)) == int(now.timestamp() * 1000) + 1000
