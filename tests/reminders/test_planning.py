"""From events to reminders: ids, due times and payloads."""

# ruff: noqa: DTZ001 - times on the wall are what it is about

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayq import ConfigurationError
from delayq.broker.keys import check_id
from delayq.reminders import Event, Offset, Rules, plan
from delayq.reminders.planner import id_prefix
from delayq.values.times import from_millis
from tests.reminders.conftest import NOW

BERLIN = ZoneInfo("Europe/Berlin")
MEETING = Event("m@x", datetime(2027, 1, 15, 9, tzinfo=BERLIN), "Meeting", "Room 7")


def dues(event, *before, now=NOW, **options):
    made = plan([event], Rules.of("team", before, **options), now=now)
    return {one.offset: f"{from_millis(one.due):%m-%dT%H:%M}" for one in made}


def test_payload_of_a_reminder():
    (one,) = plan([MEETING], Rules.of("team", "15m"), now=NOW)
    assert one.id == "team/m@x//15m"
    assert from_millis(one.due) == datetime(2027, 1, 15, 7, 45, tzinfo=UTC)
    assert one.payload == {
        "calendar": "team",
        "uid": "m@x",
        "recurrence": "",
        "summary": "Meeting",
        "location": "Room 7",
        "start": "2027-01-15T09:00:00+01:00",
        "zone": "Europe/Berlin",
        "all_day": False,
        "offset": "15m",
    }


def test_rule_offsets_and_event_alarms_are_combined():
    event = Event("m", MEETING.start, alarms=(Offset.of("5m"), Offset.of("15m")))
    assert dues(event, "15m", "1 day before at 18:00") == {
        "1d@18:00": "01-14T17:00",
        "15m": "01-15T07:45",
        "5m": "01-15T07:55",
    }


@pytest.mark.table(
    ("start", "zone", "tz", "due"),
    [
        (datetime(2027, 1, 15, 9, tzinfo=BERLIN), "", None, "01-14T08:00"),  # the event's zone
        (datetime(2027, 1, 15, 9, tzinfo=BERLIN), "", "America/New_York", "01-14T14:00"),  # that of the rules
        (datetime(2027, 1, 15, 8, tzinfo=UTC), "Europe/Berlin", None, "01-14T08:00"),  # the calendar's, for UTC
        (datetime(2027, 1, 15, 8, tzinfo=UTC), "", None, "01-14T09:00"),
        (datetime(2027, 1, 15, 9), "Europe/Berlin", None, "01-14T08:00"),  # floating
        (datetime(2027, 1, 15, 9), "Europe/Berlin", "America/New_York", "01-14T14:00"),
        (datetime(2027, 1, 15, 9), "", None, "01-14T09:00"),
        (date(2027, 1, 15), "Europe/Berlin", None, "01-14T08:00"),
        (date(2027, 1, 15), "", "Asia/Tokyo", "01-14T00:00"),
        (datetime(2027, 1, 15, 9, tzinfo=timezone(timedelta(hours=5))), "", None, "01-14T04:00"),
    ],
)
def test_time_zone_precedence(start, zone, tz, due):
    assert dues(Event("m", start, zone=zone), "1d@09:00", tz=tz) == {"1d@09:00": due}


def test_no_reminder_is_due_after_the_start():
    assert dues(MEETING, "0d@10:00") == {"0d@10:00": "01-15T08:00"}
    assert dues(MEETING, "3h", quiet="22:00-08:30") == {"3h": "01-15T07:30"}
    assert dues(MEETING, "3h", quiet="22:00-09:30") == {"3h": "01-14T21:00"}


def test_all_day_event_can_have_reminders_on_its_day():
    event = Event("d", date(2027, 1, 15), "Holiday", zone="Europe/Berlin")
    assert dues(event, "0d@08:00", "15m") == {"15m": "01-14T22:45", "0d@08:00": "01-15T07:00"}
    assert dues(event, "15m", quiet="22:00-07:00") == {"15m": "01-15T06:00"}
    (one,) = plan([event], Rules.of("team", "1d"), now=NOW)
    assert (one.payload["start"], one.payload["all_day"]) == ("2027-01-15", True)


def test_started_events_are_left_out():
    begins = MEETING.start
    assert dues(MEETING, "15m", now=begins - timedelta(seconds=1))
    assert not dues(MEETING, "15m", now=begins)
    day = Event("d", date(2027, 1, 15), zone="UTC")
    assert dues(day, "15m", now=datetime(2027, 1, 15, 23, 59, tzinfo=UTC))
    assert not dues(day, "15m", now=datetime(2027, 1, 16, tzinfo=UTC))


def test_last_event_with_the_same_id_wins():
    later = Event("m@x", MEETING.start + timedelta(hours=1), "Later")
    (one,) = plan([MEETING, later], Rules.of("team", "15m"), now=NOW)
    assert one.event is later


texts = st.text(min_size=1, max_size=90)


@given(st.lists(st.tuples(texts, st.text(max_size=20)), min_size=2, max_size=2, unique=True))
def test_ids_of_different_events_differ(pairs):
    events = [Event(uid, NOW, recurrence=recurrence) for uid, recurrence in pairs]
    stems = [id_prefix("a" * 32, event) for event in events]
    assert stems[0] != stems[1]
    for stem in stems:
        check_id(stem + Offset(36_000, 86_399 + 86_400 * 100).text)
        assert not stems[0].startswith(stems[1])


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Event("", MEETING.start), "must be a non-empty str"),
        (Event("m", "tomorrow"), "must be a datetime or a date"),
        (Event("m", datetime(2027, 1, 2), zone="Mars/Olympus"), "event 'm': unknown time zone 'Mars/Olympus'"),
        (Event("m", date(9999, 12, 31)), "out of range"),
        (Event("m", datetime(2500, 1, 1, tzinfo=UTC)), "a reminder of event m must lie between 1970 and 2199"),
    ],
)
def test_invalid_event_is_refused(event, message):
    with pytest.raises(ConfigurationError, match=message):
        plan([event], Rules.of("team", "15m"), now=NOW)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"calendar": "a b"}, "calendar must be"),
        ({"calendar": "a" * 33}, "at most 32"),
        ({"tz": "Europe/Berln"}, "did you mean 'Europe/Berlin'"),
        ({"tz": "Europe"}, "unknown time zone"),
        ({"tz": "../etc/passwd"}, "unknown time zone"),
        ({"tz": UTC}, "tz must be a named time zone"),
        ({"quiet": "night"}, "quiet hours"),
        ({"before": "soon"}, "an offset"),
    ],
)
def test_invalid_rules_are_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        Rules.of(**({"calendar": "team", "before": "15m"} | arguments))
