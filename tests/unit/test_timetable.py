"""Timetables: what may be one, where intervals are anchored, and what is fired of what was missed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq import ConfigurationError
from delayq.clock import LATEST
from delayq.schedules import timetable
from delayq.schedules.timetable import LONGEST_TEXT, MOST_FIRED, Cron, Interval, Taken, Timetable, check_zone

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NOW = 1_800_000_000_000 // DAY * DAY
"""A midnight in UTC."""


# What may be one


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 31 4,6 *", "bad day-of-month"),
        ("0 0 29 2 MON-", "bad day-of-week"),
        ("61 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("60 * * * * *", "bad second"),
        ("*/0 * * * *", "bad minute"),
        ("5-1 * * * *", "bad minute"),
        ("* * * *", "wrong number of fields"),
        ("* * * * * * *", "wrong number of fields"),
        ("", "wrong number of fields"),
        ("@reboot", "wrong number of fields"),
        ("@never", "wrong number of fields"),
        ("0 9 * * ÄFTER", "five fields"),
        ("0 9 *\n* *", "five fields"),
        ("0 " * LONGEST_TEXT, "five fields"),
        (5, "five fields"),
        (None, "five fields"),
    ],
)
def test_an_expression_that_cannot_be_is_refused_in_a_line(text, told):
    with pytest.raises(ConfigurationError, match="cron") as caught:
        Cron(text)
    assert told in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("tz", "told"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("europe/berlinn", "did you mean 'Europe/Berlin'?"),
        ("Mars/Olympus Mons", "unknown time zone"),
        ("../../etc/passwd", "unknown time zone"),
        ("/etc/localtime", "unknown time zone"),
        ("America", "unknown time zone"),
        ("", "unknown time zone"),
        ("a\x00b", "unknown time zone"),
        (None, "unknown time zone"),
        (5, "unknown time zone"),
        (["UTC"], "unknown time zone"),
        ("x" * 10_000, "unknown time zone"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_an_unknown_zone_is_refused_in_a_line(tz, told):
    with pytest.raises(ConfigurationError) as caught:
        check_zone(tz)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_missing_cronsim_is_told_with_what_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cronsim", None)
    monkeypatch.setattr(timetable, "_simulator", timetable._simulator.__wrapped__)
    with pytest.raises(ConfigurationError, match=r"pip install 'delayq\[cron\]'"):
        Cron("0 9 * * *")


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@daily", "0 0 * * *"),
        (" @Midnight ", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("0 9 * * mon-fri", "0 9 * * 1-5"),
        ("  0   9 * *  * ", "0 9 * * *"),
        ("0 9 * * 7", "0 9 * * 0"),
    ],
)
def test_names_stand_for_expressions(name, same):
    found, expected = (Timetable(Cron(text)) for text in (name, same))
    assert found.upcoming(found.after(NOW), 5) == expected.upcoming(expected.after(NOW), 5)


def test_seconds_come_first_where_there_are_six_fields():
    timetable = Timetable(Cron("*/20 30 9 * * *", "Europe/Berlin"))
    times = [datetime.fromtimestamp(time / 1000, UTC) for time in timetable.upcoming(timetable.after(NOW), 3)]
    assert [time.strftime("%H:%M:%S") for time in times] == ["08:30:00", "08:30:20", "08:30:40"]


@settings(max_examples=60, deadline=None)
@given(st.text("0123456789*/,-#LW SUNMONJ@", max_size=24))
def test_any_text_is_an_expression_or_refused(text):
    try:
        rule = Cron(text, "America/New_York")
    except ConfigurationError:
        return
    found = rule.after(NOW)
    assert found is not None
    assert found > NOW
    assert rule.upto(found) == found
    assert rule.upto(found - 1) != found


# Intervals


def test_intervals_are_aligned_to_the_epoch_or_to_their_start():
    assert Interval(15 * MINUTE).after(NOW) == NOW + 15 * MINUTE
    assert Interval(15 * MINUTE).after(NOW - 1) == NOW
    assert Interval(15 * MINUTE).upto(NOW) == NOW
    assert Interval(15 * MINUTE).upto(NOW - 1) == NOW - 15 * MINUTE
    assert Interval(HOUR, NOW + 7).after(NOW) == NOW + 7
    assert Interval(HOUR, NOW + 7).upto(NOW) == NOW + 7 - HOUR


@given(st.integers(1, 10**12), st.integers(0, 10**13), st.integers(0, 10**13))
def test_an_interval_is_the_same_both_ways(every, anchor, time):
    rule = Interval(every, anchor)
    after, upto = rule.after(time), rule.upto(time)
    assert upto is not None
    assert after is not None
    assert upto <= time < after == upto + every
    assert (after - anchor) % every == 0


# Bounds


def test_occurrences_lie_between_start_and_end_both_included():
    timetable = Timetable(Interval(HOUR), start=NOW + HOUR, end=NOW + 3 * HOUR)
    assert timetable.upcoming(timetable.after(0), 9) == [NOW + n * HOUR for n in (1, 2, 3)]
    assert timetable.after(NOW + 3 * HOUR) is None
    assert timetable.upcoming(None, 9) == []


def test_after_so_many_there_is_none():
    timetable = Timetable(Interval(HOUR), count=3)
    assert timetable.upcoming(timetable.after(NOW), 9) == [NOW + n * HOUR for n in (1, 2, 3)]
    assert timetable.upcoming(timetable.after(NOW, 2), 9, 2) == [NOW + HOUR]
    assert timetable.after(NOW, 3) is None


def test_nothing_occurs_after_the_last_time_there_can_be():
    assert Timetable(Interval(HOUR)).after(LATEST) is None
    assert Timetable(Cron("0 0 29 2 *")).after(LATEST - DAY) is None


# What is fired


HOURLY = Timetable(Interval(HOUR), makes_up=1, late_after=MINUTE)


@pytest.mark.parametrize("late", [0, 1, 59_999, 60_000])
def test_an_occurrence_that_is_a_little_late_is_fired_as_usual(late):
    for makes_up in (0, 1, 5):
        timetable = Timetable(Interval(HOUR), makes_up=makes_up)
        assert timetable.take(NOW, NOW + late) == Taken([NOW], NOW + HOUR, missed=False)


@pytest.mark.parametrize(
    ("makes_up", "fired"), [(0, []), (1, [5]), (2, [4, 5]), (3, [3, 4, 5]), (6, range(6)), (1000, range(6))]
)
def test_of_those_missed_the_latest_are_made_up_for(makes_up, fired):
    timetable = Timetable(Interval(HOUR), makes_up=makes_up)
    taken = timetable.take(NOW, NOW + 5 * HOUR + 2 * MINUTE)
    assert taken == Taken([NOW + n * HOUR for n in fired], NOW + 6 * HOUR, missed=True)


def test_what_is_on_time_is_fired_besides_what_was_missed():
    taken = HOURLY.take(NOW, NOW + 3 * HOUR + SECOND)
    assert taken == Taken([NOW + 2 * HOUR, NOW + 3 * HOUR], NOW + 4 * HOUR, missed=True)


def test_what_comes_in_a_moment_is_taken_already():
    assert HOURLY.take(NOW, NOW - 50, ahead=50) == Taken([NOW], NOW + HOUR, missed=False)
    assert HOURLY.take(NOW, NOW - 51, ahead=50) == Taken([], NOW, missed=False)


def test_several_within_what_counts_as_on_time_are_all_fired():
    timetable = Timetable(Interval(SECOND), makes_up=0)
    taken = timetable.take(NOW, NOW + 40 * SECOND)
    assert taken == Taken([NOW + n * SECOND for n in range(41)], NOW + 41 * SECOND, missed=False)


def test_at_most_a_thousand_are_fired_at_a_time_and_the_rest_the_next():
    timetable = Timetable(Interval(SECOND), late_after=DAY)
    first = timetable.take(NOW, NOW + 1500 * SECOND)
    assert first == Taken([NOW + n * SECOND for n in range(MOST_FIRED)], NOW + MOST_FIRED * SECOND, missed=False)
    rest = timetable.take(first.next or 0, NOW + 1500 * SECOND)
    assert (rest.times[0], len(rest.times)) == (first.next, 501)


@pytest.mark.parametrize("rule", [Interval(SECOND), Cron("* * * * * *", "Europe/Berlin")], ids=["every", "cron"])
def test_a_year_of_missed_seconds_is_no_work(rule):
    timetable = Timetable(rule, makes_up=3)
    now = NOW + 365 * DAY
    taken = timetable.take(NOW, now)
    assert taken.times[:3] == [now - (61 + n) * SECOND for n in (2, 1, 0)]
    assert taken.times[3:] == [now - n * SECOND for n in range(60, -1, -1)]
    assert taken.next == now + SECOND


def test_a_count_is_not_exceeded_and_the_first_of_those_to_be_fired_are():
    timetable = Timetable(Interval(HOUR), count=4, makes_up=1000)
    assert timetable.take(NOW, NOW, fired=2) == Taken([NOW], NOW + HOUR, missed=False)
    assert timetable.take(NOW, NOW, fired=3) == Taken([NOW], None, missed=False)
    taken = timetable.take(NOW, NOW + 9 * HOUR, fired=2)
    assert taken == Taken([NOW, NOW + HOUR], None, missed=True)


def test_what_was_missed_before_the_end_is_made_up_for_and_that_was_it():
    timetable = Timetable(Interval(HOUR), end=NOW + 2 * HOUR, makes_up=1)
    assert timetable.take(NOW, NOW + 9 * HOUR) == Taken([NOW + 2 * HOUR], None, missed=True)
    skipping = Timetable(Interval(HOUR), end=NOW + 2 * HOUR, makes_up=0)
    assert skipping.take(NOW, NOW + 9 * HOUR) == Taken([], None, missed=True)


rules = st.builds(Interval, st.integers(1000, 10**7), st.integers(0, 10**7))


@given(rules, st.integers(0, 20), st.integers(0, 10**6), st.integers(0, 10**8), st.integers(1, 9))
def test_however_consumers_come_by_nothing_is_fired_twice_or_before_its_time(rule, makes_up, late, gap, steps):
    timetable = Timetable(rule, makes_up=makes_up, late_after=late)
    at, now, seen = timetable.after(NOW), NOW, []
    for _ in range(steps):
        now += gap
        while at is not None and at <= now:
            taken = timetable.take(at, now)
            assert taken.next is None or taken.next > at
            seen += taken.times
            at = taken.next
    assert seen == sorted(set(seen))
    assert all(time <= now for time in seen)
    on_time = timetable.upcoming(timetable.after(max(NOW, now - late - 1)), 2000)
    assert {time for time in on_time if time <= now} <= set(seen)
