"""Quiet hours move a reminder to their end, or to their start if the event would have started."""

# ruff: noqa: DTZ001 - times on the wall are what it is about

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import ConfigurationError
from delayq.reminders import QuietHours

BERLIN = ZoneInfo("Europe/Berlin")


def at(day: int, hour: int, minute: int = 0, month: int = 6) -> datetime:
    return datetime(2027, month, day, hour, minute, tzinfo=BERLIN).astimezone(UTC)


@pytest.mark.table(
    ("quiet", "due", "moved"),
    [
        ("22:00-07:00", at(1, 21, 59), at(1, 21, 59)),
        ("22:00-07:00", at(1, 22), at(2, 7)),
        ("22:00-07:00", at(2, 0), at(2, 7)),
        ("22:00-07:00", at(2, 6, 59), at(2, 7)),
        ("22:00-07:00", at(2, 7), at(2, 7)),
        ("22:00-07:00 earlier", at(2, 6, 59), at(1, 22)),
        ("22:00-07:00 earlier", at(1, 22), at(1, 22)),
        ("12:30-14:00", at(1, 13), at(1, 14)),
        ("12:30 to 14:00 earlier", at(1, 13), at(1, 12, 30)),
        ("00:00-06:00", at(1, 3), at(1, 6)),
        ("00:00-06:00", at(1, 6), at(1, 6)),
    ],
)
def test_reminder_in_quiet_hours_is_moved(quiet, due, moved):
    assert QuietHours.of(quiet).move(due, BERLIN, at(20, 12)) == moved


def test_reminder_is_not_moved_past_its_event():
    quiet = QuietHours.of("22:00-07:00")
    assert quiet.move(at(2, 6), BERLIN, latest=at(2, 7)) == at(2, 7)
    assert quiet.move(at(2, 6), BERLIN, latest=at(2, 6, 59)) == at(1, 22)


def test_quiet_hours_across_clock_changes():
    quiet = QuietHours.of("22:00-02:30")
    assert quiet.move(at(27, 23, month=3), BERLIN, at(30, 12, month=3)) == at(28, 3, month=3)
    assert quiet.move(at(30, 23, month=10), BERLIN, at(31, 12, month=10)) == at(31, 2, 30, month=10)


@given(
    st.times(),
    st.times(),
    st.booleans(),
    st.datetimes(datetime(2027, 1, 1), datetime(2027, 12, 31)),
    st.integers(0, 3 * 86_400),
)
def test_moved_reminder_is_outside_quiet_hours_and_before_the_event(begin, end, earlier, due, left):
    begin, end = begin.replace(second=0, microsecond=0), end.replace(second=0, microsecond=0)
    if begin == end:
        return
    quiet = QuietHours(begin, end, earlier)
    due = due.replace(tzinfo=ZoneInfo("UTC"), microsecond=0)
    latest = due + timedelta(seconds=left)
    moved = quiet.move(due, due.tzinfo, latest)
    assert moved <= latest
    assert abs(moved - due) < timedelta(days=1)
    assert moved == due or moved.time() in (begin, end)
    assert QuietHours.of(quiet.text) == quiet


@pytest.mark.parametrize("wrong", ["", "22-07", "22:00", "25:00-07:00", "07:00-07:00", "22:00-07:00 never", 5])
def test_invalid_quiet_hours_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        QuietHours.of(wrong)
