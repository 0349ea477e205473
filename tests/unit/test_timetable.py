"""Timetables: valid rules, anchors of intervals, and which missed occurrences are fired."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq import ConfigurationError
from delayq.schedules import cron
from delayq.schedules.cron import MAX_TEXT, Cron
from delayq.schedules.recurring.local_times import check_zone
from delayq.schedules.recurring.timetable import MAX_FIRED, DueOccurrences, Timetable
from delayq.schedules.rules import Interval
from delayq.values.times import LATEST

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NOW = 1_800_000_000_000 // DAY * DAY
"""A midnight in UTC."""


# Valid rules


@pytest.mark.table(
    ("text", "error"),
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
        ("0 " * MAX_TEXT, "five fields"),
        (5, "five fields"),
        (None, "five fields"),
    ],
)
def test_invalid_expression_raises_one_line(text, error):
    with pytest.raises(ConfigurationError, match="cron") as caught:
        Cron(text)
    assert error in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.table(
    ("tz", "error"),
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
def test_unknown_zone_raises_one_line(tz, error):
    with pytest.raises(ConfigurationError) as caught:
        check_zone(tz)
    assert error in str(caught.value)
    assert len(str(caught.value)) < 200


def test_missing_cronsim_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cron, "cronsim", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'delayq\[cron\]'"):
        Cron("0 9 * * *")


@pytest.mark.table(
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
def test_named_expressions_equal_their_full_form(name, same):
    found, expected = (Timetable(Cron(text)) for text in (name, same))
    assert found.upcoming(found.after(NOW), 5) == expected.upcoming(expected.after(NOW), 5)


def test_first_of_six_fields_is_seconds():
    timetable = Timetable(Cron("*/20 30 9 * * *", "Europe/Berlin"))
    times = [datetime.fromtimestamp(time / 1000, UTC) for time in timetable.upcoming(timetable.after(NOW), 3)]
    assert [time.strftime("%H:%M:%S") for time in times] == ["08:30:00", "08:30:20", "08:30:40"]


@settings(max_examples=60, deadline=None)
@given(st.text("0123456789*/,-#LW SUNMONJ@", max_size=24))
def test_any_text_is_a_valid_expression_or_refused(text):
    try:
        rule = Cron(text, "America/New_York")
    except ConfigurationError:
        return
    found = rule.after(NOW)
    assert found is not None
    assert found > NOW
    assert rule.up_to(found) == found
    assert rule.up_to(found - 1) != found


# Intervals


def test_intervals_are_aligned_to_the_epoch_or_to_their_start():
    assert Interval(15 * MINUTE).after(NOW) == NOW + 15 * MINUTE
    assert Interval(15 * MINUTE).after(NOW - 1) == NOW
    assert Interval(15 * MINUTE).up_to(NOW) == NOW
    assert Interval(15 * MINUTE).up_to(NOW - 1) == NOW - 15 * MINUTE
    assert Interval(HOUR, NOW + 7).after(NOW) == NOW + 7
    assert Interval(HOUR, NOW + 7).up_to(NOW) == NOW + 7 - HOUR


@given(st.integers(1, 10**12), st.integers(0, 10**13), st.integers(0, 10**13))
def test_interval_is_the_same_forwards_and_backwards(every, anchor, time):
    rule = Interval(every, anchor)
    after, up_to = rule.after(time), rule.up_to(time)
    assert up_to is not None
    assert after is not None
    assert up_to <= time < after == up_to + every
    assert (after - anchor) % every == 0


# Bounds


def test_start_and_end_are_inclusive():
    timetable = Timetable(Interval(HOUR), start=NOW + HOUR, end=NOW + 3 * HOUR)
    assert timetable.upcoming(timetable.after(0), 9) == [NOW + n * HOUR for n in (1, 2, 3)]
    assert timetable.after(NOW + 3 * HOUR) is None
    assert timetable.upcoming(None, 9) == []


def test_timetable_ends_after_its_count():
    timetable = Timetable(Interval(HOUR), count=3)
    assert timetable.upcoming(timetable.after(NOW), 9) == [NOW + n * HOUR for n in (1, 2, 3)]
    assert timetable.upcoming(timetable.after(NOW, 2), 9, 2) == [NOW + HOUR]
    assert timetable.after(NOW, 3) is None


def test_nothing_occurs_after_the_latest_valid_time():
    assert Timetable(Interval(HOUR)).after(LATEST) is None
    assert Timetable(Cron("0 0 29 2 *")).after(LATEST - DAY) is None


# Due occurrences


HOURLY = Timetable(Interval(HOUR), makes_up=1, late_after=MINUTE)


@pytest.mark.parametrize("late", [0, 1, 59_999, 60_000])
def test_slightly_late_occurrence_is_fired_normally(late):
    for makes_up in (0, 1, 5):
        timetable = Timetable(Interval(HOUR), makes_up=makes_up)
        assert timetable.due(NOW, NOW + late) == DueOccurrences([NOW], NOW + HOUR, missed=False)


@pytest.mark.parametrize(
    ("makes_up", "fired"), [(0, []), (1, [5]), (2, [4, 5]), (3, [3, 4, 5]), (6, range(6)), (1000, range(6))]
)
def test_latest_missed_occurrences_are_fired(makes_up, fired):
    timetable = Timetable(Interval(HOUR), makes_up=makes_up)
    due = timetable.due(NOW, NOW + 5 * HOUR + 2 * MINUTE)
    assert due == DueOccurrences([NOW + n * HOUR for n in fired], NOW + 6 * HOUR, missed=True)


def test_occurrence_on_time_is_fired_besides_missed_ones():
    due = HOURLY.due(NOW, NOW + 3 * HOUR + SECOND)
    assert due == DueOccurrences([NOW + 2 * HOUR, NOW + 3 * HOUR], NOW + 4 * HOUR, missed=True)


def test_occurrence_is_fired_slightly_ahead():
    assert HOURLY.due(NOW, NOW - 50, ahead=50) == DueOccurrences([NOW], NOW + HOUR, missed=False)
    assert HOURLY.due(NOW, NOW - 51, ahead=50) == DueOccurrences([], NOW, missed=False)


def test_all_occurrences_that_count_as_on_time_are_fired():
    timetable = Timetable(Interval(SECOND), makes_up=0, late_after=MINUTE)
    due = timetable.due(NOW, NOW + 40 * SECOND)
    assert due == DueOccurrences([NOW + n * SECOND for n in range(41)], NOW + 41 * SECOND, missed=False)


@pytest.mark.parametrize(
    ("rule", "tolerance"),
    [
        (Interval(SECOND), SECOND),
        (Interval(MINUTE), MINUTE),
        (Interval(HOUR), MINUTE),
        (Cron("*/10 * * * * *"), 10 * SECOND),
        (Cron("* * * * *"), MINUTE),
        (Cron("0 9 * * *"), MINUTE),
    ],
    ids=["every second", "every minute", "hourly", "cron 10 s", "cron minute", "cron day"],
)
def test_occurrence_is_missed_after_a_minute_or_when_the_next_is_due(rule, tolerance):
    timetable, at = Timetable(rule, makes_up=0), rule.after(NOW)
    on_time, missed = timetable.due(at, at + tolerance), timetable.due(at, at + tolerance + 1)
    assert (on_time.times[0], on_time.missed) == (at, False)
    assert (at in missed.times, missed.missed) == (False, True)


def test_at_most_a_thousand_occurrences_are_fired_at_once():
    timetable = Timetable(Interval(SECOND), late_after=DAY)
    first = timetable.due(NOW, NOW + 1500 * SECOND)
    assert first == DueOccurrences([NOW + n * SECOND for n in range(MAX_FIRED)], NOW + MAX_FIRED * SECOND, missed=False)
    rest = timetable.due(first.next or 0, NOW + 1500 * SECOND)
    assert (rest.times[0], len(rest.times)) == (first.next, 501)


@pytest.mark.parametrize("rule", [Interval(SECOND), Cron("* * * * * *", "Europe/Berlin")], ids=["every", "cron"])
def test_year_of_missed_seconds_is_skipped_quickly(rule):
    timetable = Timetable(rule, makes_up=3, late_after=MINUTE)
    now = NOW + 365 * DAY
    due = timetable.due(NOW, now)
    assert due.times[:3] == [now - (61 + n) * SECOND for n in (2, 1, 0)]
    assert due.times[3:] == [now - n * SECOND for n in range(60, -1, -1)]
    assert due.next == now + SECOND


def test_count_limits_the_fired_occurrences():
    timetable = Timetable(Interval(HOUR), count=4, makes_up=1000)
    assert timetable.due(NOW, NOW, fired=2) == DueOccurrences([NOW], NOW + HOUR, missed=False)
    assert timetable.due(NOW, NOW, fired=3) == DueOccurrences([NOW], None, missed=False)
    due = timetable.due(NOW, NOW + 9 * HOUR, fired=2)
    assert due == DueOccurrences([NOW, NOW + HOUR], None, missed=True)


def test_missed_occurrences_are_fired_after_the_end():
    timetable = Timetable(Interval(HOUR), end=NOW + 2 * HOUR, makes_up=1)
    assert timetable.due(NOW, NOW + 9 * HOUR) == DueOccurrences([NOW + 2 * HOUR], None, missed=True)
    skipping = Timetable(Interval(HOUR), end=NOW + 2 * HOUR, makes_up=0)
    assert skipping.due(NOW, NOW + 9 * HOUR) == DueOccurrences([], None, missed=True)


rules = st.builds(Interval, st.integers(1000, 10**7), st.integers(0, 10**7))


@given(rules, st.integers(0, 20), st.integers(0, 10**6), st.integers(0, 10**8), st.integers(1, 9))
def test_no_occurrence_is_fired_twice_or_early(rule, makes_up, late, gap, steps):
    timetable = Timetable(rule, makes_up=makes_up, late_after=late)
    at, now, seen = timetable.after(NOW), NOW, []
    for _ in range(steps):
        now += gap
        while at is not None and at <= now:
            due = timetable.due(at, now)
            assert due.next is None or due.next > at
            seen += due.times
            at = due.next
    assert seen == sorted(set(seen))
    assert all(time <= now for time in seen)
    on_time = timetable.upcoming(timetable.after(max(NOW, now - late - 1)), 2000)
    assert {time for time in on_time if time <= now} <= set(seen)
