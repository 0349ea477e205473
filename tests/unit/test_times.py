"""Durations and times as users write them."""

import math
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import ConfigurationError
from delayq.values.times import HORIZON, from_millis, timestamp, to_millis

NAIVE = datetime.fromisoformat("2026-01-01")


@pytest.mark.table(
    ("value", "expected"),
    [
        (0, 0),
        (1, 1000),
        (0.25, 250),
        (0.0, 0),
        (-0.0, 0),
        (timedelta(0), 0),
        (timedelta(hours=1), 3_600_000),
        (timedelta(weeks=5200), 5200 * 7 * 86_400_000),
        ("1h30m", 5_400_000),
        ("45s", 45_000),
        ("1.5h", 5_400_000),
        ("7d", 7 * 86_400_000),
        ("2w", 14 * 86_400_000),
        ("250ms", 250),
        ("1d2h3m4s5ms", 93_784_005),
        ("0s", 0),
        ("100us", 1),
        (HORIZON // 1000, HORIZON),
    ],
)
def test_duration_is_converted_to_milliseconds(value, expected):
    result = to_millis(value)
    assert result == expected
    assert type(result) is int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (timedelta(microseconds=1), 1),
        (timedelta(microseconds=1001), 2),
        (0.0001, 1),
        (0.1234, 124),
        ("1us", 1),
        ("1.0001s", 1001),
    ],
)
def test_fraction_of_a_millisecond_is_rounded_up(value, expected):
    assert to_millis(value) == expected


@pytest.mark.parametrize("seconds", [0.1, 0.3, 0.7, 1.1, 2.675, 4.35, 1e6 + 0.1])
def test_float_inaccuracy_is_not_rounded_up(seconds):
    assert to_millis(seconds) == round(seconds * 1000)


@pytest.mark.table(
    "value",
    [
        math.inf,
        -math.inf,
        math.nan,
        -1,
        -0.001,
        timedelta(microseconds=-1),
        True,
        False,
        10**18,
        10**400,
        10**5000,
        1e300,
        timedelta.max,
        timedelta.min,
        HORIZON // 1000 + 1,
        None,
        b"1s",
        1j,
        [],
        {},
        object(),
        Decimal(1),
        Fraction(10**400),
        datetime(2026, 1, 1, tzinfo=UTC),
    ],
    ids=lambda value: type(value).__name__,
)
def test_invalid_duration_is_refused(value):
    with pytest.raises(ConfigurationError):
        to_millis(value)


@pytest.mark.table(
    "text",
    [
        "",
        "0",
        "10",
        "s",
        "-1s",
        "+1s",
        "1 h",
        " 1s",
        "1s ",
        "1s\n",
        "1mm",
        "1y",
        "1ns",
        "1M",
        "1H",
        "1µs",
        "1.s",
        ".5s",
        "1..5s",
        "1.5.2s",
        "1e3s",
        "0x10s",
        "1_000s",
        "inf",
        "nan s",
        "٣s",
        "３s",
        "1ѕ",  # a Cyrillic look-alike
        "1s\x00",
        "P1D",
        "01:30",
        "9" * 400 + "s",
        "9" * 5000 + "s",
        "200000w",
    ],
    ids=lambda text: repr(text[:10]),
)
def test_invalid_duration_text_is_refused(text):
    with pytest.raises(ConfigurationError) as caught:
        to_millis(text, "delay")
    assert "delay" in str(caught.value)
    assert len(str(caught.value)) < 250


def test_error_shows_limits_in_seconds():
    with pytest.raises(ConfigurationError, match="tick must be between 10ms and 1m, not 90"):
        to_millis(90, "tick", min=10, max=60_000)


class Hostile:
    def __repr__(self):
        raise RuntimeError("no")


def test_value_whose_repr_fails_is_refused():
    with pytest.raises(ConfigurationError, match="not a Hostile"):
        to_millis(Hostile())


@given(st.integers(0, 10**9), st.integers(0, 999_999))
def test_timedelta_is_rounded_up_by_less_than_a_millisecond(seconds, microseconds):
    asked = timedelta(seconds=seconds, microseconds=microseconds)
    got = timedelta(milliseconds=to_millis(asked))
    assert timedelta(0) <= got - asked < timedelta(milliseconds=1)


@given(st.floats(0, HORIZON / 1000 - 1))
def test_float_seconds_are_shortened_by_less_than_a_microsecond(seconds):
    got = to_millis(seconds)
    assert -1e-3 <= got - seconds * 1000 < 1 + 1e-3


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_parts_of_a_duration_text_are_added(days, hours, minutes, seconds):
    text = f"{days}d{hours}h{minutes}m{seconds}s"
    assert to_millis(text) == to_millis(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds))


@given(st.text(max_size=12) | st.from_regex(r"[0-9.]{0,9}[a-z]{0,3}", fullmatch=True))
def test_any_text_is_a_valid_duration_or_refused(text):
    with suppress(ConfigurationError):
        assert 0 <= to_millis(text) <= HORIZON


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(2026, 1, 1, tzinfo=UTC), 1_767_225_600_000),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 1_767_225_600_000),
        (datetime(2026, 7, 1, 9, tzinfo=ZoneInfo("Europe/Berlin")), 1_782_889_200_000),
        (datetime(2026, 1, 1, microsecond=1, tzinfo=UTC), 1_767_225_600_001),
        (datetime(2199, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), 7_258_118_399_999),
    ],
)
def test_times_are_milliseconds_since_1970_rounded_up(at, expected):
    assert timestamp(at) == expected


@pytest.mark.parametrize("fold", [0, 1])
def test_fold_selects_the_first_or_second_repeated_hour(fold):
    at = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)
    assert from_millis(timestamp(at)) == datetime(2026, 10, 25, 0 + fold, 30, tzinfo=UTC)


@pytest.mark.table(
    "at",
    [
        NAIVE,
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2200, 1, 1, tzinfo=UTC),
        datetime(2199, 12, 31, 23, 59, 59, 999_001, tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        date(2026, 1, 1),
        1_767_225_600,
        1.5,
        "2026-01-01T00:00:00Z",
        None,
        True,
        timedelta(1),
    ],
    ids=repr,
)
def test_invalid_time_is_refused(at):
    with pytest.raises(ConfigurationError):
        timestamp(at)


def test_naive_time_is_refused_with_the_reason():
    with pytest.raises(ConfigurationError, match=r"at must carry a time zone; 2026-01-01T00:00:00 is naive"):
        timestamp(NAIVE)


@given(
    st.datetimes(datetime.fromisoformat("1970-01-02"), datetime.fromisoformat("2199-12-30"), timezones=st.timezones())
)
def test_time_is_rounded_up_by_less_than_a_millisecond(at):
    later = from_millis(timestamp(at)) - at.astimezone(UTC)
    assert timedelta(0) <= later < timedelta(milliseconds=1)
