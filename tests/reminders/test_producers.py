"""Files as common calendar programs write them."""

# ruff: noqa: DTZ001 - times on the wall are what it is about

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from delayq import ConfigurationError
from delayq.reminders import Calendar, read_calendar
from tests.reminders.conftest import NOW, ics, read

BERLIN, VIENNA = ZoneInfo("Europe/Berlin"), ZoneInfo("Europe/Vienna")


def starts(reading, uid):
    return [event.start for event in reading.events if event.uid == uid]


def one(reading, uid):
    (event,) = (event for event in reading.events if event.uid == uid)
    return event


def test_google_file():
    reading = read("google.ics")
    assert (reading.problems, reading.found) == ([], 6)
    single = one(reading, "4single@google.com")
    assert (single.summary, single.location) == ("Kick-off", "Café Zürich, Münchner Straße 1")
    assert (single.start, single.zone) == (datetime(2027, 1, 15, 8, 30, tzinfo=UTC), "Europe/Berlin")
    assert one(reading, "6allday@google.com").start == date(2027, 4, 1)
    assert one(reading, "6allday@google.com").summary == "Holiday 🎉"
    assert not starts(reading, "7off@google.com")


def test_series_with_excluded_moved_and_cancelled_occurrences():
    weekly = [event for event in read("google.ics").events if event.uid == "5weekly@google.com"]
    assert sorted((event.start.replace(tzinfo=None), event.recurrence, event.summary) for event in weekly) == [
        (datetime(2027, 1, 4, 10), "20270104T100000", "Weekly"),
        (datetime(2027, 1, 19, 14), "20270118T100000", "Weekly (moved)"),
        (datetime(2027, 2, 1, 10), "20270201T100000", "Weekly"),
    ]
    assert {event.start.tzinfo.key for event in weekly} == {"Europe/Berlin"}


def test_outlook_file():
    reading = read("outlook.ics")
    assert reading.problems == []
    first = reading.events[0]
    assert first.uid.startswith("040000008200E000")
    assert first.uid.endswith("F6F1F9A2B")
    assert (first.summary, first.location) == ("Besprechung über Öl", "Raum 7; Etage 2")
    assert first.start == datetime(2027, 7, 1, 9, tzinfo=BERLIN)
    assert first.start.tzinfo.key == "Europe/Berlin"
    customized = one(reading, "customized@outlook").start
    assert customized.astimezone(UTC) == datetime(2027, 7, 1, 11, 30, tzinfo=UTC)
    pacific = ZoneInfo("America/Los_Angeles")
    assert starts(reading, "monthly@outlook") == [
        datetime(2027, 1, 5, 8, tzinfo=pacific),
        datetime(2027, 3, 2, 8, tzinfo=pacific),
    ]


def test_apple_file():
    reading = read("apple.ics")
    assert reading.problems == []
    dentist = one(reading, "0A1B2C3D-0000-4444-8888-ABCDEF012345")
    assert dentist.start == datetime(2027, 3, 10, 9, tzinfo=ZoneInfo("America/New_York"))
    assert dentist.location == "Apple Park Visitor Center\n10600 N Tantau Ave"
    assert dentist.alarms == ()
    assert one(reading, "floating@apple").start == datetime(2027, 3, 11, 19)


def test_alarms_are_read_on_request():
    alarms = {event.uid: [offset.text for offset in event.alarms] for event in read("apple.ics", alarms=True).events}
    assert alarms == {"0A1B2C3D-0000-4444-8888-ABCDEF012345": ["1d", "2h", "+55m", "+5m"], "floating@apple": []}
    outlook = read("outlook.ics", alarms=True).events
    assert [[offset.text for offset in event.alarms] for event in outlook] == [["15m"], [], [], []]


def test_nextcloud_file():
    reading = read("nextcloud.ics", days=7)
    assert (reading.problems, reading.found) == ([], 2)
    # The 1st of January 2027 is the 1461st third day after that of 2015; it is 07:30 and not yet begun at midnight UTC.
    assert starts(reading, "daily")[-3:] == [datetime(2027, 1, day, 7, 30, tzinfo=VIENNA) for day in (1, 4, 7)]
    assert starts(reading, "rdate") == [
        datetime(2027, 1, 5, 7, 30, tzinfo=VIENNA),
        datetime(2027, 1, 7, 7, 30, tzinfo=VIENNA),
    ]


