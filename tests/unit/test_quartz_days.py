"""The day fields of Quartz in cron expressions, compared day by day with a calendar over decades."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq import ConfigurationError
from delayq.schedules.cron import Cron

NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
FIRST, LAST = date(2000, 1, 1), date(2028, 1, 1)  # then the days of the week begin again


@cache
def days_from(first: date) -> list[date]:
    days = [first + timedelta(days=n) for n in range(31)]
    return [one for one in days if one.month == first.month]


def days_of_month(day: date) -> list[date]:
    return days_from(day.replace(day=1))


@cache
def nearest(target: date) -> date:
    """Return the weekday of the same month that is the fewest days away; of two, only one is in question."""
    weekdays = [one for one in days_of_month(target) if one.isoweekday() < 6]
    return min(weekdays, key=lambda one: (abs(one - target), one))


def matches(term: str, day: date) -> bool:
    """Return whether a date is what a term of the day of the month names, by looking at all days of its month."""
    days = days_of_month(day)
    name, weekday = (term[:-1], True) if term.endswith("W") else (term, False)
    if name.startswith("L"):
        ahead = int(name[2:] or 0)
        target = days[-1 - ahead] if ahead < len(days) else None
    else:
        target = days[int(name) - 1] if int(name) <= len(days) else None
    if target is None:
        return False
    return day == (nearest(target) if weekday else target)


def last_of_month(number: int, day: date) -> bool:
    return day.isoweekday() % 7 == number and (day + timedelta(days=7)).month != day.month


def occurrences(text: str) -> list[date]:
    rule, found = Cron(text), []
    at = rule.after(int(datetime(2000, 1, 1, tzinfo=UTC).timestamp() * 1000) - 1)
    while at is not None and (day := datetime.fromtimestamp(at / 1000, UTC)).date() < LAST:
        assert (day.hour, day.minute, day.second) == (9, 0, 0)
        assert rule.up_to(at) == at
        assert rule.after(rule.up_to(at - 1) or 0) == at
        found.append(day.date())
        at = rule.after(at)
    return found


def expected(matching) -> list[date]:
    return [day for n in range((LAST - FIRST).days) if matching(day := FIRST + timedelta(days=n))]


terms = st.one_of(
    st.integers(1, 31).map(lambda day: f"{day}W"),
    st.integers(0, 30).map(lambda ahead: f"L-{ahead}" if ahead else "L"),
    st.integers(0, 30).map(lambda ahead: f"L-{ahead}W" if ahead else "LW"),
)


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(st.lists(terms | st.integers(1, 31).map(str), min_size=1, max_size=3))
def test_days_of_the_month_are_those_of_a_calendar(chosen):
    found = occurrences(f"0 9 {','.join(chosen)} * ?")
    assert found == expected(lambda day: any(matches(term, day) for term in chosen))


@pytest.mark.long
@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True), st.booleans())
def test_last_weekdays_are_those_of_a_calendar(numbers, named):
    field = ",".join(f"{NAMES[number] if named else number}L" for number in numbers)
    assert occurrences(f"0 9 ? * {field}") == expected(lambda day: any(last_of_month(n, day) for n in numbers))


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(terms, st.integers(0, 6), st.sets(st.integers(1, 12), min_size=2, max_size=4))
def test_either_of_two_day_fields_may_match(term, weekday, months):
    found = occurrences(f"0 9 {term} {','.join(map(str, sorted(months)))} {weekday}")
    assert found == expected(
        lambda day: day.month in months and (matches(term, day) or day.isoweekday() % 7 == weekday)
    )


@pytest.mark.table(
    ("text", "first"),
    [
        ("0 9 15W * *", "2027-01-15"),  # a Friday
        ("0 9 16W 1 *", "2027-01-15"),  # a Saturday
        ("0 9 17W 1 ?", "2027-01-18"),  # a Sunday
        ("0 9 1W 5 *", "2027-05-03"),  # a Saturday: not into April
        ("0 9 31W 1 *", "2027-01-29"),  # a Sunday: not into February
        ("0 9 LW 2 *", "2027-02-26"),
        ("0 9 L-3 1 *", "2027-01-28"),
        ("0 9 l-3w 1 *", "2027-01-28"),
        ("0 9 L-30 * *", "2027-01-01"),
        ("0 9 ? 1 SUNL", "2027-01-31"),
        ("0 9 * 1 7L", "2027-01-31"),
        ("0 9 ? 1 5L", "2027-01-29"),
        ("0 9 ? 1 MON", "2027-01-04"),
        ("0 0 9 ? * sunl", "2027-01-31"),
    ],
)
def test_first_occurrence_in_2027(text, first):
    found = Cron(text).after(int(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1000) - 1)
    assert found is not None
    assert datetime.fromtimestamp(found / 1000, UTC).isoformat() == f"{first}T09:00:00+00:00"


@pytest.mark.table(
    ("text", "error"),
    [
        ("0 9 ? * ?", "only one of day-of-month and day-of-week may be ?"),
        ("? 9 * * *", "bad minute"),
        ("0 9 * ? *", "bad month"),
        ("0 9 ?,1 * *", "bad day-of-month"),
        ("0 9 0W * *", "bad day-of-month"),
        ("0 9 32W * *", "bad day-of-month"),
        ("0 9 L-0 * *", "bad day-of-month"),
        ("0 9 L-31 * *", "bad day-of-month"),
        ("0 9 1-5W * *", "bad day-of-month"),
        ("0 9 W * *", "bad day-of-month"),
        ("0 9 * * 5W", "bad day-of-week"),
        ("0 9 * * L-3", "bad day-of-week"),
        ("0 9 ? * L", "bad day-of-week"),
        ("0 9 ? * XXXL", "bad day-of-week"),
        ("0 9 31W 2,4 *", "never matches"),
    ],
)
def test_invalid_day_is_refused_with_its_field(text, error):
    with pytest.raises(ConfigurationError, match="cron") as caught:
        Cron(text)
    assert error in str(caught.value)


def test_skipped_local_time_occurs_after_the_change():
    # 28 March 2027 is the last Sunday of March, on which 02:30 does not exist in Berlin.
    rule, zone = Cron("30 2 ? 3 SUNL", "Europe/Berlin"), ZoneInfo("Europe/Berlin")
    found = rule.after(int(datetime(2027, 3, 1, tzinfo=zone).timestamp() * 1000))
    assert found == int(datetime(2027, 3, 28, 3, tzinfo=zone).timestamp() * 1000)
