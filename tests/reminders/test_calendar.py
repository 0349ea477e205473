"""A calendar's reminders in a queue: what is written, what is not, and what a cut in between leaves."""

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
from delayq.reminders import AsyncCalendar, Calendar, Event, calendars
from delayq.reminders import carrying_out as carrying
from delayq.reminders.planning import plan
from delayq.values import Call
from tests.reminders.conftest import NOW, Clock, ics, read, set_clock


def event(uid: str, hours: float = 48, summary: str = "S", **more: Any) -> Event:
    """Return an event so many hours after `NOW`."""
    return Event(uid, NOW + timedelta(hours=hours), summary, **more)


def pending(queue: DelayQueue[Any]) -> dict[str, tuple[float, Any]]:
    """Return what waits in a queue: by id the hours from `NOW` until it is due, and what it is about."""
    messages = queue.list(State.PENDING, limit=1000).messages
    return {one.id: ((one.due - NOW) / timedelta(hours=1), one.payload["summary"]) for one in messages}


def numbers(changes: Any) -> str:
    """Return what an import did, in a line."""
    lists = {name: len(getattr(changes, name)) for name in ("new", "moved", "changed", "cancelled", "refused")}
    told = lists | {name: getattr(changes, name) for name in ("unchanged", "past", "spared")}
    return " ".join(f"{name} {number}" for name, number in told.items() if number)


@pytest.fixture
def calendar(queue):
    """Reminds an hour before."""
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


def test_where_nothing_has_changed_nothing_is_written(queue, calendar):
    calendar.update([event("a"), event("b")])
    before = queue.stats().totals, queue._executor.run([queue._tools.calls.plans()])
    calendar.update([event("a"), event("b")])
    calendar.replan()
    assert (queue.stats().totals, queue._executor.run([queue._tools.calls.plans()])) == before


def test_a_preview_writes_nothing(queue, calendar):
    assert numbers(calendar.preview([event("a")])) == "new 1"
    assert pending(queue) == {}
    assert calendar.info() is None
    calendar.update([event("a")])
    assert numbers(calendar.preview([event("b")])) == "new 1 cancelled 1"
    assert list(pending(queue)) == ["team/a//1h"]


def test_other_offsets_take_the_place_of_the_first(queue, calendar):
    calendar.update([event("a")])
    changes = Calendar(queue, "team", ["2h", "1 day before at 09:00"]).update([event("a")])
    assert numbers(changes) == "new 2 cancelled 1"
    assert sorted(pending(queue)) == ["team/a//1d@09:00", "team/a//2h"]


def test_calendars_are_apart(queue, calendar):
    other = Calendar(queue, "other", "1h")
    calendar.update([event("a")])
    other.update([event("a")])
    other.update([])
    assert list(pending(queue)) == ["team/a//1h"]
    assert [(info.name, len(info.reminders)) for info in calendars(queue)] == [("other", 0), ("team", 1)]


def test_what_is_past_is_not_sent(queue, calendar):
    assert numbers(calendar.update([event("begun", -1), event("soon", 0.5), event("later", 2)])) == "new 1 past 1"
    assert list(pending(queue)) == ["team/later//1h"]


def test_what_is_late_within_the_grace_is_sent_at_once(queue):
    calendar = Calendar(queue, "team", "1h", grace="40m")
    changes = calendar.update([event("a", 0.5), event("b", 0.25)])
    assert numbers(changes) == "new 1 past 1"
    with queue.lease() as message:
        assert message.id == "team/a//1h"
    assert numbers(calendar.update([event("a", 0.5), event("b", 0.25)])) == "unchanged 1 past 1"


def test_what_was_delivered_is_sent_again_only_if_its_event_has_moved(queue, calendar, clock):
    calendar.update([event("a", 2)])
    clock.advance(hours=1.5)
    with queue.lease() as message:
        assert message.payload["uid"] == "a"
    assert numbers(calendar.update([event("a", 2)])) == "unchanged 1"
    assert numbers(calendar.update([event("a", 2, "Renamed")])) == "past 1"
    assert pending(queue) == {}
    assert numbers(calendar.update([event("a", 5)])) == "moved 1"
    assert pending(queue) == {"team/a//1h": (4, "S")}


