"""RRULE schedules: compared with dateutil's own expansion, and with a calendar that is looked at day by day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain, takewhile
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq import ConfigurationError
from delayq.schedules.recurring.recurrence import RRule
from delayq.values.times import from_millis, timestamp

DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
START = datetime(2003, 5, 17, 9, 30, tzinfo=UTC)


def times(rule: RRule, since: datetime, until: datetime) -> list[datetime]:
    """Return the occurrences from a time until another, which are the same forwards and backwards."""
    found, at = [], rule.after(timestamp(since) - 1)
    while at is not None and at <= timestamp(until):
        assert rule.up_to(at) == at
        assert rule.after(at - 1) == at
        if found:
            assert rule.up_to(at - 1) == timestamp(found[-1])
        found.append(from_millis(at))
        at = rule.after(at)
    return found


def numbers(least: int, most: int, size: int = 2):
    return st.lists(st.integers(least, most).filter(bool), min_size=1, max_size=size, unique=True)


def part(name, values):
    return st.none() | values.map(lambda found: f"{name}={','.join(map(str, found))}")


@st.composite
def rules(draw):
    frequency = draw(st.sampled_from(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY"]))
    plain = st.lists(st.sampled_from(DAYS), min_size=1, max_size=3, unique=True)
    numbered = st.lists(st.tuples(st.integers(-5, 5), st.sampled_from(DAYS)), min_size=1, max_size=2).map(
        lambda found: [f"{n or ''}{day}" for n, day in found]
    )
    by = [
        draw(part("BYDAY", numbered if frequency in ("YEARLY", "MONTHLY") else plain)),
        draw(part("BYMONTH", numbers(1, 12, 3))),
        draw(part("BYMONTHDAY", numbers(-31, 31))) if frequency != "WEEKLY" else None,
        draw(part("BYYEARDAY", numbers(-366, 366))) if frequency == "YEARLY" else None,
        draw(part("BYHOUR", numbers(1, 23))),
        draw(part("BYMINUTE", numbers(1, 59))),
        draw(part("WKST", st.sampled_from(DAYS).map(lambda day: [day]))),
    ]
    # Of the week of its start, dateutil counts only what is left: not as RFC 5545, which has a test of its own.
    if frequency != "WEEKLY" and any(one and one.startswith("BY") for one in by):
        most = 1 if frequency in ("DAILY", "HOURLY") else 4  # dateutil looks for others until the year 9999
        by.append(draw(part("BYSETPOS", numbers(-most, most))))
    parts = [f"FREQ={frequency}", f"INTERVAL={draw(st.integers(1, 7))}", *filter(None, by)]
    if draw(st.booleans()):
        parts.append(f"COUNT={draw(st.integers(1, 30))}")
    elif draw(st.booleans()):
        parts.append("UNTIL=20201231T120000Z")
    return ";".join(parts)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(rules(), st.integers(0, 15 * 365))
def test_occurrences_are_those_of_dateutil_from_its_start(text, days):
    since = START + timedelta(days=days)
    until = since + timedelta(days=20 if "HOURLY" in text else 500)
    try:
        expected = takewhile(lambda at: at.year < 2200, iter(rrulestr(text, dtstart=START)))
    except ValueError:  # hours that the interval never reaches
        expected = iter(())
    first = next(expected, None)
    if first is None:
        with pytest.raises(ConfigurationError, match="never matches"):
            RRule(text, "UTC", timestamp(START))
        return
    wanted = [at for at in takewhile(lambda at: at <= until, chain([first], expected)) if at >= since]
    assert times(RRule(text, "UTC", timestamp(START)), since, until) == wanted


def test_position_counts_in_the_whole_week_of_the_start():
    rule = RRule("FREQ=WEEKLY;BYDAY=WE,SA;BYSETPOS=2", "UTC", timestamp(START))  # a Saturday
    week = timedelta(weeks=1)
    assert times(rule, START, START + 2 * week) == [START, START + week, START + 2 * week]


def of_month(day: datetime) -> list[datetime]:
    first = day.replace(day=1)
    return [one for n in range(31) if (one := first + timedelta(days=n)).month == first.month]


@pytest.mark.long
@settings(max_examples=12, deadline=None)
@given(st.integers(1, 5), st.booleans(), st.sampled_from(range(7)), st.integers(1, 5), st.integers(0, 11))
def test_nth_weekday_of_the_month_is_that_of_a_calendar(n, last, weekday, interval, month):
    start = datetime(1999, 1, 1, 9, tzinfo=UTC)
    text = f"FREQ=MONTHLY;INTERVAL={interval};BYDAY={'-' if last else '+'}{n}{DAYS[weekday]}"
    start = start.replace(month=month + 1)
    expected = []
    for day in (start + timedelta(days=count) for count in range(30 * 365)):
        same = [one for one in of_month(day) if one.weekday() == weekday]
        in_turn = (day.year * 12 + day.month - start.year * 12 - start.month) % interval == 0
        if in_turn and len(same) >= n and same[-n if last else n - 1] == day:
            expected.append(day)
    assert times(RRule(text, "UTC", timestamp(start)), start, start + timedelta(days=30 * 365 - 1)) == expected


@pytest.mark.parametrize(
    ("text", "start", "shown"),
    [
        ("FREQ=DAILY", "2027-03-27T02:30+01:00", ["27 02:30 +0100", "28 03:00 +0200", "29 02:30 +0200"]),
        ("FREQ=DAILY", "2026-10-24T02:30+02:00", ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]),
        ("FREQ=DAILY", "2026-10-25T02:30+01:00", ["25 02:30 +0100", "26 02:30 +0100"]),
        ("FREQ=HOURLY", "2027-03-28T01:30+01:00", ["28 01:30 +0100", "28 03:30 +0200"]),
        ("FREQ=HOURLY", "2026-10-25T02:30+02:00", ["25 02:30 +0200", "25 02:30 +0100", "25 03:30 +0100"]),
        ("RRULE:freq=monthly;byday=-1FR", "2026-11-01T09:00+01:00", ["27 09:00 +0100", "25 09:00 +0100"]),
        ("FREQ=DAILY;COUNT=2", "2026-11-01T09:00+01:00", ["01 09:00 +0100", "02 09:00 +0100", ""]),
        ("FREQ=DAILY;UNTIL=20261102T080000Z", "2026-11-01T09:00+01:00", ["01 09:00 +0100", "02 09:00 +0100", ""]),
        ("FREQ=DAILY;UNTIL=20261102T075959Z", "2026-11-01T09:00+01:00", ["01 09:00 +0100", ""]),
        ("FREQ=DAILY;UNTIL=20261102T090000", "2026-11-01T09:00+01:00", ["01 09:00 +0100", "02 09:00 +0100", ""]),
        ("FREQ=DAILY;UNTIL=20261102", "2026-11-01T09:00+01:00", ["01 09:00 +0100", "02 09:00 +0100", ""]),
    ],
)
def test_times_are_local(text, start, shown):
    begin, zone = datetime.fromisoformat(start), ZoneInfo("Europe/Berlin")
    rule, at, found = RRule(text, zone.key, timestamp(begin)), timestamp(begin) - 1, []
    for _ in shown:
        following = rule.after(at)
        found.append("" if following is None else f"{from_millis(following).astimezone(zone):%d %H:%M %z}")
        at = following or at
    assert found == shown


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "rrule part '' is not valid: it must be NAME=VALUE"),
        (5, "rrule must be a text such as"),
        ("BYDAY=MO", "rrule part 'FREQ' is not valid: it must be one of YEARLY"),
        ("FREQ=MINUTELY", "rrule part 'FREQ=MINUTELY' is not valid: it must be one of YEARLY"),
        ("FREQ=DAILY;FREQ=DAILY", "FREQ is given twice"),
        ("FREQ=DAILY;BYEASTER=1", "rrule part 'BYEASTER=1' is not supported"),
        ("FREQ=DAILY;RSCALE=GREGORIAN", "rrule part 'RSCALE=GREGORIAN' is not supported"),
        ("DTSTART=20270101;FREQ=DAILY", "rrule part 'DTSTART=20270101' is not supported: give start"),
        ("FREQ=DAILY;INTERVAL=0", "rrule part 'INTERVAL=0' is not valid"),
        ("FREQ=DAILY;INTERVAL=" + "9" * 400, "rrule part 'INTERVAL=999"),
        ("FREQ=DAILY;COUNT=-1", "rrule part 'COUNT=-1' is not valid"),
        ("FREQ=DAILY;COUNT=10001", "rrule part 'COUNT=10001' is not valid: it must be 1 to 10,000"),
        ("FREQ=DAILY;COUNT=5;UNTIL=20270101", "rrule part 'COUNT=5' is not valid: it cannot be together with UNTIL"),
        ("FREQ=DAILY;UNTIL=tomorrow", "rrule part 'UNTIL=TOMORROW' is not valid"),
        ("FREQ=DAILY;UNTIL=20270230", "rrule part 'UNTIL=20270230' is not valid"),
        ("FREQ=DAILY;UNTIL=99990101", "rrule part 'UNTIL=99990101' is not valid"),
        ("FREQ=MONTHLY;BYDAY=6FR", "rrule part 'BYDAY=6FR' is not valid"),
        ("FREQ=MONTHLY;BYDAY=XX", "rrule part 'BYDAY=XX' is not valid"),
        ("FREQ=WEEKLY;BYDAY=1FR", "rrule part 'BYDAY=1FR' is not valid: it may have numbers with FREQ=MONTHLY"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "rrule part 'BYMONTHDAY=1' is not valid: it cannot be together with FREQ=WEEKLY"),
        ("FREQ=MONTHLY;BYWEEKNO=1", "rrule part 'BYWEEKNO=1' is not valid: it cannot be together with FREQ=MONTHLY"),
        ("FREQ=MONTHLY;BYSETPOS=1", "rrule part 'BYSETPOS=1' is not valid: it needs another part"),
        ("FREQ=DAILY;BYMONTHDAY=0", "rrule part 'BYMONTHDAY=0' is not valid"),
        ("FREQ=DAILY;BYHOUR=24", "rrule part 'BYHOUR=24' is not valid: it must have numbers of 0 to 23"),
        ("FREQ=DAILY;BYHOUR=", "rrule part 'BYHOUR=' is not valid: it must be NAME=VALUE"),
        ("FREQ=WEEKLY;WKST=XX", "rrule part 'WKST=XX' is not valid"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "never matches"),
        ("FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30", "never matches"),
        ("FREQ=HOURLY;INTERVAL=24;BYHOUR=3", "never matches"),
        ("FREQ=DAILY;UNTIL=20000101", "never matches: no such time from its start to its UNTIL"),
        ("FREQ=YEARLY;BYDAY=MO;BYYEARDAY=-366;UNTIL=20201231T120000Z", "never matches"),
        ("FREQ=DAILY;" + "BYHOUR=" + ",".join(map(str, range(24))) + ";BYMINUTE=" + ",".join(map(str, range(60)))
         + ";BYSECOND=0,30", "rrule recurs 2,880 times a day, the limit is 1,440"),
    ],
)  # fmt: skip
def test_invalid_rule_is_refused_by_its_part(text, error):
    begun = process_time()
    with pytest.raises(ConfigurationError) as caught:
        RRule(text, "UTC", timestamp(START))
    assert error in str(caught.value)
    assert str(caught.value).isprintable()
    assert process_time() - begun < 1


def test_count_needs_a_start():
    with pytest.raises(ConfigurationError, match="rrule part 'COUNT=3' needs a start"):
        RRule("FREQ=DAILY;COUNT=3", "UTC", None)


ALL_MINUTES = f"BYHOUR={','.join(map(str, range(24)))};BYMINUTE={','.join(map(str, range(60)))}"


@pytest.mark.parametrize(
    "text",
    [
        f"FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;{ALL_MINUTES}",
        f"FREQ=DAILY;{ALL_MINUTES}",
        f"FREQ=DAILY;COUNT=10000;{ALL_MINUTES}",
        f"FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYSETPOS={','.join(map(str, range(1, 60)))},-1",
        "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO;COUNT=10000",
        "FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=29;COUNT=10000",
        "FREQ=YEARLY;INTERVAL=1000",
        "FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO",
        "FREQ=HOURLY;INTERVAL=1000;BYMONTHDAY=31",
        "FREQ=WEEKLY;INTERVAL=999;BYMONTH=2",
    ],
)
def test_no_rule_takes_long(text):
    """The limit is a second of a usual machine, as told by a million steps of a loop beside it."""
    start = timestamp(datetime(1970, 1, 1, tzinfo=UTC))
    spent, begun = [], process_time()
    rule = RRule(text, "Europe/Berlin", start)
    spent.append(process_time() - begun)
    for at in (start, timestamp(START), timestamp(datetime(2199, 1, 1, tzinfo=UTC))):
        for find in (rule.after, rule.up_to):
            begun = process_time()
            find(at)
            spent.append(process_time() - begun)
    begun = process_time()
    assert sum(n % 7 for n in range(1_000_000)) > 0
    assert max(spent) < 40 * (process_time() - begun)