def test_unreadable_events_are_reported_and_the_rest_is_read():
    reading = read("broken.ics")
    assert sorted(event.uid for event in reading.events) == ["also-good", "good"]
    assert sorted(map(str, reading.problems)) == [
        "broken.ics, line 11: event 'No start': it has no start (DTSTART)",
        "broken.ics, line 15: event 'Bad start': its DTSTART cannot be read: Wrong datetime format: 20271315T090000",
        "broken.ics, line 20: event 'Bad zone': unknown time zone 'Mars/Olympus'",
        "broken.ics, line 25: event 'Bad rule': its RRULE cannot be read: Expected frequency, got: SOMETIMES",
        "broken.ics, line 31: event 'Every second': it recurs secondly, which is not supported",
        "broken.ics, line 37: event 'No end': it is cut off: END:VEVENT is missing",
    ]
    assert {problem.uid for problem in reading.problems} == {
        *("no-start", "bad-start", "bad-zone", "bad-rule", "every-second", "no-end"),
    }


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "line 1: not an iCalendar file: BEGIN:VCALENDAR is missing"),
        (b"\x00\xff\xfe<html>", "line 1: not an iCalendar file: BEGIN:VCALENDAR is missing"),
        (ics("UID:a\nDTSTART:20270115T090000Z").replace(b"END:VCALENDAR", b""), "line 6: the file is cut off"),
        (b"BEGIN:VCALENDAR\nEND:VEVENT\nEND:VCALENDAR\n", "line 2: END:VEVENT without its BEGIN"),
        (
            ics(head="X-WR-TIMEZONE:Mars/Olympus"),
            "line 1: X-WR-TIMEZONE: unknown time zone 'Mars/Olympus', using UTC",
        ),
    ],
)
def test_problems_of_a_file(data, what):
    (problem,) = read(data).problems
    assert str(problem).startswith(f"team.ics, {what}")
    assert (problem.event, problem.uid) == ("", "")


def test_fold_can_split_a_character():
    data = ics("UID:a\nDTSTART:20270115T090000Z\nSUMMARY:Grüße").replace("ü".encode(), b"\xc3\r\n \xbc")
    assert one(read(data), "a").summary == "Grüße"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_are_detected(encoding):
    data = ics("UID:a\nDTSTART:20270115T090000Z\nSUMMARY:Grüße").decode().encode(encoding)
    assert one(read(data), "a").summary == "Grüße"


def test_zone_definition_applies_only_to_its_file():
    def own(offset):
        return (
            "BEGIN:VTIMEZONE\nTZID:Mine\nBEGIN:STANDARD\nDTSTART:19700101T000000\n"
            f"TZOFFSETFROM:{offset}\nTZOFFSETTO:{offset}\nEND:STANDARD\nEND:VTIMEZONE"
        )

    event = "UID:a\nDTSTART;TZID=Mine:20270115T090000"
    assert one(read(ics(event, head=own("+0100"))), "a").start.astimezone(UTC).hour == 8
    assert one(read(ics(event, head=own("+0300"))), "a").start.astimezone(UTC).hour == 6
    assert str(read(ics(event)).problems[0]).endswith("unknown time zone 'Mine'")


def test_zone_with_a_broken_definition_is_unknown():
    broken = "BEGIN:VTIMEZONE\nTZID:Mine\nBEGIN:STANDARD\nDTSTART:never\nEND:STANDARD\nEND:VTIMEZONE"
    (problem,) = read(ics("UID:a\nDTSTART;TZID=Mine:20270115T090000", head=broken)).problems
    assert problem.what == "unknown time zone 'Mine'"


@pytest.mark.parametrize(
    ("tzid", "hour"),
    [
        ("Europe/Berlin", 8),
        ('"Europe/Berlin"', 8),
        ("/Europe/Berlin", 8),
        ("/citadel.org/20210210_1/America/Argentina/Buenos_Aires", 12),
        ("W. Europe Standard Time", 8),
        ("UTC", 9),
        ("Etc/GMT-2", 7),
    ],
)
def test_zone_names_of_producers(tzid, hour):
    start = one(read(ics(f"UID:a\nDTSTART;TZID={tzid}:20270115T090000")), "a").start
    assert start.astimezone(UTC).hour == hour


@pytest.mark.parametrize("tzid", ["Europe", "../../etc/passwd", "\u2028", "x" * 5000, ""])
def test_unknown_zone_names(tzid):
    reading = read(ics(f"UID:a\nSUMMARY:S\nDTSTART;TZID={tzid}:20270115T090000"))
    if tzid:
        (problem,) = reading.problems
        assert "unknown time zone" in problem.what
        assert len(str(problem)) < 200
    else:
        assert one(reading, "a").start == datetime(2027, 1, 15, 9)


