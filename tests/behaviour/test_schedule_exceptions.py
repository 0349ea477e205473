"""Days on which a schedule does not occur: dates, public holidays and the days of an iCalendar file."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import holidays
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq import ConfigurationError, Schedule
from delayq.schedules.cron import Cron
from delayq.schedules.recurring import exceptions
from delayq.schedules.recurring.exceptions import ExceptRule
from delayq.values.times import timestamp
from tests.behaviour.places import everywhere
from tests.support.schedules import DAY, HOUR, START, ran

SCHOOL = b"""BEGIN:VCALENDAR
BEGIN:VEVENT
UID:1
DTSTART;VALUE=DATE:21901223
DTEND;VALUE=DATE:21901226
END:VEVENT
BEGIN:VEVENT
UID:2
DTSTART;VALUE=DATE:{first}
RRULE:FREQ=YEARLY
END:VEVENT
BEGIN:VEVENT
UID:3
DTSTART:20261125T090000Z
RRULE:FREQ=SECONDLY
END:VEVENT
END:VCALENDAR
"""


def days(times) -> list[str]:
    return [f"{time:%m-%d}" for time in times]


@everywhere
def test_schedule_does_not_occur_on_public_holidays(timed, clock):
    timed.schedules.add("digest", cron="0 9 * * MON-FRI", tz="Europe/Berlin", except_="holidays:DE")
    assert timed.schedules.get("digest").except_ == ("holidays:DE",)
    clock.advance(33 * DAY)  # the 23rd of December, a Wednesday
    ran(timed)
    assert days(timed.schedules.next("digest", 6)) == ["12-23", "12-24", "12-28", "12-29", "12-30", "12-31"]
    assert (
        timed.schedules.set("digest", except_=["holidays:DE-BY", "holidays:XNYS", date(2026, 12, 24), "2026-12-30"])
        == 1
    )
    assert days(timed.schedules.next("digest", 5)) == ["12-23", "12-28", "12-29", "12-31", "01-04"]
    clock.advance(2 * DAY)
    assert ran(timed) == ["digest@2026-12-23T08:00:00Z"]
    clock.advance(3 * DAY + HOUR)
    assert ran(timed) == ["digest@2026-12-28T08:00:00Z"]
    assert timed.schedules.set("digest", except_=()) == 1
    assert days(timed.schedules.next("digest", 4)) == ["12-29", "12-30", "12-31", "01-01"]


def test_excepted_days_are_those_of_the_zone(timed):
    timed.schedules.add_many(
        Schedule(zone[:4], cron="0 23 * * *", tz=zone, except_=date(2026, 11, 21)) for zone in ("Asia/Tokyo", "UTC")
    )
    assert days(timed.schedules.next("Asia", 2)) == ["11-20", "11-22"]
    timed.schedules.add("quick", every="6h", except_=["2026-11-21"])
    assert [f"{time:%d %H}" for time in timed.schedules.next("quick", 4)] == ["20 12", "20 18", "22 00", "22 06"]


def test_whole_days_of_a_file_are_taken_when_it_is_added(timed, tmp_path):
    soon = datetime.now(UTC).date() + timedelta(days=3)
    file = tmp_path / "school.ics"
    file.write_bytes(SCHOOL.replace(b"{first}", f"{soon:%Y%m%d}".encode()))
    timed.schedules.add("digest", cron="0 9 * * *", except_=str(file))
    taken = timed.schedules.get("digest").except_
    assert taken[0] == soon.isoformat()
    assert 10 <= len(taken) <= 11  # each year for ten years
    timed.schedules.add("other", cron="0 9 * * *", except_=[file, "holidays:DE"])
    assert timed.schedules.get("other").except_ == (*taken, "holidays:DE")
    file.unlink()
    timed.schedules.pause("digest")
    assert timed.schedules.resume("digest") == 1


def test_moved_occurrence_may_be_on_an_excepted_day(timed, clock):
    timed.schedules.add("digest", cron="0 9 * * *", except_="2026-11-21")
    timed.schedules.move("digest", START.replace(hour=9, minute=0), to=START + DAY)
    clock.advance(DAY)
    assert ran(timed) == ["digest@2026-11-20T09:00:00Z"]


@everywhere
def test_schedule_that_only_occurs_on_excepted_days_ends(timed):
    timed.schedules.add("never", cron="0 9 25 12 *", tz="Europe/Berlin", except_="holidays:DE")
    info = timed.schedules.get("never")
    assert (info.state, info.next) == ("ended", None)


def test_worker_without_the_package_leaves_the_schedule_to_others(timed, clock, monkeypatch, caplog):
    timed.schedules.add("digest", every="1h", except_="holidays:DE")
    timed.schedules.add("plain", every="1h", except_="2026-12-24")
    exceptions._holidays.cache_clear()
    monkeypatch.setitem(sys.modules, "holidays", None)
    from delayq.schedules.definition import _read

    _read.cache_clear()
    clock.advance(HOUR)
    assert ran(timed) == ["plain@2026-11-20T08:00:00Z"]
    needs = "public holidays need the package holidays: pip install 'delayq[holidays]'"
    assert f"schedule digest cannot be fired here: {needs}" in caplog.messages
    with pytest.raises(ConfigurationError, match="schedule new: public holidays need the package holidays"):
        timed.schedules.add("new", every="1h", except_="holidays:FR")
    monkeypatch.undo()
    _read.cache_clear()
    assert ran(timed) == ["digest@2026-11-20T08:00:00Z"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("holidays:XX", r"holidays:XX: country XX not available"),
        ("holidays:de", r"did you mean 'DE'\?"),
        ("holidays:DE-XY", r"does not have subdivision XY"),
        ("tomorrow", "except_ takes dates, 'holidays:DE' and .ics files, not 'tomorrow'"),
        (["2026-02-30"], "except_ takes dates, .*, not '2026-02-30'"),
        (START, "except_ takes dates"),
        (None, "except_ must be days such as 'holidays:DE' or dates, not None"),
        (5, "except_ must be days"),
        ("none.ics", "none.ics cannot be read"),
        ([date(2026, 1, 1) + timedelta(days=n) for n in range(1001)], "except_ may have 1,000 days, not 1,001"),
    ],
)
def test_invalid_days_are_refused(timed, wrong, error):
    with pytest.raises(ConfigurationError, match=error):
        timed.schedules.add("digest", every="1h", except_=wrong)
    assert timed.schedules.list() == []


@pytest.mark.parametrize("text", [b"", b"BEGIN:VCALENDAR\nEND:VCALENDAR\n", b"BEGIN:VEVENT\n\xff", SCHOOL])
def test_file_without_days_is_refused(timed, tmp_path, text):
    file = tmp_path / "a.ics"
    file.write_bytes(text)
    with pytest.raises(ConfigurationError, match=r"a\.ics (cannot be read|has no whole days from now on)"):
        timed.schedules.add("digest", every="1h", except_=file)


@settings(deadline=None)  # the first example reads zones and holidays from disk
@given(
    st.sampled_from(["*/7 * * * *", "0 9 * * *", "30 2 * * *", "0 0 * * 0", "0 */6 1-7 * *"]),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Beirut"]),
    st.sets(st.integers(0, 400), max_size=60),
    st.integers(0, 400 * 24 * 60),
)
def test_occurrences_are_those_of_the_rule_without_those_days(cron, zone, numbers, minute):
    first = date(2025, 12, 1)
    dates = {first + timedelta(days=number) for number in numbers}
    public = holidays.country_holidays("US")
    plain, local = Cron(cron, zone), ZoneInfo(zone)
    rule = ExceptRule(plain, local, [*(one.isoformat() for one in dates), "holidays:US"])

    def counts(time: int) -> bool:
        day = datetime.fromtimestamp(time / 1000, local).date()
        return day not in dates and day not in public

    since = timestamp(datetime(2025, 12, 1, tzinfo=UTC)) + 60_000 * minute
    found, expected = since, since
    for _ in range(5):
        found = rule.after(found)
        expected = plain.after(expected)
        while not counts(expected):
            expected = plain.after(expected)
        assert found == expected
    assert rule.up_to(found) == found
    back = plain.up_to(found - 1)
    while not counts(back):
        back = plain.up_to(back - 1)
    assert rule.up_to(found - 1) == back