def test_a_reminder_that_waits_for_a_worker_is_left_when_its_event_is_renamed_and_cancelled_when_it_moves(
    queue, calendar, clock
):
    calendar.update([event("a", 2), event("b", 2)])
    clock.advance(hours=1.5)
    assert numbers(calendar.update([event("a", 2, "Renamed"), event("b", 1.9)])) == "cancelled 1 past 2"
    assert pending(queue) == {"team/a//1h": (1, "S")}


def test_an_event_moved_so_near_that_its_time_has_passed(queue, calendar):
    calendar.update([event("a", 48)])
    assert numbers(calendar.update([event("a", 0.5)])) == "cancelled 1 past 1"
    assert pending(queue) == {}


def test_what_has_begun_is_let_alone(queue, calendar, clock):
    """Its reminder may still wait for a worker that was down, and is none of a new plan."""
    calendar.update([event("a", 2), event("b", 48)])
    clock.advance(hours=3)
    assert numbers(calendar.update([event("b", 48)])) == "unchanged 1"
    assert sorted(pending(queue)) == ["team/a//1h", "team/b//1h"]


def test_a_cancelled_event_and_a_removed_one(queue, calendar):
    both = "UID:a\nDTSTART:20270115T090000Z\n", "UID:b\nDTSTART:20270115T090000Z\n"
    calendar.update(read(ics(*both)))
    assert numbers(calendar.update(read(ics(both[0], both[1] + "STATUS:CANCELLED")))) == "cancelled 1 unchanged 1"
    assert numbers(calendar.update(read(ics()))) == "cancelled 1"


def test_an_event_that_cannot_be_read_keeps_its_reminders(queue, calendar):
    good = "UID:a\nDTSTART:20270115T090000Z", "UID:b\nDTSTART:20270115T090000Z", "UID:c\nDTSTART:20270115T090000Z"
    calendar.update(read(ics(*good)))
    reading = read(ics(good[0].replace("DTSTART:2027", "DTSTART:Z"), good[1]))
    assert numbers(calendar.update(reading)) == "cancelled 1 unchanged 1 spared 1"
    assert sorted(pending(queue)) == ["team/a//1h", "team/b//1h"]


def test_of_a_broken_event_the_uid_may_have_to_be_made_plain(queue, calendar):
    event = "UID:a\\,b\\;c\nDTSTART:20270115T090000Z\nSUMMARY:One\\, two"
    calendar.update(read(ics(event)))
    reading = read(ics(event.replace("202701", "202713")))
    assert (reading.problems[0].event, reading.problems[0].uid) == ("One, two", "a,b;c")
    assert numbers(calendar.update(reading)) == "spared 1"


def test_a_problem_that_hides_no_event_spares_nothing(queue, calendar):
    head = "X-WR-TIMEZONE:Mars/Olympus"
    calendar.update(read(ics("UID:a\nDTSTART:20270115T090000Z", "UID:b\nDTSTART:20270115T090000Z", head=head)))
    assert (
        numbers(calendar.update(read(ics("UID:a\nDTSTART:20270115T090000Z", head=head)))) == "cancelled 1 unchanged 1"
    )


