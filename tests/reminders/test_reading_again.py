"""A calendar that is read again: only what has changed is parsed, and the events are those of a full reading."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq import AsyncDelayQueue, DelayQueue
from delayq.reminders import AsyncCalendar, Calendar, account_of, known_events
from delayq.reminders.vevent import EventSource
from tests.reminders.conftest import NOW, Clock, ics, read, set_clock

SERIES = "DTSTART;TZID=Europe/Berlin:20261201T090000\nRRULE:FREQ="
EVENTS = [
    "DTSTART:20270115T090000Z",
    "DTSTART;TZID=Europe/Berlin:20270301T100000\nSUMMARY:S",
    "DTSTART;VALUE=DATE:20270210",
    "DTSTART:20261230T090000Z",
    "DTSTART:20200101T090000Z",
    "DTSTART:20290101T090000Z",
    "DTSTART:20270120T090000\nSTATUS:CANCELLED",
    "DTSTART;TZID=Mine:20270110T100000",
    f"{SERIES}DAILY",
    f"{SERIES}WEEKLY;COUNT=9",
    f"{SERIES}WEEKLY;UNTIL=20270401T000000Z",
    f"{SERIES}MONTHLY;BYMONTHDAY=30;BYMONTH=2",
    "DTSTART:never",
    "RECURRENCE-ID:20270104T080000Z\nDTSTART:20270104T120000Z",
    "RECURRENCE-ID;RANGE=THISANDFUTURE:20270106T080000Z\nDTSTART:20270106T120000Z",
]
MINE = (
    "BEGIN:VTIMEZONE\nTZID:Mine\nBEGIN:STANDARD\nDTSTART:19700101T000000\nTZOFFSETFROM:+0200\nTZOFFSETTO:+0200\n"
    "END:STANDARD\nEND:VTIMEZONE"
)
files = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(EVENTS)), max_size=8)
nights = st.lists(st.tuples(files, st.integers(0, 40), st.booleans()), min_size=1, max_size=4)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The uids of the events that were parsed."""
    uids: list[str] = []
    parse = EventSource.parse

    def counting(source: EventSource):
        uids.append(source.raw.uid)
        return parse(source)

    monkeypatch.setattr(EventSource, "parse", counting)
    return uids


def file(events: list[tuple[str, str]], head: str = MINE) -> bytes:
    return ics(*(f"UID:{uid}\n{event}" for uid, event in events), head=head)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(nights, st.sampled_from([20, 60]))
def test_reading_again_finds_what_a_full_reading_finds(nights, horizon):
    clock, events = Clock(NOW), []
    with DelayQueue("reminders", url=f"memory://{uuid.uuid4().hex}") as queue:
        set_clock(queue, clock)
        calendar = Calendar(queue, "team", ["1h", "1 day before at 09:00"])
        for changed, days, same in nights:
            clock.advance(days=days)
            events = events if same else changed
            data = file(events)
            again = read(data, now=clock.now, days=horizon, known=calendar.known())
            full = read(data, now=clock.now, days=horizon)
            assert sorted(map(repr, again.events)) == sorted(map(repr, full.events))
            assert (again.problems, again.found) == (full.problems, full.found)
            assert (again.left_out, again.sizes) == (full.left_out, full.sizes)
            expected = calendar.preview(full)
            changes = calendar.update(again)
            assert changes.kept == expected.kept
            account = account_of(again, changes, calendar.rules)
            assert sum(map(len, account.values())) == again.found == len(events)
            assert (len(changes), changes.past, changes.spared) == (len(expected), expected.past, expected.spared)


def test_only_changed_events_are_parsed(queue, clock, parsed):
    calendar = Calendar(queue, "team", "1h")
    events = [(str(number), EVENTS[number]) for number in (0, 1, 2, 9, 10)]
    calendar.update(read(file(events)))
    assert len(parsed) == 5
    parsed.clear()
    clock.advance(days=1)
    calendar.update(read(file(events), now=clock.now, known=calendar.known()))
    assert parsed == []
    events[1] = "1", EVENTS[1] + " (moved)"
    events.append(("new", EVENTS[0]))
    made = calendar.update(read(file(events), now=clock.now, known=calendar.known()))
    assert parsed == ["1", "new"]
    assert [len(made.new), len(made.changed), len(made.cancelled)] == [1, 1, 0]
    parsed.clear()
    assert len(calendar.update(read(file(events[1:]), now=clock.now, known=calendar.known())).cancelled) == 1
    assert parsed == []


def test_endless_series_is_known_for_some_nights(queue, clock, parsed):
    calendar = Calendar(queue, "team", "1h")
    for _ in range(30):
        calendar.update(read(file([("a", EVENTS[8])]), now=clock.now, days=80, known=calendar.known()))
        clock.advance(days=1)
    assert len(parsed) == 3


def test_events_far_from_the_range_are_not_parsed(parsed):
    reading = read(file([("a", EVENTS[4]), ("b", EVENTS[5]), ("c", EVENTS[0])]))
    assert ([event.uid for event in reading.events], reading.found, parsed) == (["c"], 3, ["c"])


def test_problems_are_reported_every_time(queue):
    calendar = Calendar(queue, "team", "1h")
    for _ in range(2):
        reading = read(file([("a", EVENTS[11]), ("b", EVENTS[12]), ("c", EVENTS[0])]), known=calendar.known())
        assert sorted(problem.uid for problem in reading.problems) == ["a", "b"]
        calendar.update(reading)


def test_everything_is_read_again_with_other_time_zones_or_options(queue, parsed, monkeypatch):
    calendar = Calendar(queue, "team", "1h")
    data = file([("a", EVENTS[0])])
    calendar.update(read(data))
    parsed.clear()
    read(data, known=calendar.known(), alarms=True)
    read(data, known=calendar.known(), now=NOW - timedelta(days=1))
    read(file([("a", EVENTS[0])], head="METHOD:REQUEST"), known=calendar.known())
    monkeypatch.setattr(known_events, "releases", lambda: ["2099z"])
    read(data, known=calendar.known())
    assert parsed == ["a"] * 4


def test_coroutine_returns_what_is_known(url):
    async def import_twice():
        async with AsyncDelayQueue("reminders", url=url) as queue:
            calendar = AsyncCalendar(queue, "team", "1h")
            await calendar.update(read(file([("a", EVENTS[0])])))
            return await calendar.known()

    assert [*asyncio.run(import_twice()).marks] == ["a"]
