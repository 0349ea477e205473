"""Schedules: they send a message at each of their times, exactly once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from delayq import ConfigurationError, DelayQueue, PayloadError, Schedule, UnknownScheduleError
from delayq.broker.keys import Keys
from delayq.schedules.calls import fire_call, schedules_due_call
from delayq.schedules.definition import _read
from delayq.schedules.messages import firing
from delayq.values.times import timestamp
from delayq.worker.parts import schedule_replanning
from delayq.worker.parts.schedule_firing import FIRE_AHEAD, MAX_BYTES
from tests.behaviour.places import everywhere
from tests.support.faces import Stand
from tests.support.processes import Process
from tests.support.schedules import DAY, HOUR, START, ran, see, seen_ids
from tests.support.waiting import wait_until

# Occurrences


@everywhere
def test_occurrence_is_a_message_with_its_time_in_the_id(timed, clock):
    assert timed.schedules.add("sweep", every="1h", payload={"a": 1}, retries=7, headers={"who": "me"}) == "new"
    seen = []
    timed.callback(seen.append)
    timed.run(burst=True)
    assert seen == []
    clock.advance(HOUR)
    timed.run(burst=True)
    (message,) = seen
    assert (message.id, message.payload, message.retries_left) == ("sweep@2026-11-20T08:00:00Z", {"a": 1}, 7)
    assert message.headers == {"schedule": "sweep", "who": "me"}
    assert message.due == datetime(2026, 11, 20, 8, tzinfo=UTC)
    info = timed.schedules.get("sweep")
    assert (info.fired, info.last, info.next) == (1, message.due, message.due + HOUR)


@everywhere
def test_cron_expression_uses_the_time_zone_of_the_schedule(timed, clock):
    timed.schedules.add("digest", cron="0 9 * * MON-FRI", tz="Europe/Berlin", misfire=9)
    clock.advance(4 * DAY)
    assert ran(timed) == [f"digest@2026-11-{day}T08:00:00Z" for day in (20, 23)]
    assert [at.isoformat() for at in timed.schedules.next("digest", 2)] == [
        "2026-11-24T09:00:00+01:00",
        "2026-11-25T09:00:00+01:00",
    ]


def test_days_with_a_zone_occur_at_the_same_local_time_across_clock_changes(timed, clock):
    start = datetime(2026, 10, 20, 9, 0, 0, 250_000, tzinfo=ZoneInfo("Europe/Berlin"))  # before clocks go back
    clock.now = start - HOUR
    timed.schedules.add("pills", every="2d", tz="Europe/Berlin", start=start, end=start + 20 * DAY, count=4)
    timed.schedules.add("elapsed", every="2d", start=start)
    days = timed.schedules.next("pills", 10)
    assert [f"{at:%d %H:%M:%S.%f %z}" for at in days] == [
        "20 09:00:00.250000 +0200",
        "22 09:00:00.250000 +0200",
        "24 09:00:00.250000 +0200",
        "26 09:00:00.250000 +0100",
    ]
    assert timed.schedules.next("elapsed", 4)[-1].isoformat() == "2026-10-26T07:00:00.250000+00:00"  # 08:00 in Berlin
    clock.advance(2 * HOUR)
    assert sorted(ran(timed)) == ["elapsed@2026-10-20T07:00:00.250Z", "pills@2026-10-20T07:00:00.250Z"]


@everywhere
def test_recurrence_rule_occurs_in_the_zone_until_its_count_is_over(timed, clock):
    start = datetime(2026, 11, 27, 9, tzinfo=ZoneInfo("Europe/Berlin"))
    rule = {"rrule": "FREQ=MONTHLY;BYDAY=-1FR;COUNT=3", "tz": "Europe/Berlin", "start": start}
    assert timed.schedules.add("report", **rule) == "new"
    assert timed.schedules.add("report", **rule) == "unchanged"
    info = timed.schedules.get("report")
    assert (info.rrule, info.cron, info.every, info.tz) == (rule["rrule"], None, None, "Europe/Berlin")
    assert [at.isoformat() for at in timed.schedules.next("report", 9)] == [
        "2026-11-27T09:00:00+01:00",
        "2026-12-25T09:00:00+01:00",
        "2027-01-29T09:00:00+01:00",
    ]
    clock.now = start
    assert ran(timed) == ["report@2026-11-27T08:00:00Z"]
    assert timed.schedules.set("report", rrule="FREQ=MONTHLY;BYDAY=-1TH;UNTIL=20270131") == 1
    assert [f"{at:%d.%m. %H:%M}" for at in timed.schedules.next("report", 9)] == ["31.12. 09:00", "28.01. 09:00"]
    assert timed.schedules.set("report", tz="Asia/Tokyo") == 1
    assert [f"{at:%d.%m. %H:%M}" for at in timed.schedules.next("report", 9)] == ["31.12. 17:00", "28.01. 17:00"]
    assert timed.schedules.set("report", every="1h") == 1
    assert timed.schedules.get("report").rrule is None


@pytest.mark.parametrize(
    "rule", [{"cron": "0 9 * * *"}, {"every": "1d"}, {"every": "1d", "tz": "Asia/Tokyo"}, {"rrule": "FREQ=DAILY"}]
)
def test_any_rule_has_a_start_an_end_and_a_count(timed, clock, rule):
    start = START + 3 * DAY + HOUR / 2
    timed.schedules.add("ended", **rule, start=start, end=start + 3 * DAY)
    timed.schedules.add("counted", **rule, start=start, count=2)
    ended, counted = timed.schedules.next("ended", 9), timed.schedules.next("counted", 9)
    assert ended[:2] == counted
    assert start <= ended[0] < start + DAY
    assert start + 2 * DAY < ended[-1] <= start + 3 * DAY
    clock.advance(3 * DAY)
    fired = []
    for _ in range(40):
        clock.advance(3 * HOUR)
        fired += ran(timed)
    assert sum(one.startswith("counted@") for one in fired) == 2
    assert sum(one.startswith("ended@") for one in fired) == len(ended)
    assert {info.state for info in timed.schedules.list()} == {"ended"}


def test_interval_can_start_at_any_millisecond(timed, clock):
    timed.schedules.add("odd", every="10m", start=START + timedelta(minutes=7, milliseconds=5))
    clock.advance(timedelta(minutes=17, seconds=30))
    assert ran(timed) == ["odd@2026-11-20T07:37:00.005Z", "odd@2026-11-20T07:47:00.005Z"]


@pytest.mark.parametrize(
    ("misfire", "hours"), [("skip", [12]), ("once", [11, 12]), (2, [10, 11, 12]), (1000, range(8, 13))]
)
def test_missed_occurrences_follow_the_misfire_option(timed, clock, misfire, hours):
    timed.schedules.add("sweep", every="1h", misfire=misfire)
    clock.advance(timedelta(hours=4, minutes=30, seconds=20))
    assert ran(timed) == [f"sweep@2026-11-20T{hour:02}:00:00Z" for hour in hours]
    clock.advance(HOUR)
    assert ran(timed) == ["sweep@2026-11-20T13:00:00Z"]


def test_year_of_missed_occurrences_is_handled_quickly(timed, clock):
    timed.schedules.add("tick", every="1s", misfire=3)
    clock.advance(365 * DAY)
    assert len(ran(timed)) == 3 + 2


@pytest.mark.parametrize(("misfire", "seconds"), [("skip", [20]), ("once", [10, 20]), (3, [50, 0, 10, 20])])
def test_stopped_minutes_of_a_quick_schedule_are_missed(timed, clock, misfire, seconds):
    timed.schedules.add("poll", every="10s", misfire=misfire)
    clock.advance(timedelta(minutes=5, seconds=25))
    assert [int(id[-3:-1]) for id in ran(timed)] == seconds


@everywhere
def test_a_schedule_ends_after_its_count_and_stays_listed(timed, clock):
    timed.schedules.add("sweep", every="1h", count=2, misfire=99)
    clock.advance(10 * HOUR)
    assert ran(timed) == ["sweep@2026-11-20T08:00:00Z", "sweep@2026-11-20T09:00:00Z"]
    info = timed.schedules.get("sweep")
    assert (info.state, info.next, info.fired) == ("ended", None, 2)
    assert timed.schedules.add("sweep", every="1h", count=2, misfire=99) == "unchanged"
    assert timed.schedules.add("sweep", every="1h", count=3, misfire=99) == "changed"
    clock.advance(HOUR)
    assert ran(timed) == ["sweep@2026-11-20T18:00:00Z"]


def test_schedule_fires_only_between_start_and_end(timed, clock):
    timed.schedules.add("sweep", every="1h", start=START + HOUR, end=START + 3 * HOUR, misfire=9)
    assert timed.schedules.next("sweep", 9) == [START + n * HOUR for n in (1, 2, 3)]
    clock.advance(DAY)
    assert len(ran(timed)) == 3
    assert timed.schedules.get("sweep").state == "ended"


# After the clock of the server was set back


def set_back(queue, clock) -> None:
    """Fire some schedules with a clock that is ten years ahead, and set it back."""
    queue.schedules.add("hourly", every="1h")
    queue.schedules.add("yearly", cron="0 9 20 11 *", tz="Europe/Berlin")
    queue.schedules.add("ending", every="1h", end=START + 2 * DAY)
    queue.schedules.add("paused", every="1h")
    queue.schedules.pause("paused")
    clock.advance(3650 * DAY)
    queue.schedules.add("added", every="1h")
    assert len(ran(queue)) == 3
    clock.advance(-3649 * DAY)


NEXT = dict.fromkeys(("hourly", "ending", "added"), START + DAY + HOUR / 2) | {
    "yearly": datetime(2027, 11, 20, 8, tzinfo=UTC),
    "paused": None,
}


@pytest.mark.parametrize("workers", [1, 3])
def test_consumers_plan_anew_when_the_clock_was_set_back(open_queue, clock, monkeypatch, caplog, workers):
    first, *others = [clock.of(open_queue()) for _ in range(workers)]
    set_back(first, clock)
    assert ran(first) == []
    monkeypatch.setattr(schedule_replanning, "CHECK_EVERY", 0.1)
    for queue in (first, *others):
        queue.callback(see)
        queue.start_consume()
    wait_until(lambda: {info.name: info.next for info in first.schedules.list()} == NEXT)
    for time in ("08:00", "09:00"):
        clock.advance(HOUR)
        fired = [f"{name}@2026-11-21T{time}:00Z" for name in ("added", "ending", "hourly")]
        wait_until(lambda: len(seen_ids) >= 3)
        assert sorted(seen_ids) == fired
        seen_ids.clear()
    for queue in (first, *others):
        queue.stop_consume()
    assert "the clock of Redis was set back: planning the schedules anew" in caplog.messages
    assert first.schedules.replan().moved == {}


@everywhere
def test_schedules_are_planned_anew_by_hand(timed, clock):
    set_back(timed, clock)
    moved = timed.schedules.replan().moved
    assert {name: after for name, (_, after) in moved.items()} == {
        name: time for name, time in NEXT.items() if name != "paused"
    }
    assert moved["ending"][0] is None
    assert moved["hourly"][0] > START + 3650 * DAY
    assert timed.schedules.replan().moved == {}


def test_adding_a_schedule_again_after_the_clock_was_set_back_plans_it(timed, clock):
    set_back(timed, clock)
    assert timed.schedules.add("hourly", every="1h") == "changed"
    assert timed.schedules.get("hourly").next == START + DAY + HOUR / 2


def test_no_occurrence_fires_twice_when_the_clock_is_set_back_by_minutes(timed, clock):
    timed.schedules.add("quick", every="10m")
    seen = []
    for minutes in (10, 10, 10, -25, 10, 10, 10, 10):
        clock.advance(timedelta(minutes=minutes))
        seen += ran(timed)
        timed.schedules.replan()
    assert len(set(seen)) == len(seen) == 4


def test_new_time_zone_data_moves_a_schedule(timed, redis_client):
    timed.schedules.add("digest", cron="0 9 * * *", tz="Europe/Berlin")
    right = timed.schedules.get("digest").next
    for wrong in (right - HOUR, right + HOUR):
        redis_client.zadd(Keys.of("delayq", timed.name).schedules, {"digest": timestamp(wrong)})
        assert timed.schedules.replan().moved == {"digest": (wrong, right)}
    assert timed.schedules.next("digest") == [right]


# Managing


@everywhere
def test_paused_schedule_fires_nothing_until_it_is_resumed(timed, clock):
    timed.schedules.add("sweep", every="1h", misfire=9)
    timed.schedules.pause("sweep")
    timed.schedules.pause("sweep")
    clock.advance(5 * HOUR)
    assert ran(timed) == []
    assert (timed.schedules.get("sweep").state, timed.schedules.next("sweep", 3)) == ("paused", [])
    timed.schedules.resume("sweep")
    timed.schedules.resume("sweep")
    assert ran(timed) == []
    clock.advance(HOUR)
    assert ran(timed) == ["sweep@2026-11-20T13:00:00Z"]


@everywhere
def test_pause_until_a_time_ends_with_the_first_occurrence_from_then_on(timed, clock):
    timed.schedules.add("sweep", every="1h", misfire=9)
    until = clock.now + 3.5 * HOUR
    assert timed.schedules.pause("sweep", until=until) == 1
    assert timed.schedules.pause("sweep", until=until) == 0
    clock.advance(2 * HOUR)
    assert ran(timed) == []
    info = timed.schedules.get("sweep")
    assert (info.state, info.paused_until, info.next) == ("paused", until, until)
    assert timed.schedules.add("sweep", every="1h", misfire=9, payload="new") == "changed"  # during the pause
    assert timed.schedules.list()[0].paused_until == until
    assert timed.schedules.replan().moved == {}
    clock.advance(3 * HOUR)
    assert ran(timed) == [f"sweep@{until:%Y-%m-%dT%H}:00:00Z", f"sweep@{until + HOUR:%Y-%m-%dT%H}:00:00Z"]
    info = timed.schedules.get("sweep")
    assert (info.state, info.paused_until) == ("active", None)


@everywhere
def test_pause_until_a_time_can_be_changed_and_ended(timed, clock):
    timed.schedules.add("sweep", every="1h")
    first = timed.schedules.get("sweep").next
    timed.schedules.pause("sweep", until="90d")
    timed.schedules.pause("sweep", until="5h")
    assert timed.schedules.get("sweep").paused_until == clock.now + 5 * HOUR
    assert timed.schedules.get("sweep").next == first + 5 * HOUR
    timed.schedules.pause("sweep")
    assert (timed.schedules.get("sweep").paused_until, timed.schedules.next("sweep")) == (None, [])
    timed.schedules.pause("sweep", until="5h")
    assert timed.schedules.resume("sweep") == 1
    assert timed.schedules.resume("sweep") == 0
    info = timed.schedules.get("sweep")
    assert (info.state, info.paused_until, info.next) == ("active", None, first)
    for wrong in (clock.now, clock.now - HOUR, "0s", "soon", 5.0j):
        with pytest.raises(ConfigurationError, match="until"):
            timed.schedules.pause("sweep", until=wrong)
    assert timed.schedules.get("sweep") == info


@everywhere
def test_removed_schedule_fires_nothing_and_keeps_its_messages(timed, clock):
    timed.schedules.add("sweep", every="1h")
    timed.schedules.run_now("sweep")
    assert timed.schedules.remove("sweep")
    assert not timed.schedules.remove("sweep")
    clock.advance(DAY)
    assert [id[:10] for id in ran(timed)] == ["sweep@now:"]
    assert timed.schedules.get("sweep") is None


@everywhere
def test_run_now_sends_a_message_besides_the_scheduled_ones(timed, clock):
    timed.schedules.add("sweep", every="1h", payload="p", count=1)
    timed.schedules.pause("sweep")
    first, second = (timed.schedules.run_now("sweep") for _ in range(2))
    assert first.new
    assert first.id != second.id
    assert sorted(ran(timed)) == sorted([first.id, second.id])
    timed.schedules.resume("sweep")
    clock.advance(HOUR)
    assert ran(timed) == ["sweep@2026-11-20T08:00:00Z"]


@everywhere
def test_adding_an_equal_schedule_changes_nothing(timed, clock):
    options = {"cron": "0 * * * *", "payload": {"a": 1}, "headers": {"b": "2", "a": "1"}}
    timed.schedules.add("sweep", **options)
    before = timed.schedules.get("sweep")
    clock.advance(timedelta(minutes=10))
    assert timed.schedules.add("sweep", **options | {"headers": {"a": "1", "b": "2"}}) == "unchanged"
    assert timed.schedules.get("sweep") == before


def test_changed_schedule_loses_and_duplicates_no_occurrence(timed, clock):
    timed.schedules.add("sweep", every="1h", payload=1)
    clock.advance(HOUR)
    assert ran(timed) == ["sweep@2026-11-20T08:00:00Z"]
    # By another rule with the same times, and while the next one is due already.
    assert timed.schedules.add("sweep", cron="0 * * * *", payload=2) == "changed"
    assert ran(timed) == []
    clock.advance(HOUR)
    assert timed.schedules.add("sweep", cron="0 * * * *", payload=3) == "changed"
    assert ran(timed) == ["sweep@2026-11-20T09:00:00Z"]
    info = timed.schedules.get("sweep")
    assert (info.fired, info.payload) == (2, 3)


def test_changed_schedule_stays_paused(timed):
    timed.schedules.add("sweep", every="1h")
    timed.schedules.pause("sweep")
    assert timed.schedules.add("sweep", every="2h") == "changed"
    info = timed.schedules.get("sweep")
    assert (info.state, info.every) == ("paused", 2 * HOUR)


@everywhere
def test_many_schedules_are_added_and_listed_by_name(timed):
    names = [f"s{n:04}" for n in range(1200)]
    outcomes = timed.schedules.add_many(Schedule(name, every="1h", payload=name) for name in names)
    assert set(outcomes.values()) == {"new"}
    assert [info.name for info in timed.schedules.list()] == names
    assert set(timed.schedules.add_many([Schedule("s0000", every="2h"), Schedule("x", every="1h")]).values()) == {
        "new",
        "changed",
    }


def test_large_payloads_are_fired_in_batches(timed, clock):
    timed.schedules.add("big", every="1h", payload="x" * 900_000, misfire=40)
    clock.advance(40 * HOUR)
    seen = ran(timed)
    assert (len(seen), len(set(seen))) == (40, 40)
    assert timed.schedules.get("big").fired == 40


def test_schedules_can_be_listed_and_managed_without_cronsim(timed, monkeypatch):
    timed.schedules.add("digest", cron="7 9 * * *")
    monkeypatch.setattr("delayq.schedules.cron.cronsim", None)
    _read.cache_clear()
    assert [info.cron for info in timed.schedules.list()] == ["7 9 * * *"]
    assert timed.schedules.run_now("digest").new
    timed.schedules.pause("digest")
    for act in (lambda: timed.schedules.resume("digest"), lambda: timed.schedules.add("other", cron="@daily")):
        with pytest.raises(ConfigurationError, match="need cronsim"):
            act()
    assert timed.schedules.remove("digest")


def test_consumer_without_dateutil_leaves_recurrence_rules_to_others(timed, clock, monkeypatch, caplog):
    timed.schedules.add("report", rrule="FREQ=DAILY", start=START + HOUR)
    timed.schedules.add("sweep", every="1h")
    clock.advance(HOUR)
    with monkeypatch.context() as context:
        context.setattr("delayq.schedules.recurring.recurrence.bounded_rrule", None)
        _read.cache_clear()
        assert ran(timed) == ["sweep@2026-11-20T08:00:00Z"]
        assert [line for line in caplog.messages if "report" in line] == [
            "schedule report cannot be fired here: an rrule needs python-dateutil: pip install 'delayq[rrule]'"
        ]
    _read.cache_clear()
    assert ran(timed) == ["report@2026-11-20T08:30:00Z"]


def test_purge_keeps_schedules(timed, clock):
    timed.schedules.add("sweep", every="1h")
    timed.send_delay_msg(1)
    assert timed.purge() == 1
    clock.advance(HOUR)
    assert ran(timed) == ["sweep@2026-11-20T08:00:00Z"]


@everywhere
@pytest.mark.parametrize("act", ["pause", "resume", "run_now", "next"])
def test_unknown_schedule_raises_an_error(timed, act):
    with pytest.raises(UnknownScheduleError, match="no schedule is named sweep"):
        getattr(timed.schedules, act)("sweep")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "give cron, every or rrule: one of them"),
        ({"cron": "0 9 * * *", "every": 60}, "give cron, every or rrule: one of them"),
        ({"cron": "0 0 30 2 *"}, "bad day-of-month"),
        ({"cron": "0 9 * * *", "tz": "Europe/Berln"}, "did you mean 'Europe/Berlin'"),
        ({"every": 60, "tz": "UTC"}, "with tz, every must be whole days"),
        ({"every": "36h", "tz": "Europe/Berlin"}, "with tz, every must be whole days"),
        ({"every": "1d", "tz": "Europe/Berln"}, "did you mean 'Europe/Berlin'"),
        ({"every": 0.5}, "every must be between 1s"),
        ({"rrule": "FREQ=DAILY", "every": 60}, "give cron, every or rrule: one of them"),
        ({"rrule": "FREQ=DAILY;BYDAY=1FR"}, "rrule part 'BYDAY=1FR' is not valid"),
        ({"rrule": "FREQ=DAILY;COUNT=3"}, "rrule part 'COUNT=3' needs a start"),
        ({"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "never matches"),
        ({"rrule": ""}, "rrule is empty"),
        ({"cron": ""}, "cron is empty"),
        ({"every": True}, "every must be"),
        ({"every": 60, "start": datetime(2026, 1, 1)}, "start must carry a time zone"),  # noqa: DTZ001
        ({"every": 60, "start": START, "end": START - DAY}, "end is before start"),
        ({"every": 60, "count": 0}, "count must be"),
        ({"every": 60, "misfire": "twice"}, "misfire must be"),
        ({"every": 60, "misfire": 0}, "misfire must be"),
        ({"every": 60, "misfire": True}, "misfire must be"),
        ({"every": 60, "late_after": -1}, "late_after must be"),
        ({"every": 60, "retries": -1}, "retries must be"),
        ({"every": 60, "headers": {"schedule": "x"}}, "remove the header"),
        ({"every": 60, "headers": {"a": 1}}, "headers must map"),
    ],
)
def test_invalid_schedule_is_refused_with_its_name(timed, options, error):
    with pytest.raises(ConfigurationError, match="schedule sweep: ") as caught:
        timed.schedules.add("sweep", **options)
    assert error in str(caught.value)
    assert timed.schedules.list() == []


def test_unknown_option_is_refused_with_a_suggestion(queue):
    for add in (lambda **options: queue.schedules.add("s", **options), partial(queue.cron, "@daily")):
        with pytest.raises(ConfigurationError, match="unknown option 'retires', did you mean 'retries'"):
            add(retires=3)(print)


@pytest.mark.parametrize("name", ["", "a b", "a" * 101, "a:b", "a@b", "é", None, 5])
def test_invalid_schedule_name_is_refused(timed, name):
    with pytest.raises(ConfigurationError, match="schedule name must be"):
        timed.schedules.add(name, every=60)


def test_invalid_payload_or_duplicate_name_is_refused(timed, open_queue):
    with pytest.raises(PayloadError):
        timed.schedules.add("sweep", every=60, payload=object())
    with pytest.raises(ConfigurationError, match="two schedules are named s"):
        timed.schedules.add_many([Schedule("s", every=60), Schedule("s", every=61)])
    with pytest.raises(ConfigurationError, match="must be Schedule objects"):
        timed.schedules.add_many(["s"])


# Declared in code


@everywhere
def test_functions_get_messages_of_their_schedules_and_the_callback_the_rest(timed, clock):
    seen = []
    timed.callback(lambda message: seen.append(("callback", message.id)))

    def sweep(message):
        seen.append(("sweep", message.payload))

    def digest(message):
        seen.append(("digest", message.headers["schedule"]))

    assert timed.every("1h", payload=1)(sweep) is sweep
    timed.cron("0 9 * * *", tz="Europe/Berlin", name="morning")(digest)
    timed.schedules.apply()
    timed.schedules.add("other", every="1h")
    timed.send_delay_msg(1, id="m")
    clock.advance(HOUR)
    timed.run(burst=True)
    assert sorted(seen) == [
        *(("callback", "m"), ("callback", "other@2026-11-20T08:00:00Z")),
        *(("digest", "morning"), ("sweep", 1)),
    ]


@everywhere
def test_any_rule_can_be_declared(open_queue, clock):
    timed = clock.of(open_queue(owner="billing"))
    berlin = {"tz": "Europe/Berlin", "start": datetime(2026, 11, 20, 9, tzinfo=ZoneInfo("Europe/Berlin"))}
    timed.cron("0 9 LW * ?", name="payday", tz="Europe/Berlin")(see)
    timed.every("2d", name="pills", **berlin)(see)
    timed.rrule("FREQ=MONTHLY;BYDAY=-1FR", name="rent", **berlin)(see)
    assert timed.schedules.apply().outcomes == dict.fromkeys(("payday", "pills", "rent"), "new")
    assert timed.schedules.apply(prune=True).outcomes == dict.fromkeys(("payday", "pills", "rent"), "unchanged")
    found = {info.name: f"{info.next:%d.%m. %H:%M}" for info in timed.schedules.list()}
    assert found == {"payday": "30.11. 08:00", "pills": "20.11. 08:00", "rent": "27.11. 08:00"}
    with pytest.raises(ConfigurationError, match="give the interval or expression of a schedule"):
        timed.rrule(see)


@everywhere
def test_declared_schedules_are_stored_when_consuming_starts(timed, clock):
    seen = []
    timed.every("1h", name="sweep")(lambda message: seen.append(message.id))
    timed.run(burst=True)
    info = timed.schedules.get("sweep")
    assert (info.declared, info.next) == (True, START + timedelta(minutes=30))
    clock.advance(HOUR)
    timed.run(burst=True)
    assert seen == ["sweep@2026-11-20T08:00:00Z"]


def test_message_without_a_handler_waits_for_one_and_then_goes_to_the_dead_letter(open_queue, clock, caplog):
    timed = clock.of(open_queue(unknown_for="15s"))
    timed.every("1h", name="sweep")(lambda message: None)
    timed.schedules.add("other", every="1h", retries=0, count=2)
    timed.send_delay_msg(1, "30m", id="m", retries=0)
    clock.advance(HOUR / 2)
    for _ in range(3):
        timed.run(burst=True)
        clock.advance(timedelta(seconds=5))
    waiting = {message.id.partition("@")[0]: message for message in timed.list("backoff").messages}
    assert {(name, one.attempts, one.error) for name, one in waiting.items()} == {("other", 0, ""), ("m", 0, "")}
    assert sorted(record.args[1] for record in caplog.records if record.name == "delayq.consumer") == [
        "no handler for schedule other, which this program does not declare: register one with @queue.callback",
        "no handler for this message: register one with @queue.callback",
    ]
    timed.run(burst=True)
    reasons = {message.id.partition("@")[0]: message.reason for message in timed.dead.list().messages}
    assert reasons["other"] == (
        "NoCallbackError: no handler for schedule other, which this program does not declare: "
        "register one with @queue.callback"
    )
    assert reasons["m"] == "NoCallbackError: no handler for this message: register one with @queue.callback"


@everywhere
def test_schedule_no_longer_declared_stays_until_it_is_pruned(open_queue, clock):
    old, new = clock.of(open_queue(owner="billing")), clock.of(open_queue(owner="billing"))
    for name in ("a", "b"):
        old.every("1h", name=name)(lambda message: None)
    assert old.schedules.apply().outcomes == {"a": "new", "b": "new"}
    new.every("2h", name="b")(lambda message: None)
    new.every("1h", name="c")(lambda message: None)
    new.schedules.add("by-hand", every="1h")
    applied = new.schedules.apply()
    assert (applied.outcomes, applied.removed) == ({"b": "changed", "c": "new"}, [])
    applied = new.schedules.apply(prune=True)
    assert (applied.outcomes, applied.removed) == ({"b": "unchanged", "c": "unchanged"}, ["a"])
    assert [info.name for info in new.schedules.list()] == ["b", "by-hand", "c"]


@everywhere
def test_pruning_touches_only_what_the_owner_has_declared(open_queue, clock):
    billing, mail, nobody = (clock.of(open_queue(owner=owner)) for owner in ("billing", "mail", None))
    for queue, names in ((billing, "ab"), (mail, "cd"), (nobody, "ef")):
        for name in names:
            queue.every("1h", name=name, labels=["hourly"])(lambda message: None)
        queue.schedules.apply()
    billing.schedules.add("by-hand", every="1h", labels=["declared:mail"])
    after = clock.of(open_queue(owner="mail"))
    after.every("1h", name="c", labels=["hourly"])(lambda message: None)
    assert after.schedules.orphans() == ["d"]
    assert after.schedules.apply(prune=True).removed == ["d"]
    assert after.schedules.orphans() == []
    assert [info.name for info in after.schedules.list()] == ["a", "b", "by-hand", "c", "e", "f"]
    assert [info.name for info in after.schedules.list(label="declared:billing")] == ["a", "b"]
    assert clock.of(open_queue()).schedules.orphans() == ["e", "f"]
    with pytest.raises(ConfigurationError, match="to prune, give the queue an owner, as in owner='billing'"):
        nobody.schedules.apply(prune=True)
    assert len(after.schedules.list()) == 6


@everywhere
def test_owner_of_a_schedule_is_kept_when_its_labels_change(open_queue, clock):
    queue, by_hand = clock.of(open_queue(owner="billing")), clock.of(open_queue())
    queue.every("1h", name="a", labels=["hourly"])(lambda message: None)
    queue.schedules.apply()
    assert queue.schedules.get("a").labels == ("declared:billing", "hourly")
    assert by_hand.schedules.set("a", labels=["sweeps"], every="2h") == 1
    assert queue.schedules.get("a").labels == ("declared:billing", "sweeps")
    queue.schedules.apply()
    assert queue.schedules.get("a").labels == ("declared:billing", "hourly")


@everywhere
def test_start_names_the_schedules_that_are_no_longer_declared(open_queue, clock, caplog):
    old = clock.of(open_queue(owner="billing"))
    for n in range(12):
        old.every("1h", name=f"old-{n:02}")(lambda message: None)
    old.run(burst=True)
    assert not [record for record in caplog.records if record.name == "delayq.schedules"]
    new = clock.of(open_queue(owner="billing"))
    new.every("1h", name="new")(lambda message: None)
    new.schedules.add("by-hand", every="1h")
    for _ in range(2):
        new.run(burst=True)
    (record,) = [record for record in caplog.records if record.name == "delayq.schedules"]
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        f"queue {new.name}: schedules are left over that this program does not declare: "
        + ", ".join(f"old-{n:02}" for n in range(10))
        + ", …; remove them, or call schedules.apply(prune=True)"
    )
    assert record.schedules == [f"old-{n:02}" for n in range(12)]


def test_message_of_an_unknown_declared_schedule_is_not_for_the_callback(open_queue, clock):
    old, new = clock.of(open_queue()), clock.of(open_queue())
    seen = []
    old.every("1h", name="renamed")(lambda message: seen.append(("old", message.headers["schedule"])))
    old.schedules.apply()
    new.every("1h", name="sweep")(lambda message: seen.append(("new", message.headers["schedule"])))
    new.callback(lambda message: seen.append(("callback", message.headers["schedule"])))
    new.schedules.add("by-hand", every="1h")
    new.schedules.apply()
    clock.advance(HOUR)
    new.run(burst=True)
    assert sorted(seen) == [("callback", "by-hand"), ("new", "sweep")]
    assert [message.id for message in new.list("backoff").messages] == ["renamed@2026-11-20T08:00:00Z"]
    clock.advance(timedelta(seconds=6))
    old.run(burst=True)
    assert seen[2:] == [("old", "renamed")]
    assert new.counts().living == 0


def test_header_that_marks_declared_schedules_is_reserved():
    queue = DelayQueue("reminders", url="memory://declared-header")
    with pytest.raises(ConfigurationError, match="remove the header 'schedule-declared': delayq sets it"):
        queue.schedules.add("s", every="1h", headers={"schedule-declared": "1"})


def test_invalid_declaration_is_refused_at_once():
    queue = DelayQueue("reminders", url="memory://declared")
    with pytest.raises(ConfigurationError, match="bad day-of-month"):
        queue.cron("0 0 30 2 *", name="s")(print)
    with pytest.raises(ConfigurationError, match="schedule name must be"):
        queue.every("1h")(lambda message: None)
    with pytest.raises(ConfigurationError, match="must be callable"):
        queue.every("1h", name="s")(None)
    queue.every("1h", name="s")(lambda message: None)
    with pytest.raises(ConfigurationError, match="declared twice"):
        queue.every("1h", name="s")(lambda message: None)
    queue.batch_callback(lambda messages: None)
    with pytest.raises(ConfigurationError, match="batch_callback"):
        queue.run(burst=True)


def test_coroutine_function_is_refused_by_a_blocking_queue():
    async def nightly(message):
        pass

    with (
        DelayQueue("reminders", url="memory://coroutines") as queue,
        pytest.raises(ConfigurationError, match="AsyncDelayQueue"),
    ):
        queue.every("1h")(nightly)


# Each occurrence once


def carry_out(queue, call):
    """Send a call like the consumer of a queue does."""
    if isinstance(queue, Stand):
        return queue._loop.do(lambda: queue.executor.call(call))
    return queue.executor.call(call)


def test_one_of_two_workers_that_read_the_same_occurrence_fires_it(queue, open_queue, clock):
    workers = [clock.of(queue), clock.of(open_queue())]
    queue.schedules.add("sweep", every="1h")
    clock.advance(HOUR)
    rows = []
    for worker in workers:
        due = carry_out(
            worker, schedules_due_call(worker.context.calls, ahead=FIRE_AHEAD, offset=0, limit=9, byte_limit=MAX_BYTES)
        )
        rows.append(firing(due.schedules[0], due.now, queue.settings, ahead=FIRE_AHEAD)[0])
    # The first reader is killed or delayed, and continues after another has fired.
    replies = [
        carry_out(worker, fire_call(worker.context.calls, [row]))
        for worker, row in zip(workers, rows[::-1], strict=True)
    ]
    assert replies == ["1", "0"]
    assert ran(queue) == ["sweep@2026-11-20T08:00:00Z"]
    assert queue.schedules.get("sweep").fired == 1


@pytest.mark.parametrize("change", ["changed", "paused", "removed", "removed and added"])
def test_occurrence_read_before_a_change_is_not_fired(queue, clock, change):
    clock.of(queue).schedules.add("sweep", every="1h", payload="old")
    clock.advance(HOUR)
    due = carry_out(
        queue, schedules_due_call(queue.context.calls, ahead=FIRE_AHEAD, offset=0, limit=9, byte_limit=MAX_BYTES)
    )
    row, _ = firing(due.schedules[0], due.now, queue.settings, ahead=FIRE_AHEAD)
    clock.advance(timedelta(milliseconds=1))
    if change == "changed":
        queue.schedules.add("sweep", every="1h", payload="new")
    elif change == "paused":
        queue.schedules.pause("sweep")
    else:
        queue.schedules.remove("sweep")
        if change == "removed and added":
            queue.schedules.add("sweep", every="1h", payload="new")
    assert carry_out(queue, fire_call(queue.context.calls, [row])) == "0"
    assert queue.counts().living == 0


@pytest.mark.long
def test_new_schedule_wakes_an_idle_consumer(open_queue):
    seen = []
    consumer, other = open_queue(tick="1h"), open_queue()
    consumer.callback(lambda message: seen.append(message.lateness))
    consumer.start_consume()
    other.schedules.add("tick", every="1s")
    wait_until(lambda: len(seen) >= 2)
    other.schedules.pause("tick")
    assert min(seen) < 0.5


def occurrences(queue) -> dict[str, list[datetime]]:
    """Return the times of the messages sent by each schedule, from the event log, in order."""
    found: dict[str, list[datetime]] = {}
    for event in queue.events():
        if event.kind == "sent":
            name, _, time = event.id.partition("@")
            found.setdefault(name, []).append(datetime.fromisoformat(time))
    return found


def check_once(found: dict[str, list[datetime]]) -> None:
    for name, times in found.items():
        assert max(Counter(times).values()) == 1, name
        assert all(later - sooner == timedelta(seconds=1) for sooner, later in pairwise(sorted(times))), name


@pytest.mark.long
def test_several_workers_fire_each_occurrence_once(redis_url):
    seen = []
    workers = [
        DelayQueue("reminders", url=redis_url, events=True, callback=lambda message: seen.append(message.id))
        for _ in range(4)
    ]
    try:
        workers[0].schedules.add_many(Schedule(f"s{n}", every="1s", misfire=1000) for n in range(30))
        for worker in workers:
            worker.start_consume()
        wait_until(lambda: len(seen) >= 90)
    finally:
        for worker in workers:
            worker.stop_consume(0)
    found = occurrences(workers[0])
    check_once(found)
    assert len(found) == 30
    for worker in workers:
        worker.close()


WORKER = """
import sys
from delayq import DelayQueue
queue = DelayQueue("reminders", url=sys.argv[1], callback=lambda message: print("x", flush=True))
queue.run()
"""


@pytest.mark.long
@pytest.mark.faults
def test_killed_workers_leave_no_gaps_or_duplicate_occurrences(redis_url):
    with DelayQueue("reminders", url=redis_url, events=True) as queue:
        queue.schedules.add_many(Schedule(f"s{n}", every="1s", misfire=1000) for n in range(200))
        for _ in range(3):
            worker = Process([sys.executable, "-c", WORKER, redis_url], stdout=subprocess.PIPE)
            assert worker.stdout is not None
            worker.stdout.readline()  # while it fires
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            worker.stdout.close()
        before = max(times[-1] for times in occurrences(queue).values())
        queue.callback(lambda message: None)
        queue.start_consume()
        wait_until(lambda: all(times[-1] > before for times in occurrences(queue).values()))
        queue.stop_consume()
        found = occurrences(queue)
        assert len(found) == 200
        check_once(found)
