"""Stored plans of calendars: read back unchanged, or refused with an error."""

# ruff: noqa: DTZ001 - times on the wall are what it is about

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import ConfigurationError
from delayq.reminders import Event, Offset, Rules, plan
from delayq.reminders.event import PINNED
from delayq.reminders.plan_store import pack, unpack
from tests.reminders.conftest import NOW, read

AHEAD = st.datetimes(datetime(2027, 2, 1), datetime(2030, 1, 1))
ZONES = st.sampled_from([UTC, *map(ZoneInfo, ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"])])
starts = st.one_of(
    AHEAD,
    AHEAD.map(datetime.date),
    st.builds(lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold), AHEAD, ZONES, st.integers(0, 1)),
    st.builds(lambda at, hours: at.replace(tzinfo=timezone(timedelta(hours=hours))), AHEAD, st.integers(-12, 12)),
)
events = st.builds(
    Event,
    st.text("ab/=ü", min_size=1, max_size=4),
    starts,
    st.text(max_size=5),
    st.text(max_size=5),
    st.sampled_from(["", "20270101T090000"]),
    st.sampled_from(["", "Europe/Berlin"]),
    st.lists(st.sampled_from([Offset.of("5m"), Offset.of("2d@08:00")]), max_size=2, unique=True).map(tuple),
)
rules = st.builds(
    lambda before, quiet, tz: Rules.of("team", before, quiet=quiet, tz=tz),
    st.lists(st.sampled_from(["15m", "1d", "1d@09:00"]), max_size=3),
    st.sampled_from([None, "22:00-07:00", "12:00-13:00 earlier"]),
    st.sampled_from([None, "Asia/Tokyo"]),
)


@given(st.lists(events, max_size=5), rules, st.sets(st.text(max_size=3), max_size=3))
def test_stored_plan_round_trips_and_plans_the_same(several, by, unconfirmed):
    made = plan(several, by, now=NOW)
    kept = unpack("team", b"7 " + pack(by, made.reminders.values(), at=5, unconfirmed=unconfirmed))
    assert (kept.revision, kept.rules.texts, kept.at, kept.unconfirmed) == (7, by.texts, 5, unconfirmed)
    assert kept.reminders.keys() == made.reminders.keys()
    assert all(kept.reminders[id].same_as(one) for id, one in made.reminders.items())
    again = plan([one.event for one in kept.reminders.values()], by, now=NOW)
    assert again.reminders.keys() == made.reminders.keys()
    assert all(again.reminders[id].same_as(one) for id, one in made.reminders.items())


def test_new_calendar_has_an_empty_stored_plan():
    kept = unpack("team", None)
    assert (kept.revision, kept.rules, kept.reminders) == (0, None, {})


@pytest.mark.parametrize("held", [b"1 ", b"1 rubbish", b"1 " + b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_plan_of_another_version_is_an_error(held):
    with pytest.raises(ConfigurationError, match="cannot read the plan of calendar team"):
        unpack("team", held)


def test_event_with_a_zone_defined_in_its_file_is_pinned():
    reading = read("outlook.ics")
    by = Rules.of("team", "1d@09:00")
    made = plan(reading.events, by, now=NOW)
    kept = unpack("team", b"1 " + pack(by, made.reminders.values(), at=0))
    (pinned,) = kept.pinned.values()
    assert (pinned.event.uid, pinned.event.zone) == ("customized@outlook", PINNED)
    assert pinned.same_as(made.reminders[pinned.id])
    again = unpack("team", b"1 " + pack(by, kept.reminders.values(), at=0))
    assert again.pinned[pinned.id].same_as(pinned)


def test_event_with_an_unknown_zone_is_pinned(monkeypatch):
    by = Rules.of("team", "15m")
    event = Event("a", datetime(2027, 2, 1, 9, tzinfo=ZoneInfo("Europe/Berlin")))
    made = plan([event], by, now=NOW)
    packed = pack(by, made.reminders.values(), at=0)
    monkeypatch.setattr("delayq.reminders.plan_store.find_zone", lambda _name: None)
    (pinned,) = unpack("team", b"1 " + packed).pinned.values()
    assert pinned.event.start.astimezone(UTC) == datetime(2027, 2, 1, 8, tzinfo=UTC)
    assert pinned.due == made.reminders[pinned.id].due


def test_all_day_event_stays_a_date():
    by = Rules.of("team", "1d")
    made = plan([Event("a", date(2027, 2, 1))], by, now=NOW)
    (back,) = unpack("team", b"1 " + pack(by, made.reminders.values(), at=0)).reminders.values()
    assert back.event.start == date(2027, 2, 1)
    assert back.event.all_day
