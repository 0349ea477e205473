"""Offsets: how long before its event a reminder is due."""

# ruff: noqa: DTZ001 - times on the wall are what it is about

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import ConfigurationError
from delayq.reminders import Offset
from delayq.reminders.offsets import offsets_of

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.table(
    ("text", "offset", "short"),
    [
        ("15m", Offset(seconds=900), "15m"),
        ("15 minutes before", Offset(seconds=900), "15m"),
        ("0m", Offset(), "0m"),
        ("90m", Offset(seconds=5400), "1h30m"),
        ("1h 30 min before", Offset(seconds=5400), "1h30m"),
        ("1 hour and 30 minutes", Offset(seconds=5400), "1h30m"),
        ("24h", Offset(seconds=86_400), "24h"),
        ("1d", Offset(days=1), "1d"),
        ("2 weeks before", Offset(days=14), "14d"),
        ("1d12h", Offset(days=1, seconds=43_200), "1d12h"),
        ("1 day before at 09:00", Offset(days=1, at=time(9)), "1d@09:00"),
        ("1D AT 9:05", Offset(days=1, at=time(9, 5)), "1d@09:05"),
        ("2d@18:30", Offset(days=2, at=time(18, 30)), "2d@18:30"),
        ("on the day at 08:00", Offset(at=time(8)), "0d@08:00"),
        ("same day at 08:00", Offset(at=time(8)), "0d@08:00"),
    ],
)
def test_offset_is_read_from_text(text, offset, short):
    assert Offset.of(text) == offset
    assert offset.text == short
    assert Offset.of(short) == offset


@pytest.mark.table(
    "wrong",
    [
        *("", "m", "1", "1x", "1 month", "-1d", "1d after", "1d, 2q", "99999999d", "1.5h"),
        *("1h at 09:00", "1d at 25:00", "1d at 9", "at 09:00"),
        *(None, 5, timedelta(-1)),
    ],
)
def test_invalid_offset_is_refused(wrong):
    with pytest.raises(ConfigurationError):
        Offset.of(wrong)


@pytest.mark.parametrize("wrong", [{"days": -1}, {"seconds": 1.5}, {"seconds": 1, "at": time(9)}, {"days": True}])
def test_impossible_offset_is_refused(wrong):
    with pytest.raises(ConfigurationError):
        Offset(**wrong)


@given(days=st.integers(0, 400), seconds=st.integers(0, 10**6))
def test_text_of_an_offset_round_trips(days, seconds):
    assert Offset.of(Offset(days, seconds).text) == Offset(days, seconds)


def test_offsets_are_sorted_without_duplicates():
    several = offsets_of(["1d", "15 minutes", timedelta(days=1), "1d@09:00", "15m"])
    assert [offset.text for offset in several] == ["15m", "1d", "1d@09:00"]
    assert offsets_of("1d") == (Offset(days=1),)


# On Sunday, 2027-03-28, Berlin's clocks go from 02:00 to 03:00; on 2027-10-31 from 03:00 back to 02:00.


@pytest.mark.parametrize(
    ("offset", "start", "due"),
    [
        ("24h", datetime(2027, 3, 28, 9), "2027-03-27T07:00Z"),
        ("1d", datetime(2027, 3, 28, 9), "2027-03-27T08:00Z"),
        ("1d@09:00", datetime(2027, 3, 29, 20), "2027-03-28T07:00Z"),
        ("1d12h", datetime(2027, 3, 29, 9), "2027-03-27T19:00Z"),
        # 02:30 is skipped: the offset from before the gap counts, so it is 03:30
        ("1d", datetime(2027, 3, 29, 2, 30), "2027-03-28T01:30Z"),
        ("0d@02:30", datetime(2027, 3, 28, 12), "2027-03-28T01:30Z"),
        # 02:30 occurs twice: the first one counts
        ("1d", datetime(2027, 11, 1, 2, 30), "2027-10-31T00:30Z"),
        ("30m", datetime(2027, 10, 31, 3), "2027-10-31T01:30Z"),
    ],
)
def test_days_are_calendar_days_and_hours_elapsed_time(offset, start, due):
    found = Offset.of(offset).before(start.replace(tzinfo=BERLIN), BERLIN)
    assert found == datetime.fromisoformat(due)
    assert found.tzinfo is UTC


def test_days_are_counted_in_the_given_zone():
    start = datetime(2027, 1, 10, 23, 30, tzinfo=ZoneInfo("America/New_York"))
    assert Offset.of("1d@09:00").before(start, BERLIN) == datetime(2027, 1, 10, 9, tzinfo=BERLIN)
    assert Offset.of("1d@09:00").before(start, start.tzinfo) == datetime(2027, 1, 9, 9, tzinfo=start.tzinfo)
