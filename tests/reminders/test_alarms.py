"""The alarms of events: when each is due, and what a line that cannot be read costs."""

from __future__ import annotations

import pytest

from delayq.reminders import Calendar
from tests.reminders.conftest import ics, read

TIMED = "DTSTART;TZID=Europe/Berlin:20270329T100000\nDTEND;TZID=Europe/Berlin:20270329T110000"
ALL_DAY = "DTSTART;VALUE=DATE:20270329"
CLOCK_CHANGE = "DTSTART;TZID=Europe/Berlin:20270328T200000"


def alarm(*lines: str) -> str:
    return "\n".join(["BEGIN:VALARM", "ACTION:DISPLAY", *lines, "END:VALARM"])


def event(start: str, *alarms: str, uid: str = "a") -> str:
    return "\n".join([f"UID:{uid}\nSUMMARY:S", start, *alarms])


def due(queue, data: bytes) -> list[str]:
    """Import a calendar; return when its reminders are due in UTC, and the ids of the offsets."""
    reading = read(data, alarms=True)
    assert reading.problems == []
    made = Calendar(queue, "team").update(reading)
    times = {message.id: message.due for message in queue.list("pending", limit=100).messages}
    return sorted(f"{times[one.id]:%m-%d %H:%M} {one.offset}" for one in made.new)


@pytest.mark.parametrize(
    ("start", "lines", "expected"),
    [
        (CLOCK_CHANGE, ["TRIGGER:-PT24H"], ["03-27 18:00 24h"]),
        (CLOCK_CHANGE, ["TRIGGER:-P1D"], ["03-27 19:00 1d"]),
        (CLOCK_CHANGE, ["TRIGGER:-P1DT12H"], ["03-27 07:00 1d12h"]),
        (CLOCK_CHANGE, ["TRIGGER:-P1W"], ["03-21 19:00 7d"]),
        (CLOCK_CHANGE, ["trigger;related=START:-pt15m"], ["03-28 17:45 15m"]),
        (CLOCK_CHANGE, ["TRIGGER:PT0S"], ["03-28 18:00 0m"]),
        (CLOCK_CHANGE, ["TRIGGER;VALUE=DATE-TIME:20270328T120000Z"], ["03-28 12:00 6h"]),
        (
            TIMED,
            ["TRIGGER:-PT15M", "REPEAT:2", "DURATION:PT5M"],
            ["03-29 07:45 15m", "03-29 07:50 10m", "03-29 07:55 5m"],
        ),
        (TIMED, ["TRIGGER:-P1D", "REPEAT:1", "DURATION:PT10M"], ["03-28 08:00 1d", "03-28 08:10 1d+10m"]),
        (TIMED, ["TRIGGER:PT10M"], ["03-29 08:10 +10m"]),
        (TIMED, ["TRIGGER;RELATED=END:-PT5M"], ["03-29 08:55 +55m"]),
        (TIMED, ["TRIGGER;RELATED=END:-PT2H"], ["03-29 07:00 1h"]),
        ("DTSTART:20270329T080000Z\nDURATION:PT90M", ["TRIGGER;RELATED=END:PT0S"], ["03-29 09:30 +1h30m"]),
        (ALL_DAY, ["TRIGGER:PT9H"], ["03-29 09:00 0d@09:00"]),
        (ALL_DAY, ["TRIGGER:-PT15H"], ["03-28 09:00 15h"]),
        (ALL_DAY, ["TRIGGER;RELATED=END:-PT15H"], ["03-29 09:00 0d@09:00"]),
        (ALL_DAY, ["TRIGGER;VALUE=DATE-TIME:20270328T120000Z"], ["03-28 12:00 12h"]),
    ],
)
def test_alarm_is_due(queue, start, lines, expected):
    assert due(queue, ics(event(start, alarm(*lines)))) == expected


def test_alarm_at_an_absolute_time_is_of_one_occurrence(queue):
    series = "DTSTART:20270110T080000Z\nRRULE:FREQ=DAILY;COUNT=5"
    absolute = alarm("TRIGGER;VALUE=DATE-TIME:20270111T200000Z")
    assert due(queue, ics(event(series, absolute))) == ["01-11 20:00 12h"]


