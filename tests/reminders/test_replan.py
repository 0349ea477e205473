"""Replanning after a change of the time zone database, from the stored plan without the file."""

# ruff: noqa: DTZ001 - times on the wall are what it is about

from __future__ import annotations

import zoneinfo
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from delayq.reminders import Calendar, Event
from tests.reminders.conftest import read
from tests.reminders.test_calendar import numbers
from tests.support.zones import write_zone

ZONE = "Test/Zone"


@pytest.fixture
def database(tmp_path):
    """`database(hours)` installs a database in which the zone `Test/Zone` has this offset from UTC."""
    before = zoneinfo.TZPATH

    def put(hours: int) -> None:
        folder = tmp_path / f"utc{hours}"
        write_zone(folder / ZONE, hours)
        zoneinfo.reset_tzpath(to=[str(folder), *before])
        ZoneInfo.clear_cache()

    yield put
    zoneinfo.reset_tzpath(to=before)
    ZoneInfo.clear_cache()


def hours(queue):
    return {one.id: f"{one.due:%dT%H}" for one in queue.list("pending", limit=100).messages}


@pytest.mark.parametrize("before", ["1h", "1d@09:00"])
def test_changed_zone_rules_move_reminders(queue, database, before):
    database(1)
    wall = datetime(2027, 2, 10, 12)
    events = [
        Event("zoned", wall.replace(tzinfo=ZoneInfo(ZONE))),
        Event("floating", wall, zone=ZONE),
        Event("day", wall.date(), zone=ZONE),
        Event("berlin", wall.replace(tzinfo=ZoneInfo("Europe/Berlin"))),
    ]
    calendar = Calendar(queue, "team", before)
    calendar.update(events)
    first = hours(queue)
    assert numbers(calendar.replan()) == "unchanged 4"
    database(3)
    assert numbers(calendar.replan()) == "moved 3 unchanged 1"
    second = hours(queue)
    moved = {id for id in first if first[id] != second[id]}
    assert moved == {f"team/{uid}//{before}" for uid in ("zoned", "floating", "day")}
    start = queue.get(f"team/zoned//{before}").payload["start"]
    assert start == "2027-02-10T12:00:00+03:00"
    assert numbers(calendar.replan()) == "unchanged 4"
    fresh = [Event("zoned", wall.replace(tzinfo=ZoneInfo(ZONE))), *events[1:]]
    assert numbers(calendar.update(fresh)) == "unchanged 4"


def test_replan_uses_the_rules_of_the_import(queue, database):
    database(1)
    event = Event("a", datetime(2027, 2, 10, 12, tzinfo=ZoneInfo("Europe/Berlin")))
    Calendar(queue, "team", ["1h", "1d@23:00"], quiet="22:00-07:00", tz=ZONE).update([event])
    assert hours(queue) == {"team/a//1h": "10T10", "team/a//1d@23:00": "10T06"}
    database(3)
    assert numbers(Calendar(queue, "team").replan()) == "moved 1 changed 1"
    assert hours(queue) == {"team/a//1h": "10T10", "team/a//1d@23:00": "10T04"}


def test_delivered_reminders_and_started_events_stay(queue, database, clock):
    database(1)
    begun = Event("begun", datetime(2027, 1, 1, 4, tzinfo=ZoneInfo(ZONE)))
    delivered = Event("delivered", datetime(2027, 1, 1, 10, tzinfo=ZoneInfo(ZONE)))
    calendar = Calendar(queue, "team", "2h")
    calendar.update([begun, delivered])
    clock.advance(hours=7.5)
    for _ in range(2):
        with queue.lease():
            pass
    database(2)
    assert numbers(calendar.replan()) == "past 1"  # it was due an hour earlier, and was delivered
    assert hours(queue) == {}


def test_event_with_a_zone_defined_in_its_file_keeps_its_time(queue):
    calendar = Calendar(queue, "team", "1d@09:00")
    calendar.update(read("outlook.ics"))
    before = hours(queue)
    assert numbers(calendar.replan()) == "unchanged 4"
    assert hours(queue) == before
