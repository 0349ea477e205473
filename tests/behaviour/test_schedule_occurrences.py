"""Single occurrences of a schedule: some are skipped or moved, and past ones are sent after all."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from delayq import ConfigurationError, Discard, Reject, UnknownOccurrenceError, UnknownScheduleError
from delayq.broker.event_log import log_action_call, trim_events
from delayq.broker.transport.operation import single
from tests.behaviour.places import everywhere
from tests.support.schedules import DAY, HOUR, START, ran
from tests.support.scripts import without_gaps

# Backfill


@everywhere
def test_backfill_sends_each_past_occurrence_once(timed):
    timed.schedules.add("digest", cron="0 9 * * *", tz="Europe/Berlin", payload={"a": 1}, retries=7, headers={"b": "c"})
    done = timed.schedules.backfill("digest", START - 3 * DAY, START + DAY)
    assert [time.isoformat() for time in done.times] == [f"2026-11-{day}T09:00:00+01:00" for day in (17, 18, 19)]
    assert (done.sent, done.existed) == (3, 0)
    message = timed.get("digest@2026-11-18T08:00:00Z")
    assert (message.payload, message.due, message.retries_left) == ({"a": 1}, START - 2 * DAY + HOUR / 2, 7)
    assert message.headers == {"schedule": "digest", "b": "c"}
    again = timed.schedules.backfill("digest", START - 4 * DAY, START)
    assert (again.sent, again.existed) == (1, 3)
    assert ran(timed) == [f"digest@2026-11-{day}T08:00:00Z" for day in (16, 17, 18, 19)]
    assert timed.schedules.get("digest").fired == 0


def test_backfill_begins_with_start_and_ends_before_end(timed):
    timed.schedules.add("sweep", every="1h", start=START - 5 * HOUR, end=START - 2 * HOUR)
    backfill = timed.schedules.backfill
    assert backfill("sweep", START - 4 * HOUR, START - 3 * HOUR, dry_run=True).times == [START - 4 * HOUR]
    assert backfill("sweep", START - 4 * HOUR, START - 4 * HOUR, dry_run=True).times == []
    assert backfill("sweep", START - DAY, START, dry_run=True).times == [START - n * HOUR for n in (5, 4, 3, 2)]
    assert timed.counts().pending == 0


def test_backfill_leaves_to_the_schedule_what_is_due_and_not_fired(timed, clock):
    timed.schedules.add("sweep", every="1h", misfire=9)
    clock.advance(3 * HOUR)  # no consumer was running
    done = timed.schedules.backfill("sweep", START - HOUR, START + 9 * HOUR)
    assert done.times == [START - HOUR / 2]
    assert ran(timed) == [f"sweep@2026-11-20T{hour:02}:00:00Z" for hour in (7, 8, 9, 10)]


def test_backfill_makes_up_for_what_a_pause_and_misfire_left_out(timed, clock):
    timed.schedules.add("sweep", every="1h", misfire="skip", late_after=0, count=1)
    timed.schedules.pause("sweep")
    clock.advance(3 * HOUR)
    assert timed.schedules.backfill("sweep", START, START + DAY).sent == 3
    timed.schedules.resume("sweep")
    assert ran(timed) == [f"sweep@2026-11-20T{hour:02}:00:00Z" for hour in (8, 9, 10)]
    clock.advance(DAY)
    timed.schedules.add("sweep", every="1h", misfire=1, count=1)
    assert len(ran(timed)) == 1  # its count is its own


def test_backfill_sends_nothing_that_was_settled_within_the_dedupe_window(open_queue, clock):
    timed = clock.of(open_queue(dedupe_window="1h"))
    timed.schedules.add("sweep", every="1h")
    assert timed.schedules.backfill("sweep", START - DAY, START).sent == 24
    assert len(ran(timed)) == 24
    again = timed.schedules.backfill("sweep", START - DAY, START)
    assert (again.sent, again.existed) == (0, 24)


@everywhere
def test_backfill_refuses_more_than_its_limit(timed):
    timed.schedules.add("tick", every="1s")
    with pytest.raises(ConfigurationError, match="more than 10,000 occurrences"):
        timed.schedules.backfill("tick", START - DAY, START)
    assert timed.counts().pending == 0
    assert timed.schedules.backfill("tick", START - 3 * HOUR, START, limit=10_800).sent == 10_800


def test_backfill_of_large_payloads_is_sent_in_parts(timed):
    timed.schedules.add("big", every="1h", payload="x" * 400_000)
    assert timed.schedules.backfill("big", START - 5 * HOUR, START).sent == 5


def test_invalid_backfill_is_refused(timed):
    timed.schedules.add("sweep", every="1h")
    for start, end, error in (
        (START, START - HOUR, "end is before start"),
        (datetime(2026, 1, 1), START, "start must carry a time zone"),  # noqa: DTZ001
        (START, datetime(2026, 1, 1), "end must carry a time zone"),  # noqa: DTZ001
    ):
        with pytest.raises(ConfigurationError, match=error):
            timed.schedules.backfill("sweep", start, end)
    with pytest.raises(ConfigurationError, match="limit must be"):
        timed.schedules.backfill("sweep", START - timedelta(1), START, limit=0)
    with pytest.raises(UnknownScheduleError, match="no schedule is named swep"):
        timed.schedules.backfill("swep", START - timedelta(1), START)


# Skip, move and restore


def outcomes(changes):
    return [(change.occurrence.isoformat()[:16], change.outcome) for change in changes]


@everywhere
def test_skipped_occurrence_does_not_fire(timed, clock):
    timed.schedules.add("sweep", every="1h", misfire=99)
    (change,) = timed.schedules.skip("sweep", START + 1.5 * HOUR)
    assert (change.outcome, change.occurrence, change.due) == ("skipped", START + 1.5 * HOUR, None)
    assert timed.schedules.next("sweep", 2) == [START + HOUR / 2, START + 2.5 * HOUR]
    assert timed.schedules.get("sweep").changes == {START + 1.5 * HOUR: None}
    assert outcomes(timed.schedules.skip("sweep", START + 1.5 * HOUR)) == [("2026-11-20T09:00", "unchanged")]
    clock.advance(3 * HOUR)
    assert ran(timed) == [f"sweep@2026-11-20T{hour:02}:00:00Z" for hour in (8, 10)]
    assert timed.schedules.get("sweep").fired == 2


@everywhere
def test_date_skips_all_occurrences_on_it_in_the_zone_of_the_schedule(timed):
    timed.schedules.add("digest", cron="0 0,9 * * *", tz="Europe/Berlin")
    skipped = timed.schedules.skip("digest", date(2026, 12, 24))
    assert outcomes(skipped) == [("2026-12-24T00:00", "skipped"), ("2026-12-24T09:00", "skipped")]
    assert skipped[0].occurrence == datetime(2026, 12, 23, 23, tzinfo=UTC)
    assert {time.day for time in timed.schedules.next("digest", 99) if time.month == 12} == {*range(1, 32)} - {24}
    assert outcomes(timed.schedules.restore("digest", date(2026, 12, 24))) == [
        ("2026-12-24T00:00", "restored"),
        ("2026-12-24T09:00", "restored"),
    ]
    assert len([time for time in timed.schedules.next("digest", 99) if (time.month, time.day) == (12, 24)]) == 2
    assert timed.schedules.get("digest").changes == {}


@everywhere
@pytest.mark.parametrize("to", [0.25, 0.5, 1.5, 2.25, 12])
def test_moved_occurrence_keeps_its_id_and_is_due_at_the_new_time(timed, clock, to):
    timed.schedules.add("sweep", every="1h", misfire=999, late_after="1m")
    moved = timed.schedules.move("sweep", START + 1.5 * HOUR, START + to * HOUR)
    due = START + to * HOUR + (timedelta(milliseconds=1) if to in (0.5, 2.5) else timedelta(0))
    assert (moved.outcome, moved.due) == ("unchanged" if to == 1.5 else "moved", due)
    assert due in timed.schedules.next("sweep", 20)
    seen = []
    timed.callback(lambda message: seen.append((message.id, message.due)))
    for _ in range(20):
        clock.advance(HOUR)
        timed.run(burst=True)
    assert dict(seen)["sweep@2026-11-20T09:00:00Z"] == due
    assert len(seen) == len(dict(seen)) == 20
    assert [due for _, due in seen] == sorted(due for _, due in seen)


def test_moved_occurrence_is_named_by_either_time_and_can_be_restored(timed, clock):
    timed.schedules.add("digest", cron="0 9 * * *", tz="Europe/Berlin", count=2)
    own, new = START + DAY + HOUR / 2, START + 3 * DAY
    assert timed.schedules.move("digest", own, new).outcome == "moved"
    assert timed.schedules.move("digest", new, new + HOUR).occurrence == own
    assert timed.schedules.get("digest").changes == {own: new + HOUR}
    assert [time.day for time in timed.schedules.next("digest", 2)] == [20, 22]
    assert timed.schedules.restore("digest", new + HOUR)[0].outcome == "restored"
    assert [time.day for time in timed.schedules.next("digest", 2)] == [20, 21]


@everywhere
def test_message_of_an_occurrence_that_has_fired_is_cancelled_or_rescheduled(timed, clock):
    timed.schedules.add("sweep", every="1h")
    clock.advance(HOUR / 2)
    timed.callback(lambda message: message.nack(delay="2h"))
    timed.run(burst=True)
    nine = START + HOUR / 2
    moved = timed.schedules.move("sweep", nine, nine + 5 * HOUR)
    assert (moved.outcome, moved.occurrence, moved.due) == ("rescheduled", nine, nine + 5 * HOUR)
    assert timed.get("sweep@2026-11-20T08:00:00Z").due == nine + 5 * HOUR
    (skipped,) = timed.schedules.skip("sweep", nine)
    assert (skipped.outcome, skipped.due) == ("cancelled", None)
    assert timed.get("sweep@2026-11-20T08:00:00Z") is None
    assert outcomes(timed.schedules.skip("sweep", nine)) == [("2026-11-20T08:00", "over")]
    assert timed.schedules.get("sweep").changes == {}
    assert timed.schedules.restore("sweep", nine)[0].outcome == "unchanged"


def test_occurrence_that_has_fired_early_does_not_fire_again(timed, clock):
    timed.schedules.add("sweep", every="1h", misfire=99)
    timed.schedules.move("sweep", START + 3.5 * HOUR, START + HOUR)
    clock.advance(HOUR)
    assert ran(timed) == ["sweep@2026-11-20T08:00:00Z", "sweep@2026-11-20T11:00:00Z"]
    timed.schedules.skip("sweep", START + 1.5 * HOUR)  # which stores the others that still count
    assert outcomes(timed.schedules.restore("sweep", START + 3.5 * HOUR)) == [("2026-11-20T11:00", "over")]
    assert outcomes(timed.schedules.skip("sweep", START + 3.5 * HOUR)) == [("2026-11-20T11:00", "over")]
    clock.advance(4 * HOUR)
    assert ran(timed) == [f"sweep@2026-11-20T{hour:02}:00:00Z" for hour in (10, 12)]


def test_skipped_and_moved_occurrences_stay_so_when_the_schedule_is_added_again(timed, clock, open_queue):
    declaring = clock.of(open_queue())
    declaring.cron("0 * * * *", name="sweep", misfire=99)(print)
    assert declaring.schedules.apply().outcomes == {"sweep": "new"}
    timed.schedules.skip("sweep", START + 1.5 * HOUR)
    timed.schedules.move("sweep", START + 2.5 * HOUR, START + 2.6 * HOUR)
    assert declaring.schedules.apply().outcomes == {"sweep": "unchanged"}
    changes = timed.schedules.get("sweep").changes
    timed.schedules.add("sweep", cron="0 * * * *", payload=2, misfire=99)
    assert timed.schedules.get("sweep").changes == changes
    timed.schedules.add("sweep", cron="0 9 * * *", misfire=99)  # has only one of them
    assert timed.schedules.get("sweep").changes == {START + 1.5 * HOUR: None}
    clock.advance(3 * HOUR)
    timed.schedules.add("sweep", cron="0 * * * *", misfire=99)
    assert timed.schedules.get("sweep").changes == {}


def test_paused_schedule_can_be_changed_and_stays_paused(timed, clock):
    timed.schedules.add("sweep", every="1h")
    timed.schedules.pause("sweep")
    assert timed.schedules.skip("sweep", START + HOUR / 2)[0].outcome == "skipped"
    assert timed.schedules.get("sweep").state == "paused"
    timed.schedules.resume("sweep")
    assert timed.schedules.next("sweep") == [START + 1.5 * HOUR]
    clock.advance(HOUR)
    assert ran(timed) == []


def test_schedule_whose_last_occurrence_is_skipped_has_ended_until_it_is_restored(timed, clock):
    timed.schedules.add("once", every="1h", start=START, end=START + HOUR)
    timed.schedules.skip("once", START + HOUR)
    assert timed.schedules.get("once").state == "ended"
    timed.schedules.restore("once", START + HOUR)
    assert timed.schedules.next("once") == [START + HOUR]
    timed.schedules.move("once", START + HOUR, START + DAY)  # after its end
    clock.advance(DAY)
    assert ran(timed) == ["once@2026-11-20T08:30:00Z"]


def test_ended_schedule_has_nothing_to_skip_or_to_move(timed, clock):
    timed.schedules.add("sweep", every="1h", count=1)
    clock.advance(HOUR)
    assert len(ran(timed)) == 1
    assert outcomes(timed.schedules.skip("sweep", START + 2.5 * HOUR)) == [("2026-11-20T10:00", "over")]
    assert timed.schedules.move("sweep", START + 2.5 * HOUR, START + 5 * HOUR).outcome == "over"


@everywhere
def test_unknown_occurrence_is_refused_with_the_nearest(timed):
    timed.schedules.add("digest", cron="0 9 * * MON-FRI", tz="Europe/Berlin")
    nearest = "the nearest: 2026-11-20T09:00:00+01:00 and 2026-11-23T09:00:00+01:00"
    with pytest.raises(UnknownOccurrenceError) as caught:
        timed.schedules.skip("digest", START + DAY)
    assert str(caught.value) == f"digest has no occurrence at 2026-11-21T07:30:00+00:00; {nearest}"
    with pytest.raises(UnknownOccurrenceError) as caught:
        timed.schedules.restore("digest", date(2026, 11, 22))
    assert str(caught.value) == f"digest has no occurrence on 2026-11-22; {nearest}"
    with pytest.raises(UnknownOccurrenceError):
        timed.schedules.move("digest", START + DAY, START + 2 * DAY)


def test_invalid_change_of_an_occurrence_is_refused(timed, clock):
    timed.schedules.add("tick", every="1m")
    nine = START + HOUR / 2
    for act, error in (
        (lambda: timed.schedules.move("tick", nine, START), "to must be a time that has not passed"),
        (lambda: timed.schedules.move("tick", nine, datetime(2027, 1, 1)), "to must carry a time zone"),  # noqa: DTZ001
        (lambda: timed.schedules.move("tick", nine.date(), START), "occurrence must be a datetime"),
        (lambda: timed.schedules.skip("tick", "2026-11-20"), "occurrence must be a datetime or a date"),
        (lambda: timed.schedules.skip("tick", datetime(2027, 1, 1)), "occurrence must carry a time zone"),  # noqa: DTZ001
        (lambda: timed.schedules.skip("tick", nine.date()), "more than 1,000 occurrences on 2026-11-20"),
    ):
        with pytest.raises(ConfigurationError, match=error):
            act()
    for act in (timed.schedules.skip, timed.schedules.restore):
        with pytest.raises(UnknownScheduleError, match="no schedule is named tock"):
            act("tock", nine)
    assert timed.schedules.get("tick").changes == {}


def test_schedule_has_a_thousand_changes_at_most(timed):
    timed.schedules.add("sweep", every="10m")
    for day in range(1, 7):
        timed.schedules.skip("sweep", (START + day * DAY).date())
    with pytest.raises(ConfigurationError, match="has 1,000 skipped and moved occurrences, which is the most"):
        timed.schedules.skip("sweep", (START + 7 * DAY).date())
    assert len(timed.schedules.get("sweep").changes) == 6 * 144


@everywhere
def test_backfill_leaves_skipped_occurrences_out(timed, clock):
    timed.schedules.add("sweep", every="1h")
    timed.schedules.skip("sweep", START + 1.5 * HOUR)
    timed.schedules.move("sweep", START + 2.5 * HOUR, START + 2.75 * HOUR)
    timed.schedules.pause("sweep")
    clock.advance(4 * HOUR)
    assert timed.schedules.backfill("sweep", START, START + 4 * HOUR).sent == 3
    assert timed.get("sweep@2026-11-20T10:00:00Z").due == START + 2.75 * HOUR


# History


def results(found):
    return [(one.occurrence.hour, one.result, one.attempts) for one in found.occurrences]


@everywhere
def test_history_tells_what_became_of_each_occurrence(open_queue, clock):
    timed = clock.of(open_queue(events=True))
    timed.schedules.add("sweep", every="1h", misfire=99, retries=1)
    timed.schedules.add("sweep-2", every="1h")
    assert timed.schedules.history("sweep").occurrences == []
    fails = {9: ValueError("no such user"), 10: Discard, 11: Reject("too late"), 12: ValueError("no such user")}

    def callback(message):
        if message.headers["schedule"] == "sweep" and message.due.hour in fails and message.attempt == 1:
            raise fails[message.due.hour]

    timed.callback(callback)
    for _ in range(5):
        clock.advance(HOUR)
        timed.run(burst=True)
    timed.schedules.run_now("sweep")
    found = timed.schedules.history("sweep")
    assert results(found) == [
        (12, "retrying", 1),
        (11, "dead", 1),
        (10, "discarded", 1),
        (9, "acked", 2),
        (8, "acked", 1),
    ]
    first = found.occurrences[-1]
    assert (first.id, first.occurrence, first.due) == ("sweep@2026-11-20T08:00:00Z", START + HOUR / 2, START + HOUR / 2)
    assert (first.fired, first.delivered, first.ended) == (START + HOUR,) * 3
    assert (first.lateness, first.error) == (1800, None)
    assert found.occurrences[0].error.endswith("no such user")
    assert (found.occurrences[0].ended, found.occurrences[3].ended) == (None, START + 3 * HOUR)
    assert found.since == START + HOUR
    assert not found.more
    assert results(timed.schedules.history("sweep", limit=2)) == results(found)[:2]


def test_history_has_waiting_moved_cancelled_and_purged_occurrences(open_queue, clock):
    timed = clock.of(open_queue(events=True))
    timed.schedules.add("sweep", every="1h")
    timed.schedules.pause("sweep")
    clock.advance(4 * HOUR)
    timed.schedules.backfill("sweep", START, START + 4 * HOUR)
    timed.cancel("sweep@2026-11-20T09:00:00Z")
    for hour in ("09", "07"):  # what somebody does in the dashboard is no occurrence
        timed._perform(single(log_action_call(timed.context.calls, "ada", "cancel", f"sweep@2026-11-20T{hour}:00:00Z")))
    timed.schedules.move("sweep", START + 2.5 * HOUR, START + 9 * HOUR)
    assert results(timed.schedules.history("sweep")) == [
        (11, "waiting", 0),
        (10, "waiting", 0),
        (9, "cancelled", 0),
        (8, "waiting", 0),
    ]
    assert timed.schedules.history("sweep").occurrences[1].due == START + 9 * HOUR
    timed.purge()
    assert [one.result for one in timed.schedules.history("sweep").occurrences] == [
        "purged",
        "purged",
        "cancelled",
        "purged",
    ]


def test_history_says_how_far_the_log_was_read(open_queue, clock, monkeypatch):
    timed = clock.of(open_queue(events=True))
    timed.schedules.add("sweep", every="1h")
    assert timed.schedules.history("sweep").since is None
    timed.schedules.backfill("sweep", START - HOUR, START)
    clock.advance(HOUR / 4)
    for n in range(250):
        timed.send_delay_msg(n, DAY)
    found = timed.schedules.history("sweep")
    assert (len(found.occurrences), found.since, found.more) == (1, START, False)
    monkeypatch.setattr("delayq.queue.scheduling.schedule_history.MAX_PAGES", 2)
    found = timed.schedules.history("sweep")
    assert (found.occurrences, found.since, found.more) == ([], START + HOUR / 4, True)


@without_gaps
def test_history_of_trimmed_events_leaves_out_what_is_not_known(open_queue, clock, redis_client):
    timed = clock.of(open_queue(events=True))
    timed.schedules.add("sweep", every="1h")
    clock.advance(HOUR)
    assert len(ran(timed)) == 1
    timed._perform(single(trim_events(timed.context.calls, 3)))
    (one,) = timed.schedules.history("sweep").occurrences
    assert (one.result, one.fired) == ("acked", None)


def test_lateness_of_a_moved_occurrence_counts_from_its_new_time(open_queue, clock):
    timed = clock.of(open_queue(events=True))
    timed.schedules.add("daily", cron="0 9 * * *")
    timed.schedules.move("daily", START + 1.5 * HOUR, START + 5 * HOUR)
    clock.advance(5 * HOUR + timedelta(seconds=30))
    assert ran(timed) == ["daily@2026-11-20T09:00:00Z"]
    (one,) = timed.schedules.history("daily").occurrences
    assert (one.occurrence, one.due, one.lateness) == (START + 1.5 * HOUR, START + 5 * HOUR, 30)
