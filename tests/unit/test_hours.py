"""Hours: when they are open, what their texts mean, and that all which means the same has one text."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq import ConfigurationError
from delayq.broker.message.attributes import Attributes
from delayq.schedules.hours import check_hours, hours_of, read_hours, with_hours
from delayq.schedules.recurring import exceptions
from delayq.values.times import from_millis, timestamp

MINUTE = timedelta(minutes=1)
BERLIN, HAVANA, LORD_HOWE, APIA = "Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Pacific/Apia"


def opening(text, tz, at):
    """When hours open next, as local time with its offset."""
    opens = read_hours(text, tz).opening(timestamp(datetime.fromisoformat(at)))
    return from_millis(opens).astimezone(ZoneInfo(tz)).isoformat(timespec="minutes")


@pytest.mark.table(
    ("text", "tz", "at", "opens"),
    [
        ("08:00-21:00", "UTC", "2027-01-01T08:00Z", "2027-01-01T08:00+00:00"),
        ("08:00-21:00", "UTC", "2027-01-01T20:59Z", "2027-01-01T20:59+00:00"),
        ("08:00-21:00", "UTC", "2027-01-01T21:00Z", "2027-01-02T08:00+00:00"),
        ("22:00-06:00", "UTC", "2027-01-01T05:59Z", "2027-01-01T05:59+00:00"),
        ("22:00-06:00", "UTC", "2027-01-01T06:00Z", "2027-01-01T22:00+00:00"),
        # over midnight it belongs to the day on which it opens: 1 January is a Friday
        ("FRI 22:00-06:00", "UTC", "2027-01-02T05:00Z", "2027-01-02T05:00+00:00"),
        ("FRI 22:00-06:00", "UTC", "2027-01-02T22:00Z", "2027-01-08T22:00+00:00"),
        ("FRI 22:00-06:00", "UTC", "2027-01-01T05:00Z", "2027-01-01T22:00+00:00"),
        ("SAT-MON 00:00-24:00", "UTC", "2027-01-01T12:00Z", "2027-01-02T00:00+00:00"),
        ("SAT-MON 00:00-24:00", "UTC", "2027-01-04T23:59Z", "2027-01-04T23:59+00:00"),
        ("SAT-MON 00:00-24:00", "UTC", "2027-01-05T00:00Z", "2027-01-09T00:00+00:00"),
        ("MON,WED 09:00-10:00; SAT 10:00-11:00,12:00-13:00", "UTC", "2027-01-02T11:00Z", "2027-01-02T12:00+00:00"),
        ("MON,WED 09:00-10:00; SAT 10:00-11:00,12:00-13:00", "UTC", "2027-01-02T13:00Z", "2027-01-04T09:00+00:00"),
        ("MON-FRI 09:00-17:00 except holidays:DE", BERLIN, "2027-01-01T10:00Z", "2027-01-04T09:00+01:00"),
        ("09:00-17:00 except 2027-01-02, 2027-01-03", BERLIN, "2027-01-01T17:00Z", "2027-01-04T09:00+01:00"),
        # an opening that is skipped is that of the end of the gap, from 02:00 to 03:00
        ("02:30-12:00", BERLIN, "2027-03-28T00:00Z", "2027-03-28T03:00+02:00"),
        ("02:10-02:50", BERLIN, "2027-03-28T00:00Z", "2027-03-29T02:10+02:00"),
        ("00:00-02:30", BERLIN, "2027-03-28T00:59Z", "2027-03-28T01:59+01:00"),
        ("00:00-02:30", BERLIN, "2027-03-28T01:00Z", "2027-03-29T00:00+02:00"),
        ("00:30-02:00", HAVANA, "2027-03-14T04:30Z", "2027-03-14T01:00-04:00"),
        ("02:15-09:00", LORD_HOWE, "2027-10-02T15:00Z", "2027-10-03T02:30+11:00"),
        # of an hour that comes twice, from 02:00 to 03:00, the first counts
        ("02:30-12:00", BERLIN, "2027-10-31T00:00Z", "2027-10-31T02:30+02:00"),
        ("02:30-12:00", BERLIN, "2027-10-31T01:10Z", "2027-10-31T02:10+01:00"),
        ("00:00-02:30", BERLIN, "2027-10-31T00:30Z", "2027-11-01T00:00+01:00"),
        # a day that the zone skips
        ("08:00-21:00", APIA, "2011-12-30T07:30Z", "2011-12-31T08:00+14:00"),
    ],
)
def test_hours_open(text, tz, at, opens):
    assert opening(text, tz, at) == opens


times = st.integers(0, 1439)
zones = st.sampled_from([BERLIN, HAVANA, LORD_HOWE, "America/Santiago", "Africa/Casablanca", "Antarctica/Troll"])
shown_by_zone: dict[str, array[int]] = {}
START = datetime(2027, 1, 1, tzinfo=UTC)


def shown(zone):
    """The minute of the week that the clocks of a zone show in each minute; one that goes back waits for its time."""
    if zone not in shown_by_zone:
        faces, tz, first = array("H"), ZoneInfo(zone), int(START.timestamp())
        for at in range(first, first + 330 * 86_400, 60):
            wall = datetime.fromtimestamp(at, tz)
            faces.append(faces[-1] if wall.fold else 1440 * wall.weekday() + 60 * wall.hour + wall.minute)
        shown_by_zone[zone] = faces
    return shown_by_zone[zone]


@pytest.mark.long
@settings(deadline=None)  # the first example of a zone walks through its year
@given(zones, times, times, st.sets(st.integers(0, 6), min_size=1), st.integers(0, 320 * 1440))
def test_openings_are_those_of_a_walk_from_minute_to_minute(zone, begin, end, weekdays, start):
    if begin == end:
        return
    names = ",".join(("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")[day] for day in sorted(weekdays))
    text = f"{names} {begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}"
    closes = end if begin < end else end + 1440
    faces, minute = shown(zone), start

    def is_open(face):
        day, now = divmod(face, 1440)
        yesterday = (day - 1) % 7 in weekdays and begin <= now + 1440 < closes
        return (day in weekdays and begin <= now < closes) or yesterday

    while not is_open(faces[minute]):
        minute += 1
    found = read_hours(text, zone).opening(timestamp(START + start * MINUTE))
    assert from_millis(found) == START + minute * MINUTE


@pytest.mark.table(
    ("given", "text"),
    [
        ("8:00-21:00", "08:00-21:00"),
        ("  mon-fri  9:00 to 17:00 ", "MON-FRI 09:00-17:00"),
        ("Mon, Wed 9:00 – 12:00 , 13:00-17:00;sat 0:00-24:00", "MON,WED 09:00-12:00,13:00-17:00; SAT 00:00-24:00"),
        ("09:00-17:00 Except 2027-12-24 holidays:de", "09:00-17:00 except 2027-12-24,holidays:DE"),
    ],
)
def test_what_means_the_same_has_one_text(given, text):
    found = check_hours(given, "Asia/Tokyo")
    assert found.text == text
    stored = with_hours(Attributes(name="n"), found)
    assert stored.encode() == f"name=n hours={text.replace(' ', '_')} tz=Asia/Tokyo".encode()
    read = hours_of(Attributes.of(stored.encode()))
    assert (read.text, read.tz) == (text, "Asia/Tokyo")
    assert with_hours(Attributes(), check_hours(given, None)).tz == ""


class EveryDay:
    def __contains__(self, _):
        return True


def test_hours_that_never_open_are_refused(monkeypatch):
    monkeypatch.setattr(exceptions, "_holidays", lambda _: EveryDay())
    with pytest.raises(ConfigurationError, match="never open: leave out some of the excepted days"):
        check_hours("08:00-12:00 except holidays:XY", "Europe/Stockholm")
