"""Hours of a schedule: what occurs outside of them is due when they open."""

from __future__ import annotations

from datetime import timedelta

import pytest

from delayq import ConfigurationError, NewMessage
from tests.behaviour.places import everywhere
from tests.support.schedules import HOUR, START, ran

NIGHT = "12:00-13:00"
"""Hours that open four and a half hours after the start."""
OPENS = START + 4.5 * HOUR


def fired(queue):
    return {message.id: message.due for message in queue.list("pending").messages}


@everywhere
def test_messages_of_a_schedule_are_due_in_its_hours(timed, clock):
    timed.schedules.add("report", every="1h", hours=NIGHT)
    timed.schedules.add("spread", every="1h", hours=NIGHT, jitter="30m")
    timed.schedules.add("by-message", every="1h", payload=NewMessage(1, hours="13:00-14:00", tz="Europe/Berlin"))
    clock.advance(HOUR / 2)
    assert ran(timed) == []

    dues = fired(timed)
    assert dues["report@2026-11-20T08:00:00Z"] == dues["by-message@2026-11-20T08:00:00Z"] == OPENS
    assert OPENS < dues["spread@2026-11-20T08:00:00Z"] <= OPENS + HOUR / 2
    found = timed.get("report@2026-11-20T08:00:00Z")
    assert (found.hours, found.tz) == (NIGHT, "UTC")
    clock.advance(OPENS - clock.now)
    assert {id.partition("@")[0] for id in ran(timed)} == {"report", "by-message"}


def test_a_moved_occurrence_and_one_of_run_now_wait_for_the_hours(timed, clock):
    timed.schedules.add("report", every="1d", tz="Europe/Berlin", hours="13:00-14:00", start=START)
    timed.schedules.move("report", timed.schedules.next("report")[0], to=START + HOUR)
    sent = timed.schedules.run_now("report")
    clock.advance(HOUR)
    assert ran(timed) == []
    assert [*fired(timed).values()] == [OPENS]
    assert timedelta(0) <= timed.get(sent.id).deadline - OPENS < timedelta(seconds=5)


def test_hours_of_a_schedule_are_in_its_zone_and_can_be_set(queue):
    day = {"cron": "0 22 * * *", "tz": "Europe/Berlin", "start": START}
    assert queue.schedules.add("report", **day, hours="mon-fri 8:00-21:00") == "new"
    assert queue.schedules.add("report", **day, hours="MON-FRI 08:00-21:00") == "unchanged"
    assert queue.schedules.get("report").hours == "MON-FRI 08:00-21:00"
    assert queue.schedules.set("report", hours="09:00-10:00", tz="Asia/Tokyo") == 1
    sent = queue.schedules.run_now("report")
    assert (queue.get(sent.id).hours, queue.get(sent.id).tz) == ("09:00-10:00", "Asia/Tokyo")
    assert queue.schedules.set("report", hours=None) == 1
    assert queue.schedules.get("report").hours is None


def test_a_declared_schedule_has_hours(timed, clock):
    seen = []
    timed.every("1h", name="report", hours=NIGHT)(lambda message: seen.append(message.id))
    timed.schedules.apply()
    clock.advance(HOUR / 2)
    timed.run(burst=True)
    assert seen == []
    assert [*fired(timed).values()] == [OPENS]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"hours": "8-21"}, "hours must look like '08:00-21:00'"),
        ({"hours": "08:00-21:00", "tz": "Moon"}, "unknown time zone 'Moon'"),
        (
            {"hours": "08:00-21:00", "payload": NewMessage(1, hours="08:00-21:00")},
            "give hours to the schedule or to its message",
        ),
        ({"payload": NewMessage(1, tz="UTC")}, "tz goes with hours"),
    ],
)
def test_hours_that_cannot_be_are_refused(queue, options, text):
    with pytest.raises(ConfigurationError, match=text):
        queue.schedules.add("other", cron="0 22 * * *", **options)
    assert queue.schedules.list() == []
