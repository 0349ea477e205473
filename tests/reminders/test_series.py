"""Series with overrides: every occurrence is reminded of once, also by imports of every night."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delayq import DelayQueue
from delayq.reminders import Calendar, Event, Reading
from tests.reminders.conftest import NOW, Clock, ics, read, set_clock

BERLIN = ZoneInfo("Europe/Berlin")
BEGIN = datetime(2027, 3, 22, 10, tzinfo=BERLIN)  # the clocks change six days later
OCCURRENCES = 14


def local(name: str, at: datetime, more: str = "") -> str:
    """Return a property with a local time."""
    return f"{name}{more};TZID=Europe/Berlin:{at:%Y%m%dT%H%M%S}"


def due(queue: DelayQueue[Any]) -> Iterator[Any]:
    """Yield the messages that are due, each settled."""
    while True:
        with queue.lease() as message:
            if message is None:
                return
            yield message


# Of an occurrence: what happens to it, whether this holds for the later ones too, and the hours it moves.
overrides = st.dictionaries(
    st.integers(0, OCCURRENCES - 1),
    st.tuples(st.sampled_from(["moved", "cancelled", "excluded"]), st.booleans(), st.integers(-60, 60)),
    max_size=5,
)


def series(days: int, changes: dict[int, tuple[str, bool, int]]) -> tuple[bytes, dict[str, datetime]]:
    """Return a series as a file, and when its occurrences start by their original times."""
    master = ["UID:a", local("DTSTART", BEGIN), f"RRULE:FREQ=DAILY;INTERVAL={days};COUNT={OCCURRENCES}"]
    events, starts = [], {}
    later: tuple[str, timedelta] = "moved", timedelta()
    for number in range(OCCURRENCES):
        origin = BEGIN + timedelta(days=days * number)
        what, future, hours = changes.get(number, ("", False, 0))
        if what == "excluded":
            master.append(local("EXDATE", origin))
            continue
        state, by = (what, timedelta(hours=hours)) if what else later
        if what:
            status = "\nSTATUS:CANCELLED" if what == "cancelled" else ""
            name = local("RECURRENCE-ID", origin, ";RANGE=THISANDFUTURE" if future else "")
            events.append(f"UID:a\n{name}\n{local('DTSTART', origin + by)}{status}")
            later = (state, by) if future else later
        if state == "moved":
            starts[f"{origin:%Y%m%dT%H%M%S}"] = origin + by
    return ics("\n".join(master), *events), starts


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), overrides)
def test_each_occurrence_has_its_own_reminder(days, changes):
    data, starts = series(days, changes)
    with DelayQueue("reminders", url=f"memory://{uuid.uuid4().hex}") as queue:
        set_clock(queue, Clock(NOW))
        made = Calendar(queue, "team", "1h").update(read(data))
        # Without their zone, since a skipped local time differs from itself in another zone, or in one loaded twice.
        planned = {one.event.recurrence: one.event.start.replace(tzinfo=None) for one in made.new}
        assert planned == {origin: start.replace(tzinfo=None) for origin, start in starts.items()}
        messages = queue.list("pending", limit=100).messages
        hour = timedelta(hours=1)
        assert sorted(one.due for one in messages) == sorted(start.astimezone(UTC) - hour for start in starts.values())


@pytest.mark.long
@settings(max_examples=8, deadline=None)
@given(st.integers(1, 3), overrides)
def test_imports_of_every_night_deliver_each_reminder_once(days, changes):
    data, starts = series(days, changes)
    clock, delivered = Clock(BEGIN - timedelta(days=7)), []
    with DelayQueue("reminders", url=f"memory://{uuid.uuid4().hex}") as queue:
        set_clock(queue, clock)
        for _ in range(7 + days * OCCURRENCES + 4):
            Calendar(queue, "team", "1h").update(read(data, now=clock.now, days=7))
            clock.advance(days=1)
            delivered += [message.payload["recurrence"] for message in due(queue)]
    assert sorted(delivered) == sorted(starts)


def test_old_series_moved_far_ahead_loses_no_occurrence():
    master = f"UID:a\n{local('DTSTART', datetime(2020, 1, 6, 10, tzinfo=BERLIN))}\nRRULE:FREQ=WEEKLY"
    name = local("RECURRENCE-ID", datetime(2020, 2, 3, 10, tzinfo=BERLIN), ";RANGE=THISANDFUTURE")
    moved = f"UID:a\n{name}\n{local('DTSTART', datetime(2020, 3, 4, 11, tzinfo=BERLIN))}"
    found = sorted(one.start for one in read(ics(master, moved), days=20).events)
    assert [f"{start:%m-%d %H}" for start in found] == ["12-30 11", "01-06 11", "01-13 11", "01-20 11"]


def this_and_future(*, old: bool) -> Reading:
    """Return a daily series moved by two hours from its third day on, with the identities of before if `old`."""
    name = local("RECURRENCE-ID", BEGIN + timedelta(days=2), ";RANGE=THISANDFUTURE")
    master = f"UID:a\n{local('DTSTART', BEGIN)}\nRRULE:FREQ=DAILY;COUNT=6"
    moved = f"UID:a\n{name}\n{local('DTSTART', BEGIN + timedelta(days=2, hours=2))}"
    reading = read(ics(master, moved))
    if old:  # all occurrences from the third on had the identity of the third
        third = f"{BEGIN + timedelta(days=2):%Y%m%dT%H%M%S}"
        events = [Event("a", one.start, recurrence=min(one.recurrence, third)) for one in reading.events]
        reading = Reading(events, [], reading.found)
    return reading


@pytest.mark.long
def test_plan_of_the_version_before_reminds_of_each_occurrence_once():
    for planned_before in (timedelta(days=1), timedelta(days=-5, hours=-1)):
        clock, delivered = Clock(BEGIN - timedelta(days=1)), []
        with DelayQueue("reminders", url=f"memory://{uuid.uuid4().hex}") as queue:
            set_clock(queue, clock)
            calendar = Calendar(queue, "team", "2h", grace="3h")
            reading = this_and_future(old=True)
            calendar.update(reading)
            while clock.now < BEGIN + timedelta(days=7):
                if clock.now >= BEGIN - planned_before:
                    reading = this_and_future(old=False)
                calendar.update(reading)
                clock.advance(hours=1)
                delivered += [message.payload["start"] for message in due(queue)]
        assert len(set(delivered)) == len(delivered)
        assert len(delivered) == (6 if planned_before > timedelta() else 3)


def test_series_in_another_zone_reminds_once(queue, clock):
    clock.now = BEGIN - timedelta(days=1)
    calendar = Calendar(queue, "team", ["1h", "12h"], grace="1d")
    rule = "RRULE:FREQ=DAILY;COUNT=3"
    calendar.update(read(ics(f"UID:a\n{local('DTSTART', BEGIN)}\n{rule}"), now=clock.now))
    clock.advance(hours=13)
    with queue.lease() as message:
        assert message.payload["offset"] == "12h"
    in_utc = read(ics(f"UID:a\nDTSTART:20270322T090000Z\n{rule}"), now=clock.now)
    for _ in range(2):
        changes = calendar.update(in_utc)
        assert (changes.new, changes.moved, changes.cancelled) == ([], [], [])
        assert len(queue.list("pending", limit=10).messages) == 5
