"""Recurring events, compared with their expansion from the first occurrence."""

from datetime import UTC, date, datetime, timedelta
from time import process_time
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq.reminders import expansion
from tests.reminders.conftest import NOW, ics, read

BERLIN = ZoneInfo("Europe/Berlin")


def starts(data, **options):
    reading = read(data, **options)
    assert reading.problems == []
    return sorted(str(event.start) for event in reading.events)


days = st.sampled_from(["MO", "TU", "WE", "TH", "FR", "SA", "SU"])
rules = st.builds(
    lambda frequency, interval, by, more: f"FREQ={frequency};INTERVAL={interval}{by}{more}",
    st.sampled_from(["HOURLY", "DAILY", "WEEKLY"]),
    st.integers(1, 5),
    st.one_of(
        st.just(""), st.lists(days, min_size=1, max_size=3, unique=True).map(lambda by: f";BYDAY={','.join(by)}")
    ),
    st.sampled_from(["", ";WKST=SU", ";BYMONTH=1,3,10", ";UNTIL=20270601T000000Z", ";BYHOUR=2,9"]),
)


@settings(max_examples=40, deadline=None)
@given(rules, st.integers(0, 1500), st.booleans())
def test_moving_the_start_of_an_old_series_keeps_its_occurrences(rule, ago, all_day):
    begin = NOW - timedelta(days=ago)
    start = f"DTSTART;VALUE=DATE:{begin:%Y%m%d}" if all_day else f"DTSTART;TZID=Europe/Berlin:{begin:%Y%m%d}T023000"
    rule = rule.replace(";UNTIL=20270601T000000Z", ";UNTIL=20270601") if all_day else rule
    rule = rule.replace(";BYHOUR=2,9", "") if all_day else rule
    data = ics(f"UID:a\n{start}\nRRULE:{rule}\nSUMMARY:S")
    near = starts(data, days=120)
    with patch.object(expansion, "_bring_near", lambda _component, _before: None):
        assert near == starts(data, days=120)


def test_rules_whose_start_is_not_moved_stay_correct():
    counted = ics("UID:a\nDTSTART:20240101T090000Z\nRRULE:FREQ=DAILY;COUNT=1100")
    assert starts(counted)[-1] == "2027-01-04 09:00:00+00:00"
    last = ics("UID:a\nDTSTART:20240131T090000Z\nRRULE:FREQ=MONTHLY;BYDAY=FR;BYSETPOS=-1")
    assert starts(last, days=60) == ["2027-01-29 09:00:00+00:00", "2027-02-26 09:00:00+00:00"]


def test_local_time_stays_the_same_across_clock_changes():
    data = ics("UID:a\nDTSTART;TZID=Europe/Berlin:20270322T090000\nRRULE:FREQ=WEEKLY;COUNT=2")
    assert starts(data) == ["2027-03-22 09:00:00+01:00", "2027-03-29 09:00:00+02:00"]


def test_occurrences_moved_into_and_out_of_the_range():
    master = "UID:a\nDTSTART;TZID=Europe/Berlin:20200106T100000\nRRULE:FREQ=WEEKLY\nSUMMARY:S"
    moved_in = "UID:a\nRECURRENCE-ID;TZID=Europe/Berlin:20260105T100000\nDTSTART;TZID=Europe/Berlin:20270106T110000"
    moved_out = "UID:a\nRECURRENCE-ID:20270111T090000Z\nDTSTART;TZID=Europe/Berlin:20290106T110000"
    assert starts(ics(master, moved_in, moved_out), days=20) == [
        "2027-01-04 10:00:00+01:00",
        "2027-01-06 11:00:00+01:00",
        "2027-01-18 10:00:00+01:00",
    ]


def test_this_and_future_occurrences_can_be_moved():
    master = "UID:a\nDTSTART:20270104T100000Z\nRRULE:FREQ=WEEKLY;COUNT=4"
    later = "UID:a\nRECURRENCE-ID;RANGE=THISANDFUTURE:20270111T100000Z\nDTSTART:20270111T120000Z"
    assert [start[8:13] for start in starts(ics(master, later))] == ["04 10", "11 12", "18 12", "25 12"]


def test_recurrence_is_the_original_local_time_in_any_zone():
    master = "UID:a\nDTSTART;TZID=Europe/Berlin:20270104T100000\nRRULE:FREQ=WEEKLY;COUNT=3"
    moved = "UID:a\nRECURRENCE-ID:20270111T090000Z\nDTSTART:20270112T120000Z"
    names = {event.recurrence for event in read(ics(master, moved)).events}
    assert names == {"20270104T100000", "20270111T100000", "20270118T100000"}


def test_moved_occurrence_without_its_series_is_read():
    (event,) = read(ics("UID:a\nRECURRENCE-ID:20270111T090000Z\nDTSTART:20270112T120000Z")).events
    assert (event.recurrence, event.start) == ("20270111T090000", datetime(2027, 1, 12, 12, tzinfo=UTC))


