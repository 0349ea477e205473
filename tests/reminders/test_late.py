"""Events that are made or moved when their reminder was due already."""

from __future__ import annotations

from datetime import timedelta

import pytest

from delayq import ConfigurationError
from delayq.reminders import Calendar, Event
from tests.reminders.conftest import NOW


def event(uid: str, hours: float, summary: str = "S") -> Event:
    return Event(uid, NOW + timedelta(hours=hours), summary)


def delivered(queue) -> list[str]:
    """Take the messages that are due."""
    ids = []
    while True:
        with queue.lease() as message:
            if message is None:
                return sorted(ids)
            ids.append(message.id)


def test_new_event_inside_its_offset_is_reminded_of_at_once(queue, clock):
    calendar = Calendar(queue, "team", "1d")
    for late in (1, 0, 0):
        changes = calendar.update([event("a", 3), event("begun", -1), event("b", 48)])
        assert [one.id for one in changes.late] == ["team/a//1d"] * late
        assert delivered(queue) == ["team/a//1d"] * late
        clock.advance(minutes=10)


def test_only_the_last_reminder_that_has_passed_is_sent(queue):
    calendar = Calendar(queue, "team", ["15m", "1d", "2d", "1w"])
    changes = calendar.update([event("a", 3), event("b", 0.1)])
    assert (len(changes.new), changes.past) == (3, 5)
    assert delivered(queue) == ["team/a//1d", "team/b//15m"]


def test_event_moved_inside_its_offset_is_reminded_of_at_once(queue, clock):
    calendar = Calendar(queue, "team", ["1h", "1d"])
    calendar.update([event("a", 72), event("b", 72)])
    changes = calendar.update([event("a", 5), event("b", 72)])
    assert sorted(one.id for one in changes.moved) == ["team/a//1d", "team/a//1h"]
    assert delivered(queue) == ["team/a//1d"]
    clock.advance(hours=1)
    assert len(calendar.update([event("a", 5), event("b", 72)])) == 0
    assert delivered(queue) == []
    assert len(calendar.update([event("a", 0.5), event("b", 72)]).cancelled) == 1


def test_delivered_reminder_is_not_late(queue, clock):
    calendar = Calendar(queue, "team", ["1h", "1d"])
    calendar.update([event("a", 30)])
    clock.advance(hours=10)
    assert delivered(queue) == ["team/a//1d"]
    for changes in (calendar.update([event("a", 30, "Renamed")]), calendar.update([event("a", 30)], again=True)):
        assert (changes.late, delivered(queue)) == ([], [])


def test_offset_that_is_added_to_a_calendar_sends_nothing_late(queue):
    Calendar(queue, "team", "1h").update([event("a", 30)])
    changes = Calendar(queue, "team", ["1h", "1w"]).update([event("a", 30)])
    assert (changes.late, len(changes), changes.past) == ([], 0, 1)


def test_interrupted_import_sends_a_late_reminder_when_it_is_completed(queue, monkeypatch):
    calendar = Calendar(queue, "team", "1d")

    def dies(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(calendar._producer, "send_many", dies)
        with pytest.raises(KeyboardInterrupt):
            calendar.update([event("a", 3)])
    assert delivered(queue) == []
    assert len(calendar.update([event("a", 3)]).late) == 1
    assert delivered(queue) == ["team/a//1d"]


def test_late_reminder_waits_for_the_end_of_the_quiet_hours(queue, clock):
    calendar = Calendar(queue, "team", "1d", quiet="22:00-07:00")  # it is midnight
    calendar.update([event("a", 8), event("b", 2)])
    assert delivered(queue) == ["team/b//1d"]
    assert len(calendar.update([event("a", 8), event("b", 2)])) == 0
    clock.advance(hours=7)
    assert delivered(queue) == ["team/a//1d"]


@pytest.mark.parametrize(("late", "listed"), [("skip", 0), ("note", 1)])
def test_late_reminder_can_be_skipped_or_listed(queue, late, listed):
    changes = Calendar(queue, "team", "1d", late=late).update([event("a", 3)])
    assert (len(changes.late), changes.past, len(changes)) == (listed, 1, 0)
    assert delivered(queue) == []


def test_unknown_choice_is_refused(queue):
    with pytest.raises(ConfigurationError, match="late must be 'now', 'skip' or 'note', not 'later'"):
        Calendar(queue, "team", "1d", late="later")
