"""Recurring events, compared with their expansion from the first occurrence."""

from datetime import UTC, date, datetime, time, timedelta
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reminders.conftest import NOW, ics, read

BERLIN = ZoneInfo("Europe/Berlin")


def starts(data, **options):
    reading = read(data, **options)
    assert reading.problems == []
    return sorted(str(event.start) for event in reading.events)


LAST = NOW.replace(tzinfo=None) + timedelta(days=130)
days = st.sampled_from(["MO", "TU", "WE", "TH", "FR", "SA", "SU"])
rules = st.builds(
    lambda frequency, interval, by, more: f"FREQ={frequency};INTERVAL={interval}{by}{more}",
    st.sampled_from(["HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"]),
    st.integers(1, 5),
    st.one_of(
        st.just(""), st.lists(days, min_size=1, max_size=3, unique=True).map(lambda by: f";BYDAY={','.join(by)}")
    ),
    st.sampled_from(["", ";WKST=SU", ";BYMONTH=1,3,10", ";UNTIL=20270601T000000Z", ";BYHOUR=2,9", ";COUNT=700"]),
)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(rules, st.integers(0, 1500), st.booleans())
def test_old_series_recurs_as_if_it_were_followed_from_its_start(rule, ago, all_day):
    begin = (NOW - timedelta(days=ago)).replace(tzinfo=None, hour=0 if all_day else 2, minute=0 if all_day else 30)
    rule = rule.replace(";BYHOUR=2,9", "").replace("HOURLY", "DAILY") if all_day else rule
    start = f"DTSTART;VALUE=DATE:{begin:%Y%m%d}" if all_day else f"DTSTART:{begin:%Y%m%dT%H%M%S}Z"
    expected = {begin, *rrulestr(rule.replace("000Z", "000"), dtstart=begin).between(begin, LAST)}
    last = NOW.replace(tzinfo=None) + timedelta(days=100)
    found = {event.start for event in read(ics(f"UID:a\n{start}\nRRULE:{rule}\nSUMMARY:S"), days=120).events}
    found = {datetime.combine(one, time()) if all_day else one.replace(tzinfo=None) for one in found}
    first = NOW.replace(tzinfo=None) + timedelta(days=1)
    assert {one for one in found if first < one < last} == {one for one in expected if first < one < last}