def test_all_alarms_of_an_event_are_used(queue):
    nothing = alarm("TRIGGER:-PT1H").replace("DISPLAY", "NONE")
    uid = alarm("TRIGGER:-PT2H", "UID:another")
    assert due(queue, ics(event(TIMED, uid, nothing, alarm("TRIGGER:-PT3H")))) == ["03-29 05:00 3h", "03-29 06:00 2h"]


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (["TRIGGER:"], "its alarm cannot be read: '' is no duration"),
        (["TRIGGER:P"], "its alarm cannot be read: 'P' is no duration"),
        (["TRIGGER:tomorrow"], "its alarm cannot be read: 'tomorrow' is no duration"),
        (["TRIGGER:-P9999D"], "its alarm cannot be read: '-P9999D' is more than a year"),
        (["TRIGGER;VALUE=DATE-TIME:20270231T000000Z"], "its alarm cannot be read: '20270231T000000Z' is no time"),
        (["TRIGGER;VALUE=DATE-TIME:20270201T000000"], "its alarm cannot be read: '20270201T000000' is not in UTC"),
        ([], "its alarm cannot be read: it has no TRIGGER"),
        (["TRIGGER:-PT1H", "REPEAT:999999", "DURATION:PT1S"], "its alarm is not repeated: 999,999 times every PT1S"),
        (["TRIGGER:-PT1H", "REPEAT:2"], "its alarm is not repeated: '' is no duration"),
    ],
)
def test_unreadable_alarm_costs_nothing_else(queue, lines, what):
    calendar, good = Calendar(queue, "team", "1d"), alarm("TRIGGER:-PT15M")
    calendar.update(read(ics(event(TIMED, good, alarm("TRIGGER:-PT30M"))), alarms=True))
    reading = read(ics(event(TIMED, good, alarm(*lines))), alarms=True)
    (problem,) = reading.problems
    assert str(problem).startswith(f"team.ics, line 3: event 'S': {what}")
    made = calendar.update(reading)
    assert (made.cancelled, made.spared) == ([], 1)
    assert made.unchanged == 2


def test_alarm_that_is_cut_off_costs_nothing_else(queue):
    data = ics(event(TIMED, alarm("TRIGGER:-PT15M"), "BEGIN:VALARM\nTRIGGER:-PT30M"))
    reading = read(data, alarms=True)
    assert [problem.what for problem in reading.problems] == ["its alarm cannot be read: END:VALARM is missing"]
    assert len(Calendar(queue, "team").update(reading).new) == 1
    assert read(data).problems == []


@pytest.mark.parametrize("end", ["DTEND:never", "DURATION:-PT1H", "DTEND;VALUE=DATE:20270330"])
def test_unreadable_end_costs_the_alarms_before_it(queue, end):
    start = TIMED.split("\n", maxsplit=1)[0]
    data = ics(event(f"{start}\n{end}", alarm("TRIGGER;RELATED=END:-PT5M"), alarm("TRIGGER:-PT5M")))
    reading = read(data, alarms=True)
    assert ["its alarms before its end" in problem.what for problem in reading.problems] == [True]
    assert len(Calendar(queue, "team").update(reading).new) == 1
    assert read(data).problems == []


@pytest.mark.parametrize("name", ["EXDATE", "RDATE"])
@pytest.mark.parametrize("value", ["", "never"])
def test_unreadable_date_costs_only_its_line(name, value):
    series = f"DTSTART:20270110T080000Z\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE:20270111T080000Z\n{name}:{value}"
    reading = read(ics(event(series)))
    assert [one.start.day for one in reading.events] == [10, 12]
    assert [f"one {name} is not used" in problem.what for problem in reading.problems] == [True]
    assert [problem.hides for problem in reading.problems] == [name == "RDATE"]


def test_broken_event_does_not_cancel_what_its_alarm_planned(queue):
    calendar = Calendar(queue, "team")
    first = event(TIMED, alarm("UID:alarm", "TRIGGER:-PT15M"))
    calendar.update(read(ics(first), alarms=True))
    uid = 'UID;X-A="b:c":a'
    for broken in (
        f"{alarm('UID:alarm', 'TRIGGER:-PT15M')}\n{uid}\nDTSTART:never",
        f"{uid}\nDTSTART:never",
        event("DTSTART:never", alarm("TRIGGER:")),
        event("DTSTART;TZID=Mars/Olympus:20270101T000000"),
    ):
        made = calendar.update(read(ics(broken), alarms=True))
        assert (made.spared, made.cancelled, [*made.kept]) == (1, [], ["team/a//15m"])