def test_cancelled_series_has_no_occurrences():
    master = "UID:a\nDTSTART:20270104T100000Z\nRRULE:FREQ=WEEKLY;COUNT=4\nSTATUS:CANCELLED"
    moved = "UID:a\nRECURRENCE-ID:20270111T100000Z\nDTSTART:20270112T120000Z"
    assert read(ics(master, moved)).events == []


def test_all_day_series_has_dates():
    data = ics("UID:a\nDTSTART;VALUE=DATE:20260101\nRRULE:FREQ=YEARLY\nEXDATE;VALUE=DATE:20280101")
    assert [event.start for event in read(data, days=1500).events] == [
        date(year, 1, 1) for year in (2027, 2029, 2030, 2031)
    ]


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        ("FREQ=SECONDLY", "secondly, which is not supported"),
        ("FREQ=MINUTELY;COUNT=3", "minutely, which is not supported"),
        ("FREQ=DAILY;INTERVAL=0", "an invalid interval of 0"),
        ("FREQ=DAILY;INTERVAL=-1", "an invalid interval of -1"),
        ("FREQ=HOURLY", "recurs over 20,000 times until 2031"),
        ("COUNT=3", "cannot be"),
        ("FREQ=DAILY;BYDAY=XX", "cannot be read"),
    ],
)
def test_unsupported_rule_is_a_problem(rule, what):
    reading = read(ics(f"UID:a\nSUMMARY:S\nDTSTART:20270101T090000Z\nRRULE:{rule}"), days=1500)
    assert reading.events == []
    (problem,) = reading.problems
    assert what in problem.what
    assert "\n" not in str(problem)


EVERY = {name: ",".join(map(str, range(end))) for name, end in (("BYHOUR", 24), ("BYMINUTE", 60), ("BYSECOND", 60))}
FULL = ";".join(f"{name}={values}" for name, values in EVERY.items())


@pytest.mark.parametrize(
    ("start", "rules", "what"),
    [
        ("20270101T090000Z", [f"FREQ=DAILY;{FULL}"], "recurs 86,400 times a day"),
        ("20270101T090000Z", [f"FREQ=YEARLY;COUNT=1;{FULL}"] * 30, "30 RRULEs"),
        ("20270101T090000Z", [f"FREQ=HOURLY;BYMINUTE={EVERY['BYMINUTE']}"], "over 20,000 times"),
        ("20270101T090000Z", ["FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30"], "matches no date"),
        ("20270101T090000Z", ["FREQ=HOURLY;BYYEARDAY=366;BYMONTH=1"], "matches no date"),
        ("20270101T090000Z", ["FREQ=DAILY;BYMONTH=4,6,9,11;BYMONTHDAY=31"], "matches no date"),
        ("20270101T090000Z", ["FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30"], "matches no date"),
        ("20270101T090000Z", ["FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=-30"], "matches no date"),
        ("20270101T090000Z", [f"FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30;BYHOUR={n}" for n in range(10)], "matches no date"),
        ("17000101T090000Z", ["FREQ=MONTHLY;BYMONTHDAY=31;BYSETPOS=2"], "matches no date"),
        ("00010101T090000Z", ["FREQ=HOURLY;COUNT=999999999"], "takes too long"),
        ("00010101T090000Z", ["FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=3"], "takes too long"),
        ("00010101T090000Z", [f"FREQ=YEARLY;BYHOUR={EVERY['BYHOUR']};BYMINUTE={EVERY['BYMINUTE']}"], "takes too long"),
        ("20270101T090000Z", ["FREQ=MONTHLY;BYMONTHDAY=31;BYSETPOS=2"], "matches no date"),
    ],
)
def test_costly_rule_ends_soon_and_is_reported(start, rules, what):
    lines = "\n".join(f"RRULE:{rule}" for rule in rules)
    data = ics(f"UID:a\nSUMMARY:S\nDTSTART:{start}\n{lines}")
    began = process_time()
    reading = read(data)
    assert process_time() - began < 3
    assert {what in problem.what for problem in reading.problems} == {True}
    assert len(reading.events) <= 1


def test_rule_that_matches_no_date_keeps_the_start_of_its_event():
    rule = "UID:a\nSUMMARY:S\nDTSTART:20270101T090000Z\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY="
    reading = read(ics(f"{rule}30"), days=2000)
    assert [event.start.year for event in reading.events] == [2027]
    what = "its RRULE:FREQ=YEARLY;BYMONTHDAY=30;BYMONTH=2 matches no date, using only its DTSTART"
    assert [(str(one), one.hides) for one in reading.problems] == [(f"team.ics, line 3: event 'S': {what}", False)]
    assert read(ics(f"{rule}29")).problems == []
    assert [event.start.year for event in read(ics(f"{rule}29"), days=2000).events] == [2027, 2028, 2032]