@pytest.mark.parametrize(
    ("start", "rule", "expected"),
    [
        ("20271020T090000Z", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=1,3;COUNT=3", "1020 1025 1027"),
        ("20271110T090000Z", "FREQ=WEEKLY;BYDAY=MO,TU,WE;BYSETPOS=-1;COUNT=2", "1110 1117"),
        ("20271112T090000Z", "FREQ=WEEKLY;BYDAY=WE,FR,SU;BYSETPOS=2;COUNT=3", "1112 1119 1126"),
        ("20271112T090000Z", "FREQ=WEEKLY;INTERVAL=2;BYDAY=WE,FR,SU;BYSETPOS=2,3;COUNT=3", "1112 1114 1126"),
        ("20271112T090000Z", "FREQ=WEEKLY;WKST=SU;BYDAY=SU,FR;BYSETPOS=1;COUNT=3", "1112 1114 1121 1128"),
    ],
)
def test_positions_count_from_the_start_of_a_week(start, rule, expected):
    events = read(ics(f"UID:a\nDTSTART:{start}\nRRULE:{rule}\nSUMMARY:S"), days=400).events
    assert " ".join(f"{event.start:%m%d}" for event in events) == expected


SERIES = "UID:a\nSUMMARY:S\nDTSTART;TZID=Europe/Berlin:20270614T090000\nRRULE:FREQ=DAILY;COUNT=4"
FLOATING = "UID:a\nSUMMARY:S\nDTSTART:20270614T090000\nRRULE:FREQ=DAILY;COUNT=4"
WHOLE_DAYS = "UID:a\nSUMMARY:S\nDTSTART;VALUE=DATE:20270614\nRRULE:FREQ=DAILY;COUNT=4"


@pytest.mark.parametrize(
    ("line", "expected", "told"),
    [
        ("EXDATE;TZID=PDT:20270615T090000", "14 15 16 17", "one EXDATE is not used: unknown time zone 'PDT'"),
        ("RDATE;TZID=PDT:20270620T090000", "14 15 16 17", "one RDATE is not used: unknown time zone 'PDT'"),
        ("EXDATE:garbage", "14 15 16 17", "one EXDATE is not used: Expected time, got: garbage"),
        ("EXDATE:", "14 15 16 17", "one EXDATE is not used"),
        ("RDATE;VALUE=TIME:090000", "14 15 16 17", "one RDATE is not used"),
        ("EXRULE:FREQ=NEVER", "14 15 16 17", "one EXRULE is not used"),
        ("SEQUENCE:later", "14 15 16 17", "its SEQUENCE is no number: it counts as 0"),
        ("EXRULE:FREQ=DAILY;INTERVAL=2", "15 17", ""),
        (
            "EXRULE:FREQ=DAILY;INTERVAL=2;UNTL=20270615",
            "15 17",
            "UNTL=20270615 of its RRULE is not known, and left out",
        ),
        (
            "RRULE:FREQ=DAILY;COUNT=5;SKIP=FORWARD",
            "14 15 16 17 18",
            "SKIP=FORWARD of its RRULE is not known, and left out",
        ),
        ("EXDATE:20270615T070000Z", "14 16 17", ""),
        ("EXDATE;TZID=America/New_York:20270615T030000", "14 16 17", ""),
        ("EXDATE:20270615T090000", "14 16 17", ""),
        ("EXDATE;VALUE=DATE:20270615", "14 16 17", ""),
        ("RDATE;VALUE=PERIOD:20270620T070000Z/PT1H", "14 15 16 17 20", ""),
        ("RDATE;VALUE=DATE:20270620", "14 15 16 17 20", ""),
        ("EXDATE:20270615T080000Z", "14 15 16 17", ""),
    ],
)
def test_line_costs_only_itself_and_names_an_instant_in_any_form(line, expected, told):
    reading = read(ics(f"{SERIES}\n{line}"), days=200)
    assert " ".join(sorted(f"{event.start:%d}" for event in reading.events)) == expected
    assert {f"{event.start:%H%M}" for event in reading.events} == {"0900"}
    assert [one.what[: len(told)] for one in reading.problems] == [told] * bool(told)


@pytest.mark.parametrize(
    ("series", "line", "expected"),
    [
        (FLOATING, "EXDATE:20270615T090000Z", "14 16 17"),  # of a calendar without a time zone, so in UTC
        (FLOATING, "EXDATE;VALUE=DATE:20270615", "14 16 17"),
        (WHOLE_DAYS, "EXDATE:20270615T000000Z", "14 16 17"),
        (WHOLE_DAYS, "EXDATE;TZID=Europe/Berlin:20270615T000000", "14 16 17"),
        (WHOLE_DAYS, "RDATE:20270620T120000", "14 15 16 17 20"),
        (SERIES.replace("COUNT=4", "UNTIL=20270616"), "SEQUENCE:1", "14 15 16"),
        (SERIES.replace("COUNT=4", "UNTIL=20270616T090000"), "SEQUENCE:1", "14 15 16"),
        (SERIES.replace("COUNT=4", "UNTIL=20270616T065959Z"), "SEQUENCE:1", "14 15"),
        (FLOATING.replace("COUNT=4", "UNTIL=20270616T090000Z"), "SEQUENCE:1", "14 15 16"),
        (WHOLE_DAYS.replace("COUNT=4", "UNTIL=20270616T220000Z"), "SEQUENCE:1", "14 15 16"),
        (SERIES.replace("DAILY", "WEEKLY;BYDAY=MO, WE"), "SEQUENCE:1", "14 16 21 23"),
        (SERIES.replace("COUNT=4", "COUNT=2;RSCALE=GREGORIAN;SKIP=OMIT"), "SEQUENCE:1", "14 15"),
        (SERIES.replace("COUNT=4", "UNTIL=20270615;COUNT=-1"), "SEQUENCE:1", "14 15"),
    ],
)
def test_dates_and_ends_in_other_forms_than_the_start_are_understood(series, line, expected):
    reading = read(ics(f"{series}\n{line}"), days=200)
    assert reading.problems == []
    assert " ".join(sorted(f"{event.start:%d}" for event in reading.events)) == expected


@pytest.mark.parametrize(
    "name",
    [
        "RECURRENCE-ID;TZID=Europe/Berlin:20270615T090000",
        "RECURRENCE-ID:20270615T070000Z",
        "RECURRENCE-ID;TZID=America/New_York:20270615T030000",
        "RECURRENCE-ID:20270615T090000",
        "RECURRENCE-ID;VALUE=DATE:20270615",
    ],
)
def test_same_instant_is_the_same_occurrence_in_any_form(name):
    moved = "UID:a\nRECURRENCE-ID;TZID=Europe/Berlin:20270615T090000\nDTSTART:20270615T100000Z\nSEQUENCE:1"
    off = f"UID:a\n{name}\nDTSTART:20270615T100000Z\nSEQUENCE:2\nSTATUS:CANCELLED"
    again = f"UID:a\n{name}\nDTSTART:20270615T110000Z\nSEQUENCE:2"
    for later, expected in ((off, "14 16 17"), (again, "14 15 16 17")):
        events = read(ics(SERIES, moved, later), days=200).events
        assert " ".join(sorted(f"{event.start:%d}" for event in events)) == expected
        assert {event.recurrence for event in events} == {f"202706{day}T090000" for day in expected.split()}


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
        ("RSCALE=HEBREW;FREQ=YEARLY;BYMONTHDAY=8", "'RSCALE=HEBREW' is not supported"),
        ("FREQ=YEARLY;BYMONTH=13", "'BYMONTH=13' is not valid"),
    ],
)
def test_unsupported_rule_is_a_problem(rule, what):
    reading = read(ics(f"UID:a\nSUMMARY:S\nDTSTART:20270101T090000Z\nRRULE:{rule}"), days=1500)
    assert reading.events == []
    (problem,) = reading.problems
    assert what in problem.what
    assert "\n" not in str(problem)


EVERY = {name: ",".join(map(str, range(end))) for name, end in (("BYHOUR", 24), ("BYMINUTE", 60), ("BYSECOND", 60))}
MINUTES = f"BYHOUR={EVERY['BYHOUR']};BYMINUTE={EVERY['BYMINUTE']}"
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
        (
            "00010101T090000Z",
            [f"FREQ=MONTHLY;{MINUTES};COUNT=99999999"],
            "takes too long",
        ),
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