def test_a_file_that_is_cut_off_cancels_nothing(queue, calendar):
    data = ics(*(f"UID:{uid}\nDTSTART:20270115T090000Z" for uid in "abcd"))
    calendar.update(read(data))
    assert numbers(calendar.update(read(data[: len(data) // 2]))) == "unchanged 1 spared 3"
    assert len(pending(queue)) == 4
    assert numbers(calendar.update(read(data))) == "unchanged 4"


def test_a_reminder_that_is_being_processed_is_refused_and_sent_by_the_next_import(queue, calendar, clock):
    calendar.update([event("a", 2)])
    clock.advance(hours=1.2)
    with queue.lease():
        changes = calendar.update([event("a", 9)])
        assert (numbers(changes), changes.refused) == ("refused 1", ["team/a//1h"])
    assert numbers(calendar.update([event("a", 9)])) == "new 1"
    assert pending(queue) == {"team/a//1h": (8, "S")}


def test_forgotten(queue, calendar, clock):
    calendar.update([event("a"), event("b")])
    assert numbers(calendar.forget()) == "cancelled 2"
    assert (pending(queue), calendar.info(), calendars(queue)) == ({}, None, [])
    assert numbers(calendar.forget()) == ""
    calendar.update([event("soon", 1.1)])
    clock.advance(hours=2)
    assert numbers(calendar.forget()) == "cancelled 1"  # it still waited for a worker
    assert numbers(calendar.update([event("a")])) == "new 1"


def test_sent_again_after_the_queue_was_purged(queue, calendar):
    calendar.update([event("a"), event("b")])
    queue.purge()
    assert numbers(calendar.update([event("a"), event("b")])) == "unchanged 2"
    assert numbers(calendar.update([event("a"), event("b")], again=True)) == "changed 2"
    assert len(pending(queue)) == 2


def test_again_takes_away_what_nobody_remembers(queue, calendar):
    calendar.update([event("a"), event("b")])
    queue.send_delay_msg({"summary": "stray"}, "1h", id="team/z//1h")
    queue.send_delay_msg({"summary": "another's"}, "1h", id="teams/z//1h")
    assert numbers(calendar.update([event("a")], again=True)) == "changed 1 cancelled 2"
    assert sorted(pending(queue)) == ["team/a//1h", "teams/z//1h"]


def test_several_at_a_time_leave_what_one_of_them_wanted(url, clock):
    wanted = [[event(uid, hours) for uid in uids] for uids, hours in (("abc", 10), ("bcd", 20), ("aef", 30))]

    def bring(events: list[Event]) -> None:
        with DelayQueue("reminders", url=url) as own:
            for _ in range(6):
                with suppress(CalendarChangedError):
                    Calendar(set_clock(own, clock), "team", "1h").update(events)

    with DelayQueue("reminders", url=url) as queue, ThreadPoolExecutor(3) as pool:
        set_clock(queue, clock)
        list(pool.map(bring, wanted))
        calendar = Calendar(queue, "team", "1h")
        calendar.update(wanted[0], again=True)  # also takes away what one has sent that gave up
        assert {id: hours for id, (hours, _) in pending(queue).items()} == {f"team/{uid}//1h": 9 for uid in "abc"}
        assert calendar.info().finished


def test_what_is_kept_is_shown(queue):
    calendar = Calendar(queue, "team", ["1h", "1d"], quiet="22:00-07:00", tz="Europe/Berlin")
    calendar.update([event("b", 60), event("a", 50)])
    info = calendar.info()
    assert (info.name, info.changed, info.finished) == ("team", NOW, True)
    assert (info.before, info.quiet, info.tz) == (["1h", "1d"], "22:00-07:00", "Europe/Berlin")
    assert [one.due for one in info.reminders] == sorted(one.due for one in info.reminders)
    assert calendar.now() == NOW


def test_messages_have_the_retries_that_are_asked_for(queue):
    Calendar(queue, "team", "1h", retries=9).update([event("a")])
    assert queue.get("team/a//1h").retries_left == 9
    with pytest.raises(ConfigurationError):
        Calendar(queue, "team", "1h", retries=-1)


def test_progress_is_told(queue, calendar, monkeypatch):
    monkeypatch.setattr(carrying, "AT_ONCE", 2)
    told = []
    calendar.update([event(uid) for uid in "abcde"], on_progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 5), (2, 5), (4, 5), (5, 5)]


# Cut off in between


class CutOffError(Exception):
    """The process ends here."""


def cut(operation: Any, after: int) -> Any:
    """Return an operation that ends after so many round trips that write."""
    step = next(operation)
    while True:
        calls = list(step)
        if any(isinstance(call, Call) and call.script.executes_once for call in calls):
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
def test_an_import_that_was_cut_off_is_made_good_by_the_next(queue, monkeypatch, after, then):
    monkeypatch.setattr(carrying, "AT_ONCE", 1)
    calendar = Calendar(queue, "team", "1h")
    calendar.update(FIRST)
    with pytest.raises(CutOffError):
        queue._perform(cut(calendar._update(SECOND, again=False, on_progress=None), after))
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
    wanted = {"the same again": SECOND, "another": third, "planned again": SECOND if after else FIRST}.get(then, [])
    found = pending(queue)
    with DelayQueue("fresh", url="memory://") as fresh:
        Calendar(set_clock(fresh, Clock(NOW)), "team", "1h").update(wanted)
        assert found == pending(fresh)
        fresh.purge()
        Calendar(fresh, "team", "1h").forget()
    info = calendar.info()
    assert info is None or (info.finished and {one.id for one in info.reminders} == set(found))


def test_what_cannot_be_read_after_a_cut_is_sent_as_it_was_noted(queue, calendar):
    good = ics("UID:a\nDTSTART:20270115T090000Z\nSUMMARY:New")
    with pytest.raises(CutOffError):
        queue._perform(cut(calendar._update(read(good), again=False, on_progress=None), 1))
    assert pending(queue) == {}
    assert numbers(calendar.update(read(good.replace(b"DTSTART:", b"DTSTART:X")))) == "changed 1 spared 1"
    assert [summary for _, summary in pending(queue).values()] == ["New"]
    assert calendar.info().finished


def test_another_import_in_between_is_noticed_and_the_plan_made_anew(queue, calendar, monkeypatch):
    calendar.update(FIRST)
    others = iter([SECOND, [event("g")]])

    def planned(*arguments: Any, **options: Any) -> Any:
        for theirs in others:
            with monkeypatch.context() as patch:
                patch.setattr(carrying, "plan", plan)
                Calendar(queue, "team", "1h").update(theirs)
            break
        return plan(*arguments, **options)

    monkeypatch.setattr(carrying, "plan", planned)
    assert numbers(calendar.update([event("h")])) == "new 1 cancelled 1"
    assert set(pending(queue)) == {"team/h//1h"}
    assert calendar.info().finished


def rest(operation: Any, answers: Any) -> Any:
    """Return what is left of an operation."""
    try:
        while True:
            answers = yield operation.send(answers)
    except StopIteration as end:
        return end.value


def test_another_import_while_messages_are_sent_is_noticed_too(queue, calendar):
    calendar.update(FIRST)
    halves = cut(calendar._update([event("h")], again=False, on_progress=None), 99)
    answers = queue._executor.run(next(halves))
    for _ in range(2):  # the plan is noted, and the first message cancelled
        answers = queue._executor.run(halves.send(answers))
    Calendar(queue, "team", "1h").update(SECOND)
    queue._perform(rest(halves, answers))
    assert set(pending(queue)) == {"team/h//1h"}
    assert calendar.info().finished


def test_one_that_others_always_come_before_gives_up(queue, calendar, monkeypatch):
    calendar.update(FIRST)
    keep = type(queue._tools.calls).keep_plan
    monkeypatch.setattr(
        type(queue._tools.calls), "keep_plan", lambda self, name, revision, plan: keep(self, name, revision + 1, plan)
    )
    with pytest.raises(CalendarChangedError, match="calendar team is being imported by others"):
        calendar.update(SECOND)
    assert set(pending(queue)) == {f"team/{uid}//1h" for uid in "abcd"}


events = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(-2, 60), st.sampled_from(["S", "T"])))
offsets = st.lists(st.sampled_from(["0m", "1h", "1d", "1d@09:00"]), min_size=1, max_size=3)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(events, offsets), min_size=2, max_size=4))
def test_after_any_imports_a_queue_holds_what_the_last_alone_would_have_left(imports):
    """All at one time, so that nothing becomes past in between."""
    with DelayQueue("several", url="memory://") as several, DelayQueue("alone", url="memory://") as alone:
        for queue in (several, alone):
            set_clock(queue, Clock(NOW))
        for given_events, before in imports:
            made = [event(uid, hours, summary) for uid, (hours, summary) in given_events.items()]
            Calendar(several, "team", before).update(made)
        Calendar(alone, "team", before).update(made)
        assert pending(several) == pending(alone)
        assert not Calendar(several, "team", before).preview(made)
        for queue in (several, alone):
            Calendar(queue, "team", before).forget()
            assert pending(queue) == {}


def test_asyncio(url, clock):
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