def test_event_without_a_uid_gets_one_from_its_content():
    event = "DTSTART:20270115T090000Z\nSUMMARY:S"
    (first,), (second,) = read(ics(event)).events, read(ics(f"{event}\nLOCATION:L")).events
    assert first.uid == second.uid
    assert first.uid != read(ics(event.replace("T09", "T10"))).events[0].uid


def test_later_version_of_an_event_wins():
    old, new = "UID:a\nDTSTART:20270115T090000Z\nSEQUENCE:1", "UID:a\nDTSTART:20270116T090000Z\nSEQUENCE:2"
    for several in ([old, new], [new, old]):
        assert [event.start.day for event in read(ics(*several)).events] == [16]


def test_file_with_method_cancel():
    event = "UID:a\nDTSTART:20270115T090000Z"
    assert read(ics(event, head="METHOD:CANCEL")).events == []
    assert len(read(ics(event, head="METHOD:REQUEST")).events) == 1


def test_several_files_make_one_calendar():
    first, second = ics("UID:a\nDTSTART:20270115T090000Z"), ics("UID:b\nDTSTART:20270115T090000Z")
    assert [event.uid for event in read(first, second).events] == ["a", "b"]


def test_one_file_need_not_be_in_a_list(tmp_path):
    (tmp_path / "a.ics").write_bytes(ics("UID:a\nDTSTART:20270115T090000Z"))
    for file in (tmp_path / "a.ics", str(tmp_path / "a.ics"), ("a.ics", (tmp_path / "a.ics").read_bytes())):
        assert [event.uid for event in read_calendar(file, now=NOW).events] == ["a"]


def test_unreadable_file_raises(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nothing\.ics cannot be read: No such file"):
        read_calendar(tmp_path / "nothing.ics", now=NOW)
    with pytest.raises(ConfigurationError, match="until must be after now"):
        read_calendar([], now=NOW, until=NOW)
    with pytest.raises(ConfigurationError, match="is naive"):
        read_calendar([], now=datetime(2027, 1, 1))


def test_horizon_limits_the_occurrences(tmp_path):
    data = ics(*(f"UID:{day}\nDTSTART:202701{day:02}T000000Z" for day in range(1, 32)))
    assert [event.uid for event in read(data, days=3).events] == ["1", "2", "3", "4"]


def test_progress_is_reported():
    reported = []
    read("google.ics", on_progress=lambda done, total: reported.append((done, total)))
    assert (reported[0], reported[-1]) == ((0, 6), (6, 6))


def test_calendars_of_a_file_are_read_each_by_itself():
    one, two = "DTSTART:20270115T090000", "DTSTART:20270116T090000"
    first = ics(f"UID:a\n{one}", head="X-WR-TIMEZONE:Europe/Berlin\nMETHOD:PUBLISH")
    second = ics(f"UID:b\n{two}", head="X-WR-TIMEZONE:America/New_York")
    third = ics("UID:b\nDTSTART:20270116T090000", head="METHOD:CANCEL")
    reading = read(first + second)
    assert [(event.uid, event.zone) for event in reading.events] == [("a", "Europe/Berlin"), ("b", "America/New_York")]
    assert [event.uid for event in read(first + third).events] == ["a"]
    assert [event.uid for event in read(third + first).events] == ["a"]


@pytest.mark.parametrize(
    ("tzid", "hour"),
    [
        ("w. europe standard time", 8),
        ("europe/berlin", 8),
        ("GMT+0100", 8),
        ('"UTC-05:30"', 14),
        ("gmt+2", 7),
        ("GMT-0000", 9),
    ],
)
def test_zone_names_in_any_case_and_fixed_offsets(queue, tzid, hour):
    reading = read(ics(f"UID:a\nDTSTART;TZID={tzid}:20270115T090000"))
    assert one(reading, "a").start.astimezone(UTC).hour == hour
    calendar = Calendar(queue, "team", "1d")
    assert len(calendar.update(reading).new) == 1
    assert calendar.update(read(ics(f"UID:a\nDTSTART;TZID={tzid}:20270115T090000"))).unchanged == 1


def test_unknown_zone_is_reported_with_each_event_it_concerns():
    events = [f"UID:{uid}\nSUMMARY:{uid}\nDTSTART;TZID=GMT+2500:20270115T090000" for uid in "ab"]
    assert [str(problem) for problem in read(ics(*events)).problems] == [
        "team.ics, line 3: event 'a': unknown time zone 'GMT+2500'",
        "team.ics, line 8: event 'b': unknown time zone 'GMT+2500'",
    ]
