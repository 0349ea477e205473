"""Updates of a calendar: what they send and cancel, also when interrupted or concurrent."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delayq import AsyncDelayQueue, CalendarChangedError, ConfigurationError, DelayQueue, State
from delayq.broker.requests import ScriptCall
from delayq.reminders import AsyncCalendar, Calendar, Event, calendars
from delayq.reminders.plan_store import keep_plan_call, read_plans
from delayq.reminders.planner import plan
from tests.reminders.conftest import NOW, Clock, ics, read, set_clock


def event(uid: str, hours: float = 48, summary: str = "S", **more: Any) -> Event:
    """Return an event some hours after `NOW`."""
    return Event(uid, NOW + timedelta(hours=hours), summary, **more)


def pending(queue: DelayQueue[Any]) -> dict[str, tuple[float, Any]]:
    """Return the waiting messages by id: hours from `NOW` until they are due, and their summaries."""
    messages = [one for state in (State.READY, State.PENDING) for one in queue.list(state, limit=1000).messages]
    return {one.id: ((one.due - NOW) / timedelta(hours=1), one.payload["summary"]) for one in messages}


def numbers(changes: Any) -> str:
    """Return the changes of an import as one line."""
    lists = {name: len(getattr(changes, name)) for name in ("new", "moved", "changed", "cancelled", "refused")}
    counts = lists | {name: getattr(changes, name) for name in ("unchanged", "past", "spared")}
    return " ".join(f"{name} {number}" for name, number in counts.items() if number)


@pytest.fixture
def calendar(queue):
    """A calendar with reminders one hour before."""
    return Calendar(queue, "team", "1h")


def test_importing_again_changes_only_what_changed(queue, calendar):
    assert numbers(calendar.update([event("a"), event("b"), event("c"), event("d")])) == "new 4"
    assert pending(queue)["team/a//1h"] == (47, "S")
    assert numbers(calendar.update([event("a"), event("b"), event("c"), event("d")])) == "unchanged 4"
    changes = calendar.update([event("a"), event("b", 50), event("c", summary="Other"), event("e")])
    assert numbers(changes) == "new 1 moved 1 changed 1 cancelled 1 unchanged 1"
    assert pending(queue) == {
        "team/a//1h": (47, "S"),
        "team/b//1h": (49, "S"),
        "team/c//1h": (47, "Other"),
        "team/e//1h": (47, "S"),
    }


def test_unchanged_import_writes_nothing(queue, calendar):
    calendar.update([event("a"), event("b")])
    before = queue.stats().totals, queue.executor.run([read_plans(queue.context.calls)])
    calendar.update([event("a"), event("b")])
    calendar.replan()
    assert (queue.stats().totals, queue.executor.run([read_plans(queue.context.calls)])) == before


def test_preview_writes_nothing(queue, calendar):
    assert numbers(calendar.preview([event("a")])) == "new 1"
    assert pending(queue) == {}
    assert calendar.info() is None
    calendar.update([event("a")])
    assert numbers(calendar.preview([event("b")])) == "new 1 cancelled 1"
    assert list(pending(queue)) == ["team/a//1h"]


def test_changed_offsets_replace_the_old_ones(queue, calendar):
    calendar.update([event("a")])
    changes = Calendar(queue, "team", ["2h", "1 day before at 09:00"]).update([event("a")])
    assert numbers(changes) == "new 2 cancelled 1"
    assert sorted(pending(queue)) == ["team/a//1d@09:00", "team/a//2h"]


def test_calendars_do_not_affect_each_other(queue, calendar):
    other = Calendar(queue, "other", "1h")
    calendar.update([event("a")])
    other.update([event("a")])
    other.update([])
    assert list(pending(queue)) == ["team/a//1h"]
    assert [(info.name, len(info.reminders)) for info in calendars(queue)] == [("other", 0), ("team", 1)]


def test_past_reminder_can_be_skipped(queue):
    calendar = Calendar(queue, "team", "1h", late="skip")
    assert numbers(calendar.update([event("begun", -1), event("soon", 0.5), event("later", 2)])) == "new 1 past 1"
    assert list(pending(queue)) == ["team/later//1h"]


def test_late_reminder_within_grace_is_sent_at_once(queue):
    calendar = Calendar(queue, "team", "1h", grace="40m", late="skip")
    changes = calendar.update([event("a", 0.5), event("b", 0.25)])
    assert numbers(changes) == "new 1 past 1"
    with queue.lease() as message:
        assert message.id == "team/a//1h"
    assert numbers(calendar.update([event("a", 0.5), event("b", 0.25)])) == "unchanged 1 past 1"


def test_delivered_reminder_is_sent_again_only_if_its_event_moved(queue, calendar, clock):
    calendar.update([event("a", 2)])
    clock.advance(hours=1.5)
    with queue.lease() as message:
        assert message.payload["uid"] == "a"
    assert numbers(calendar.update([event("a", 2)])) == "unchanged 1"
    assert numbers(calendar.update([event("a", 2, "Renamed")])) == "past 1"
    assert pending(queue) == {}
    assert numbers(calendar.update([event("a", 5)])) == "moved 1"
    assert pending(queue) == {"team/a//1h": (4, "S")}


def test_due_reminder_is_cancelled_only_if_its_event_moves(queue, clock):
    calendar = Calendar(queue, "team", "1h", late="skip")
    calendar.update([event("a", 2), event("b", 2)])
    clock.advance(hours=1.5)
    assert numbers(calendar.update([event("a", 2, "Renamed"), event("b", 1.9)])) == "cancelled 1 past 2"
    assert pending(queue) == {"team/a//1h": (1, "S")}


def test_reminder_is_cancelled_if_the_moved_event_is_too_near(queue):
    calendar = Calendar(queue, "team", "1h", late="skip")
    calendar.update([event("a", 48)])
    assert numbers(calendar.update([event("a", 0.5)])) == "cancelled 1 past 1"
    assert pending(queue) == {}


def test_reminders_of_a_started_event_are_not_cancelled(queue, calendar, clock):
    """Its reminder may still wait for a worker that was down, and is not in the new plan."""
    calendar.update([event("a", 2), event("b", 48)])
    clock.advance(hours=3)
    assert numbers(calendar.update([event("b", 48)])) == "unchanged 1"
    assert sorted(pending(queue)) == ["team/a//1h", "team/b//1h"]


def test_reminders_of_cancelled_and_removed_events_are_cancelled(queue, calendar):
    both = "UID:a\nDTSTART:20270115T090000Z\n", "UID:b\nDTSTART:20270115T090000Z\n"
    calendar.update(read(ics(*both)))
    assert numbers(calendar.update(read(ics(both[0], both[1] + "STATUS:CANCELLED")))) == "cancelled 1 unchanged 1"
    assert numbers(calendar.update(read(ics()))) == "cancelled 1"


def test_unreadable_event_keeps_its_reminders(queue, calendar):
    good = "UID:a\nDTSTART:20270115T090000Z", "UID:b\nDTSTART:20270115T090000Z", "UID:c\nDTSTART:20270115T090000Z"
    calendar.update(read(ics(*good)))
    reading = read(ics(good[0].replace("DTSTART:2027", "DTSTART:Z"), good[1]))
    assert numbers(calendar.update(reading)) == "cancelled 1 unchanged 1 spared 1"
    assert sorted(pending(queue)) == ["team/a//1h", "team/b//1h"]


def test_broken_event_with_an_escaped_uid_keeps_its_reminders(queue, calendar):
    event = "UID:a\\,b\\;c\nDTSTART:20270115T090000Z\nSUMMARY:One\\, two"
    calendar.update(read(ics(event)))
    reading = read(ics(event.replace("202701", "202713")))
    assert (reading.problems[0].event, reading.problems[0].uid) == ("One, two", "a,b;c")
    assert numbers(calendar.update(reading)) == "spared 1"


def test_problem_that_hides_no_event_cancels_as_usual(queue, calendar):
    head = "X-WR-TIMEZONE:Mars/Olympus"
    calendar.update(read(ics("UID:a\nDTSTART:20270115T090000Z", "UID:b\nDTSTART:20270115T090000Z", head=head)))
    assert (
        numbers(calendar.update(read(ics("UID:a\nDTSTART:20270115T090000Z", head=head)))) == "cancelled 1 unchanged 1"
    )


def test_truncated_file_cancels_nothing(queue, calendar):
    data = ics(*(f"UID:{uid}\nDTSTART:20270115T090000Z" for uid in "abcd"))
    calendar.update(read(data))
    assert numbers(calendar.update(read(data[: len(data) // 2]))) == "unchanged 1 spared 3"
    assert len(pending(queue)) == 4
    assert numbers(calendar.update(read(data))) == "unchanged 4"


def test_reminder_moved_while_it_is_delivered_is_delivered_again_at_the_last_time(queue, calendar, clock):
    calendar.update([event("a", 2)])
    clock.advance(hours=1.2)
    with queue.lease():
        for hour in range(5, 15):
            assert numbers(calendar.update([event("a", hour)])) == "moved 1"
        assert pending(queue) == {}
    assert pending(queue) == {"team/a//1h": (13, "S")}
    assert numbers(calendar.update([event("a", 14)])) == "unchanged 1"


def test_reminder_whose_event_is_removed_while_it_is_delivered_is_not_delivered_again(queue, calendar, clock):
    calendar.update([event("a", 2)])
    clock.advance(hours=1.2)
    with queue.lease():
        calendar.update([event("a", 9)])
        assert numbers(calendar.update([])) == "cancelled 1"
    assert queue.counts().living == 0


def test_settled_reminder_is_refused_and_sent_by_an_import_after_the_dedupe_window(queue, calendar, clock):
    calendar.update([event("a", 2)])
    queue.executor.call(queue.context.calls.configure(events=None, dedupe_window=1_800_000, dedupe_max=100))
    clock.advance(hours=1.2)
    with queue.lease():
        pass
    changes = calendar.update([event("a", 9)])
    assert (numbers(changes), changes.refused) == ("refused 1", ["team/a//1h"])
    clock.advance(hours=1)
    assert numbers(calendar.update([event("a", 9)])) == "new 1"
    assert pending(queue) == {"team/a//1h": (8, "S")}


def test_forget_cancels_all_reminders(queue, calendar, clock):
    calendar.update([event("a"), event("b")])
    assert numbers(calendar.forget()) == "cancelled 2"
    assert (pending(queue), calendar.info(), calendars(queue)) == ({}, None, [])
    assert numbers(calendar.forget()) == ""
    calendar.update([event("soon", 1.1)])
    clock.advance(hours=2)
    assert numbers(calendar.forget()) == "cancelled 1"  # it still waited for a worker
    assert numbers(calendar.update([event("a")])) == "new 1"


def test_again_sends_reminders_after_a_purge(queue, calendar):
    calendar.update([event("a"), event("b")])
    queue.purge()
    assert numbers(calendar.update([event("a"), event("b")])) == "unchanged 2"
    assert numbers(calendar.update([event("a"), event("b")], again=True)) == "changed 2"
    assert len(pending(queue)) == 2


def test_again_cancels_reminders_missing_from_the_plan(queue, calendar):
    calendar.update([event("a"), event("b")])
    queue.send_delay_msg({"summary": "stray"}, "1h", id="team/z//1h")
    queue.send_delay_msg({"summary": "another's"}, "1h", id="teams/z//1h")
    assert numbers(calendar.update([event("a")], again=True)) == "changed 1 cancelled 2"
    assert sorted(pending(queue)) == ["team/a//1h", "teams/z//1h"]


def test_concurrent_updates_leave_the_result_of_one(url, clock):
    expected = [[event(uid, hours) for uid in uids] for uids, hours in (("abc", 10), ("bcd", 20), ("aef", 30))]

    def run_updates(events: list[Event]) -> None:
        with DelayQueue("reminders", url=url) as own:
            for _ in range(6):
                with suppress(CalendarChangedError):
                    Calendar(set_clock(own, clock), "team", "1h").update(events)

    with DelayQueue("reminders", url=url) as queue, ThreadPoolExecutor(3) as pool:
        set_clock(queue, clock)
        list(pool.map(run_updates, expected))
        calendar = Calendar(queue, "team", "1h")
        calendar.update(expected[0], again=True)  # also cancels the messages of an update that gave up
        assert {id: hours for id, (hours, _) in pending(queue).items()} == {f"team/{uid}//1h": 9 for uid in "abc"}
        assert calendar.info().finished


def test_info_shows_the_stored_plan(queue):
    calendar = Calendar(queue, "team", ["1h", "1d"], quiet="22:00-07:00", tz="Europe/Berlin")
    calendar.update([event("b", 60), event("a", 50)])
    info = calendar.info()
    assert (info.name, info.changed, info.finished) == ("team", NOW, True)
    assert (info.before, info.quiet, info.tz) == (["1h", "1d"], "22:00-07:00", "Europe/Berlin")
    assert [one.due for one in info.reminders] == sorted(one.due for one in info.reminders)
    assert calendar.now() == NOW


def test_messages_have_the_given_retries(queue):
    Calendar(queue, "team", "1h", retries=9).update([event("a")])
    assert queue.get("team/a//1h").retries_left == 9
    with pytest.raises(ConfigurationError):
        Calendar(queue, "team", "1h", retries=-1)


def test_progress_is_reported(queue, calendar, monkeypatch):
    monkeypatch.setattr("delayq.reminders.calendar.PROGRESS_EVERY", 2)
    reported = []
    calendar.update([event(uid) for uid in "abcde"], on_progress=lambda done, total: reported.append((done, total)))
    assert reported == [(0, 5), (2, 5), (4, 5), (5, 5)]


# Interruptions


class CutOffError(Exception):
    """Plays the end of the process."""


def interrupt(operation: Any, after: int) -> Any:
    """Return an operation that is interrupted after some round trips that write."""
    step = next(operation)
    while True:
        calls = list(step)
        if any(isinstance(call, ScriptCall) and call.script.executes_once for call in calls):
            if not after:
                raise CutOffError
            after -= 1
        try:
            step = operation.send((yield calls))
        except StopIteration as end:
            return end.value


FIRST = [event("a"), event("b"), event("c"), event("d")]
SECOND = [event("a"), event("b", 60), event("c", summary="Other"), event("e")]


@pytest.mark.parametrize("after", range(5))
@pytest.mark.parametrize("then", ["the same again", "another", "nothing", "planned again", "forgotten"])
def test_interrupted_import_is_completed_by_the_next(queue, monkeypatch, after, then):
    monkeypatch.setattr("delayq.reminders.calendar.PROGRESS_EVERY", 1)
    calendar = Calendar(queue, "team", "1h")
    calendar.update(FIRST)
    with pytest.raises(CutOffError):
        queue._perform(interrupt(calendar._update(SECOND, again=False, on_progress=None), after))
    assert calendar.info().finished is (after == 0)
    third = [event("a", 70), event("f")]
    if then == "the same again":
        calendar.update(SECOND)
    elif then == "another":
        calendar.update(third)
    elif then == "nothing":
        calendar.update([])
    elif then == "planned again":
        calendar.replan()
    else:
        calendar.forget()
    expected = {"the same again": SECOND, "another": third, "planned again": SECOND if after else FIRST}.get(then, [])
    found = pending(queue)
    with DelayQueue("fresh", url="memory://") as fresh:
        Calendar(set_clock(fresh, Clock(NOW)), "team", "1h").update(expected)
        assert found == pending(fresh)
        fresh.purge()
        Calendar(fresh, "team", "1h").forget()
    info = calendar.info()
    assert info is None or (info.finished and {one.id for one in info.reminders} == set(found))


def test_unreadable_event_after_an_interruption_is_sent_as_recorded(queue, calendar):
    good = ics("UID:a\nDTSTART:20270115T090000Z\nSUMMARY:New")
    with pytest.raises(CutOffError):
        queue._perform(interrupt(calendar._update(read(good), again=False, on_progress=None), 1))
    assert pending(queue) == {}
    assert numbers(calendar.update(read(good.replace(b"DTSTART:", b"DTSTART:X")))) == "changed 1 spared 1"
    assert [summary for _, summary in pending(queue).values()] == ["New"]
    assert calendar.info().finished


def test_interfering_import_causes_a_new_plan(queue, calendar, monkeypatch):
    calendar.update(FIRST)
    others = iter([SECOND, [event("g")]])

    def planned(*arguments: Any, **options: Any) -> Any:
        for theirs in others:
            with monkeypatch.context() as patch:
                patch.setattr("delayq.reminders.calendar.plan", plan)
                Calendar(queue, "team", "1h").update(theirs)
            break
        return plan(*arguments, **options)

    monkeypatch.setattr("delayq.reminders.calendar.plan", planned)
    assert numbers(calendar.update([event("h")])) == "new 1 cancelled 1"
    assert set(pending(queue)) == {"team/h//1h"}
    assert calendar.info().finished


def rest(operation: Any, replies: Any) -> Any:
    """Run the rest of an operation."""
    try:
        while True:
            replies = yield operation.send(replies)
    except StopIteration as end:
        return end.value


def test_interfering_import_during_sending_is_noticed(queue, calendar):
    calendar.update(FIRST)
    halves = interrupt(calendar._update([event("h")], again=False, on_progress=None), 99)
    replies = queue.executor.run(next(halves))
    for _ in range(2):  # the plan is stored, and the first message cancelled
        replies = queue.executor.run(halves.send(replies))
    Calendar(queue, "team", "1h").update(SECOND)
    queue._perform(rest(halves, replies))
    assert set(pending(queue)) == {"team/h//1h"}
    assert calendar.info().finished


def test_update_gives_up_after_repeated_interference(queue, calendar, monkeypatch):
    calendar.update(FIRST)
    monkeypatch.setattr(
        "delayq.reminders.calendar.keep_plan_call",
        lambda calls, name, revision, plan: keep_plan_call(calls, name, revision + 1, plan),
    )
    with pytest.raises(CalendarChangedError, match="calendar team is being updated by other processes"):
        calendar.update(SECOND)
    assert set(pending(queue)) == {f"team/{uid}//1h" for uid in "abcd"}


events = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(-2, 60), st.sampled_from(["S", "T"])))
offsets = st.lists(st.sampled_from(["0m", "1h", "1d", "1d@09:00"]), min_size=1, max_size=3)


@pytest.mark.long
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(events, offsets), min_size=2, max_size=4))
def test_series_of_imports_has_the_result_of_the_last_one(imports):
    """All imports happen at the same time, so that no reminder becomes past in between."""
    with DelayQueue("several", url="memory://") as several, DelayQueue("alone", url="memory://") as alone:
        for queue in (several, alone):
            set_clock(queue, Clock(NOW))
        for given_events, before in imports:
            made = [event(uid, hours, summary) for uid, (hours, summary) in given_events.items()]
            Calendar(several, "team", before, late="skip").update(made)
        Calendar(alone, "team", before, late="skip").update(made)
        assert pending(several) == pending(alone)
        assert not Calendar(several, "team", before, late="skip").preview(made)
        for queue in (several, alone):
            Calendar(queue, "team", before, late="skip").forget()
            assert pending(queue) == {}


def test_asyncio_calendar(url, clock):
    async def main():
        async with AsyncDelayQueue("reminders", url=url) as queue:
            set_clock(queue, clock)
            calendar = AsyncCalendar(queue, "team", "1h")
            assert await calendar.now() == NOW
            assert numbers(await calendar.preview([event("a")])) == "new 1"
            assert numbers(await calendar.update([event("a"), event("b")])) == "new 2"
            assert numbers(await calendar.update([event("a")])) == "cancelled 1 unchanged 1"
            assert numbers(await calendar.replan()) == "unchanged 1"
            assert len((await calendar.info()).reminders) == 1
            assert numbers(await calendar.forget()) == "cancelled 1"

    asyncio.run(main())
