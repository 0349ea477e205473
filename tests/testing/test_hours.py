"""Messages with hours are delivered in them: an oracle that steps minute by minute says when, without our code."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from delayq import NewMessage, Retry
from delayq.testing import drain


@pytest.fixture
def delayq_url(redis_url):
    """A real Redis: the embedded one takes five times as long, and answers the same."""
    return redis_url


MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)
ZONES = [
    *("UTC", "Europe/Berlin", "Europe/London", "Europe/Lisbon", "Europe/Athens", "Europe/Moscow", "Europe/Chisinau"),
    *("Atlantic/Azores", "Atlantic/Reykjavik", "Africa/Cairo", "Africa/Casablanca", "Africa/Lagos", "Africa/El_Aaiun"),
    *("Asia/Beirut", "Asia/Jerusalem", "Asia/Gaza", "Asia/Tehran", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Shanghai"),
    *("Asia/Tokyo", "Asia/Pyongyang", "Asia/Dubai", "Australia/Sydney", "Australia/Adelaide", "Australia/Lord_Howe"),
    *("Pacific/Auckland", "Pacific/Chatham", "Pacific/Kiritimati", "Pacific/Apia", "Pacific/Honolulu"),
    *("Pacific/Easter", "America/Santiago", "America/Asuncion", "America/Havana", "America/New_York"),
    *("America/St_Johns", "America/Los_Angeles", "America/Sao_Paulo", "Antarctica/Troll"),
]
assert len(set(ZONES)) == 40
MON_FRI, EVERY_DAY = range(5), range(7)
HOURS = {
    "08:00-21:00": [(EVERY_DAY, 480, 1260)],
    "MON-FRI 09:00-17:00": [(MON_FRI, 540, 1020)],
    "08:00-12:00,13:30-18:00": [(EVERY_DAY, 480, 720), (EVERY_DAY, 810, 1080)],
    "22:00-06:00": [(EVERY_DAY, 1320, 1800)],
    "SAT-MON 23:30-00:30; WED 02:10-02:50": [([5, 6, 0], 1410, 1470), ([2], 130, 170)],
    "02:30-04:15": [(EVERY_DAY, 150, 255)],
    "00:00-02:30": [(EVERY_DAY, 0, 150)],
}
"""Each with its windows: on these weekdays from one minute of the day to another one."""
LONGEST_WAIT = 5
"""Days that one of these hours is closed at most, and more for a second attempt."""


class Person(NamedTuple):
    """Somebody who gets a digest a day."""

    id: int
    zone: str
    hours: str


def people(number):
    """Some people in all zones, with all hours."""
    return [Person(n, ZONES[n % len(ZONES)], [*HOURS][n * len(HOURS) // number]) for n in range(number)]


def minutes_of_week(hours):
    """Whether hours are open at each minute of a week, from Monday on."""
    return bytearray(
        any(
            (day in days and begin <= minute < end) or ((day - 1) % 7 in days and begin <= minute + 1440 < end)
            for days, begin, end in HOURS[hours]
        )
        for day in range(7)
        for minute in range(1440)
    )


def faces(zone, start, days):
    """The minute of the week that the clocks of a zone show at each minute; one that goes back waits for its time."""
    tz, first, shown = ZoneInfo(zone), int(start.timestamp()), array("H")
    for at in range(first, first + days * 86_400, 60):
        wall = datetime.fromtimestamp(at, tz)
        shown.append(shown[-1] if wall.fold and shown else 1440 * wall.weekday() + 60 * wall.hour + wall.minute)
    return shown


class Oracle:
    """When a digest is to come, found by going from minute to minute."""

    def __init__(self, crowd, start, days):
        self.start = start
        self.faces = {zone: faces(zone, start, days) for zone in {person.zone for person in crowd}}
        self.open = {hours: minutes_of_week(hours) for hours in HOURS}

    def opening(self, person, at):
        """The first time from this one on at which the hours of a person are open."""
        shown, is_open = self.faces[person.zone], self.open[person.hours]
        begin = minute = (at - self.start) // MINUTE
        while not is_open[shown[minute]]:
            minute += 1
        return at if minute == begin else self.start + minute * MINUTE


def deliver(queue, clock, crowd, *, days, seed):
    """Send and deliver a digest for each person and day, at a time of its own; returns when each must come, and came.

    One of eight fails once, and is tried again three hours later.
    """
    draw, failed = random.Random(seed), set()

    @queue.callback
    def digest(message):
        if int(message.id.split("-")[1]) % 8 == 0 and message.id not in failed:
            failed.add(message.id)
            raise Retry("once")

    expected, came = {}, {}
    start = clock.now
    oracle = Oracle(crowd, start, days + LONGEST_WAIT)
    for first in range(0, days, 30):
        clock.move_to(max(clock.now, start + first * DAY))
        messages = []
        for day in range(first, min(first + 30, days)):
            for person in crowd:
                at = start + day * DAY + timedelta(seconds=draw.randrange(86_400))
                id = f"{person.id}-{day}"
                due = {"at": at} if person.id % 2 else {"delay": at - clock.now}
                messages.append(NewMessage(None, id=id, **due, hours=person.hours, tz=person.zone))
                expected[id] = oracle.opening(person, at)
                if day % 8 == 0:
                    expected[id] = oracle.opening(person, expected[id] + timedelta(hours=3))
        queue.send_many(messages)
        delivered = drain(queue, until=start + min(first + 30, days) * DAY, most=1_000_000)
        came |= {one.id: one.at for one in delivered if one.outcome == "acked"}
    delivered = drain(queue, most=1_000_000)
    came |= {one.id: one.at for one in delivered if one.outcome == "acked"}
    return expected, came


@pytest.mark.parametrize(
    ("number", "days", "start"),
    [
        pytest.param(20, 2, datetime(2027, 3, 27, tzinfo=UTC), id="two-days"),
        pytest.param(300, 365, NEW_YEAR, id="year", marks=[pytest.mark.torture, pytest.mark.timeout(1800)]),
    ],
)
def test_a_daily_digest_comes_in_the_hours_of_each_person(delayq_clock, delayq_queues, number, days, start):
    delayq_clock.move_to(start)
    queue = delayq_queues("digests", nack_delay="3h")
    crowd = people(number)

    expected, came = deliver(queue, delayq_clock, crowd, days=days, seed=1)

    wrong = {id: (at, came.get(id)) for id, at in expected.items() if came.get(id) != at}
    assert not wrong, f"{len(wrong)} of {len(expected)}: {dict([*wrong.items()][:5])}"
    assert Counter(int(id.split("-")[0]) for id in came) == {person.id: days for person in crowd}
    assert queue.counts().living == 0
