"""A calendar follows the clock, and a drain delivers its reminders at their times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from delayq.reminders import Calendar, Event
from delayq.testing import assert_nothing_scheduled, assert_scheduled, drain

MONDAY = datetime(2027, 3, 22, 8, tzinfo=UTC)
START = datetime(2027, 3, 29, 14, tzinfo=ZoneInfo("Europe/Berlin"))  # the clocks go forward on the day before


def test_reminders_are_delivered_before_their_event(delayq_clock, delayq_queue):
    delayq_clock.move_to(MONDAY)
    delayq_queue.callback(lambda message: None)
    calendar = Calendar(delayq_queue, "team", before=["15m", "1 day before at 09:00"])
    assert calendar.now() == MONDAY

    calendar.update([Event("kick-off", START, summary="Kick-off")])
    assert_scheduled(delayq_queue, at=START - timedelta(minutes=15))
    assert_scheduled(delayq_queue, at=datetime(2027, 3, 28, 7, tzinfo=UTC))
    assert [(one.payload["offset"], one.at) for one in drain(delayq_queue)] == [
        ("1d@09:00", datetime(2027, 3, 28, 7, tzinfo=UTC)),
        ("15m", START - timedelta(minutes=15)),
    ]


def test_started_event_by_the_clock_has_no_reminder(delayq_clock, delayq_queue):
    delayq_clock.move_to(START + timedelta(hours=1))
    calendar = Calendar(delayq_queue, "team", before="15m")
    calendar.update([Event("kick-off", START, summary="Kick-off")])
    assert_nothing_scheduled(delayq_queue)
