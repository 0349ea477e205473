"""When a consumer reads schedules and fires them, and when it does not."""

from __future__ import annotations

import logging
from itertools import starmap

import pytest

from delayq.broker.batches import batched
from delayq.broker.replies import PromoteReply
from delayq.errors import QueueFullError
from delayq.schedules.calls import DueSchedules, ScheduleFire, SchedulePage, SchedulePut, StoredSchedule
from delayq.schedules.definition import CLOCK_STEP, Definition, _encode
from delayq.worker.parts import schedule_replanning
from delayq.worker.parts.schedule_firing import FIRE_AHEAD, HELD_WAIT, MAX_SCHEDULES
from tests.support.loop_harness import LOCAL, SERVER, LoopHarness, claimed, promoted

MINUTE = 60_000
MINE = "2026c"
"""The release of the time zone data of this machine."""


def standing(name="s", at=SERVER, revision="7", fired=0, payload=b"P", **definition) -> StoredSchedule:
    spec = _encode(Definition(**{"retries": 2, "every": MINUTE} | definition)) + b"\n" + payload
    return StoredSchedule(name, at, spec, revision, fired, 0, False)


@pytest.fixture(autouse=True)
def _release(monkeypatch):
    monkeypatch.setattr(schedule_replanning, "zone_release", lambda: MINE)


def due(*schedules: StoredSchedule, now=SERVER, complete=True) -> DueSchedules:
    return DueSchedules(now, complete, list(schedules))


def occurring(harness: LoopHarness, seconds: float, **options) -> PromoteReply:
    """Return a promotion that says when the next schedule occurs."""
    return promoted(next_schedule=harness.server(harness.now + seconds), **options)


def fired(harness: LoopHarness) -> list[ScheduleFire]:
    """Return what it fires in its turn."""
    rows = batched(harness.ask("fire").what[1:], len(ScheduleFire._fields))
    return list(starmap(ScheduleFire, rows))


def woken(seconds: float = 0.0, **options) -> LoopHarness:
    """Return a harness whose consumer knows when the next schedule occurs, and was woken in time for it."""
    harness = LoopHarness(**options)
    harness.wake()
    harness.reply(pending_to_ready=occurring(harness, seconds), ready_to_unack=claimed())
    harness.wake()
    return harness


def test_it_sleeps_until_a_little_before_the_next_occurrence():
    harness = LoopHarness(tick=60)
    harness.wake()
    harness.reply(pending_to_ready=occurring(harness, 5))
    assert harness.sleeps == 5 - FIRE_AHEAD / 1000
    harness.wake()
    assert harness.asked == ["schedules_due", "pending_to_ready", "ready_to_unack"]
    assert harness.ask("schedules_due").what == ["", FIRE_AHEAD, 0, MAX_SCHEDULES, 1 << 20]


def looking() -> LoopHarness:
    """Return a harness whose consumer looks at the clock."""
    harness = LoopHarness(tick=600)
    harness.wake()
    harness.reply(pending_to_ready=occurring(harness, 500))
    harness.wake()
    assert "schedules_page" in harness.asked
    return harness


def page(now: int, latest: int, cursor: str, schedules: list[StoredSchedule], zones: str = MINE) -> SchedulePage:
    return SchedulePage(now, latest, zones, cursor, schedules)


def answer(harness: LoopHarness, **replies) -> None:
    """Answer a turn; a schedule occurs later."""
    harness.reply(pending_to_ready=occurring(harness, 500), **replies)


def test_it_looks_at_the_clock_every_minute():
    harness = looking()
    assert harness.now == LOCAL + 60
    answer(harness, schedules_page=page(SERVER, SERVER + CLOCK_STEP, "0", []))
    assert harness.sleeps == 60


def away(*names: str) -> list[StoredSchedule]:
    """Return schedules that were fired while the clock was a year ahead."""
    year = 365 * 86_400_000
    return [standing(name, SERVER + year + MINUTE)._replace(last=SERVER + year) for name in names]


def test_it_plans_schedules_anew_page_by_page_if_the_clock_was_set_back():
    harness = looking()
    latest = SERVER + CLOCK_STEP + 1
    answer(harness, schedules_page=page(SERVER, latest, "0", []))
    harness.wake()
    answer(harness, schedules_page=page(SERVER, latest, "5", away("a", "b")))
    harness.wake()
    rows = batched(harness.ask("schedule_put").what[1:], len(SchedulePut._fields))
    assert [row._replace(next="") for row in starmap(SchedulePut, rows)] == [
        SchedulePut("a", "7", "", 0, b""),
        SchedulePut("b", "7", "", 0, b""),
    ]
    answer(harness, schedule_put="10")
    harness.wake()
    assert harness.ask("schedules_page").what[1] == "5"
    answer(
        harness,
        schedules_page=page(SERVER + 1, latest, "0", [standing("c", SERVER // MINUTE * MINUTE + MINUTE)]),
    )
    harness.wake()
    assert harness.ask("HSET").what[1:] == ["schedules_at", SERVER + 1, "schedules_zones", MINE]
    answer(harness, HSET=None)
    assert harness.sleeps == 60


@pytest.mark.parametrize("refused", ["schedules_page", "schedule_put"])
def test_a_refused_plan_is_tried_again_after_a_minute(refused):
    harness = looking()
    for _ in range(2):
        answer(harness, schedules_page=page(SERVER, SERVER + 2 * CLOCK_STEP, "0", []))
        harness.wake()
        if refused == "schedule_put":
            answer(harness, schedules_page=page(SERVER, SERVER + 2 * CLOCK_STEP, "5", away("a")))
            harness.wake()
        answer(harness, **{refused: QueueFullError("full")})
        assert harness.sleeps == 60
        harness.wake()


@pytest.mark.parametrize("noted", ["", "2025b", "2026b"])
def test_it_plans_schedules_anew_with_newer_time_zone_data(noted, caplog):
    caplog.set_level(logging.INFO, "delayq.schedules")
    harness = looking()
    answer(harness, schedules_page=page(SERVER, SERVER, "0", [], noted))
    harness.wake()
    answer(harness, schedules_page=page(SERVER, SERVER, "0", away("a", "b"), noted))
    harness.wake()
    answer(harness, schedule_put="10")
    harness.wake()
    answer(harness, HSET=None)
    assert harness.sleeps == 60
    assert caplog.messages == [
        f"time zone data 2026c, before {noted or 'unknown'}: planning the schedules anew",
        "planned anew: 1 schedule moved",
    ]


def test_it_warns_once_that_its_time_zone_data_is_older(caplog):
    harness = looking()
    for noted in ("2026d", "2026d", "2027a"):
        answer(harness, schedules_page=page(SERVER, SERVER, "0", [], noted))
        assert harness.sleeps == 60
        harness.wake()
    assert caplog.messages == [
        f"the time zone data of this machine is 2026c, but the schedules were planned with {noted}: update the tzdata"
        " of the system, or of Python where the system has none"
        for noted in ("2026d", "2027a")
    ]


def test_unknown_time_zone_data_is_never_compared(monkeypatch, caplog):
    monkeypatch.setattr(schedule_replanning, "zone_release", lambda: "")
    harness = looking()
    answer(harness, schedules_page=page(SERVER, SERVER, "0", [], "2026d"))
    assert (harness.sleeps, caplog.messages) == (60, [])


def test_a_queue_without_schedules_is_never_asked_for_them():
    harness = LoopHarness()
    for _ in range(3):
        harness.wake()
        assert "schedules_due" not in harness.asked
        harness.reply()


def test_schedules_read_in_one_turn_fire_in_the_next():
    harness = woken()
    harness.reply(schedules_due=due(standing(headers={"a": "b"})), pending_to_ready=occurring(harness, 0))
    assert harness.sleeps == 0
    harness.wake()
    assert harness.asked[:3] == ["fire", "pending_to_ready", "ready_to_unack"]
    (row,) = fired(harness)
    time = SERVER // MINUTE * MINUTE + MINUTE
    assert row == (
        "s",
        "7",
        time,
        SERVER,
        2,
        b"P",
        b'{"a":"b","schedule":"s"}',
        f"s@2023-11-14T22:13:20Z {SERVER}",
        "",
        b"",
    )
    harness.reply(fire="1", pending_to_ready=occurring(harness, 40))
    assert harness.sleeps == 1


def test_occurrence_is_fired_slightly_early():
    harness = woken()
    harness.reply(schedules_due=due(standing(at=SERVER + FIRE_AHEAD)))
    harness.wake()
    assert fired(harness)[0].occurrences.endswith(f" {SERVER + FIRE_AHEAD}")


def test_it_reads_more_schedules_while_it_fires():
    harness = woken()
    harness.reply(schedules_due=due(standing(), complete=False))
    harness.wake()
    assert harness.asked[:2] == ["fire", "schedules_due"]
    assert harness.ask("schedules_due").what[2] == 0
    harness.reply(fire="1", schedules_due=due(standing("t")))
    harness.wake()
    assert harness.asked[0] == "fire"
    assert fired(harness)[0].name == "t"


def test_it_fires_at_most_a_thousand_messages_at_a_time_and_one_schedule_at_least():
    many = standing("many", SERVER - 900 * 1000, every=1000, late_after=3_600_000)
    harness = woken()
    harness.reply(schedules_due=due(many, many._replace(name="more")))
    harness.wake()
    assert [row.name for row in fired(harness)] == ["many"]
    assert "schedules_due" in harness.asked


def test_a_full_consumer_fires_as_well():
    harness = LoopHarness(concurrency=1, prefetch=0)
    harness.hold("a", pending_to_ready=occurring(harness, 0.5))
    assert harness.sleeps == 0.5 - FIRE_AHEAD / 1000
    harness.wake()
    assert "schedules_due" in harness.asked


def test_stopping_consumer_fires_nothing():
    harness = woken()
    harness.reply(schedules_due=due(standing()))
    harness.stop(within=1)
    harness.wake()
    harness.tell()
    assert harness.ended


def test_a_burst_ends_when_what_is_due_has_been_fired():
    harness = LoopHarness(burst=True)
    harness.wake()
    harness.reply(pending_to_ready=occurring(harness, 0))
    harness.wake()
    harness.reply(schedules_due=due(standing()), pending_to_ready=occurring(harness, 0))
    harness.wake()
    harness.reply(fire="1", pending_to_ready=occurring(harness, 40, waiting=1), ready_to_unack=claimed("s@1"))
    harness.wake(after=0, done=[harness.done("s@1")])
    harness.reply(ack="1", pending_to_ready=occurring(harness, 40))
    while not harness.ended:
        harness.wake()
        harness.reply(pending_to_ready=occurring(harness, 40))
    assert harness.now < LOCAL + 1


# Errors


def cannot(name: str, revision: str = "7") -> StoredSchedule:
    return StoredSchedule(name, SERVER, b"{}\n", revision, 0, 0, False)


def errors(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_unfireable_schedule_is_logged_once_and_skipped_for_a_tick(caplog):
    harness = woken(tick=2)
    harness.reply(schedules_due=due(cannot("bad")), pending_to_ready=occurring(harness, 0))
    assert harness.sleeps == 2
    harness.wake()
    assert "fire" not in harness.asked
    harness.reply(schedules_due=due(cannot("bad")), pending_to_ready=occurring(harness, -2))
    assert harness.sleeps == 2
    (told,) = errors(caplog)
    assert told.startswith("schedule bad cannot be fired here: its definition cannot be read")
    harness.wake()
    harness.reply(schedules_due=due(cannot("bad", "8")), pending_to_ready=occurring(harness, -4))
    assert len(errors(caplog)) == 2


def test_unfireable_schedule_does_not_block_others():
    harness = woken()
    harness.reply(schedules_due=due(cannot("bad"), standing()), pending_to_ready=occurring(harness, 0))
    assert harness.sleeps == 0
    harness.wake()
    assert [row.name for row in fired(harness)] == ["s"]


def test_page_of_unfireable_schedules_is_skipped():
    harness = woken()
    bad = [cannot(f"bad{n}") for n in range(MAX_SCHEDULES)]
    harness.reply(schedules_due=due(*bad, complete=False), pending_to_ready=occurring(harness, 0))
    assert harness.sleeps == 0
    harness.wake()
    assert harness.ask("schedules_due").what[2] == MAX_SCHEDULES
    harness.reply(schedules_due=due(standing()), pending_to_ready=occurring(harness, 0))
    harness.wake()
    assert harness.asked[0] == "fire"
    harness.reply(fire="1", pending_to_ready=occurring(harness, 0))
    harness.wake()
    assert harness.ask("schedules_due").what[2] == 0


def test_schedule_that_waits_for_the_end_of_a_message_holds_up_no_other():
    harness = woken()
    held, other = standing("held", overlap="after"), standing("other")
    harness.reply(schedules_due=due(held, other), pending_to_ready=occurring(harness, 0))
    harness.wake()
    harness.reply(fire="21", pending_to_ready=occurring(harness, 0))
    harness.wake()
    harness.reply(schedules_due=due(held), pending_to_ready=occurring(harness, 0))
    harness.wake()
    harness.reply(fire="2", pending_to_ready=occurring(harness, 0))
    assert harness.sleeps == HELD_WAIT < FIRE_AHEAD / 1000
    harness.wake()
    assert harness.asked[0] == "schedules_due"


def test_page_of_schedules_that_wait_is_skipped():
    harness = woken()
    page = [standing(f"held{n}", overlap="after") for n in range(MAX_SCHEDULES)]
    harness.reply(schedules_due=due(*page, complete=False), pending_to_ready=occurring(harness, 0))
    harness.wake()
    harness.reply(
        fire="2" * MAX_SCHEDULES, schedules_due=due(*page, complete=False), pending_to_ready=occurring(harness, 0)
    )
    harness.wake()
    assert harness.ask("schedules_due").what[2] == MAX_SCHEDULES
    harness.reply(
        fire="2" * MAX_SCHEDULES, schedules_due=due(standing("other")), pending_to_ready=occurring(harness, 0)
    )
    harness.wake()
    assert [row.name for row in fired(harness)] == ["other"]


def test_skipped_occurrence_is_logged(caplog):
    caplog.set_level(logging.INFO, "delayq.schedules")
    harness = woken()
    harness.reply(schedules_due=due(standing("sweep", overlap="skip", fired=3)), pending_to_ready=occurring(harness, 0))
    harness.wake()
    harness.reply(fire="3", pending_to_ready=occurring(harness, 60))
    assert caplog.messages == [
        "schedule sweep: an occurrence is skipped, as the message of the one before has not ended"
    ]


def test_without_cronsim_a_cron_schedule_is_left_to_others(monkeypatch, caplog):
    monkeypatch.setattr("delayq.schedules.cron.cronsim", None)
    harness = woken()
    cron = standing("nightly", cron="1 2 3 4 *", every=0)
    harness.reply(schedules_due=due(cron, standing("sweep")), pending_to_ready=occurring(harness, 0))
    harness.wake()
    assert [row.name for row in fired(harness)] == ["sweep"]
    (told,) = errors(caplog)
    assert told == "schedule nightly cannot be fired here: cron expressions need cronsim: pip install 'delayq[cron]'"


@pytest.mark.parametrize("call", ["fire", "schedules_due"])
def test_refusal_is_logged_once_and_retried(call, caplog):
    harness = woken(tick=5)
    if call == "fire":
        harness.reply(schedules_due=due(standing()))
        harness.wake()
    for _ in range(3):
        refused = {call: QueueFullError("Redis is full"), "ready_to_unack": claimed(left=1)}
        harness.reply(**refused, pending_to_ready=occurring(harness, 0))
        harness.wake(after=0)
        assert harness.asked == ["ready_to_unack"]  # at once: schedules do not delay claims
        harness.reply()
        assert harness.sleeps == 1
        harness.wake()
        assert "schedules_due" in harness.asked
        if call == "fire":
            harness.reply(schedules_due=due(standing()), pending_to_ready=occurring(harness, 0))
            harness.wake()
    assert errors(caplog) == ["Redis refused to fire schedules, retrying every 1 s: Redis is full"]


def test_missed_occurrences_are_logged_by_the_firing_consumer(caplog):
    late = standing(at=SERVER - 10 * MINUTE)
    for status, told in (("0", 0), ("1", 1)):
        harness = woken()
        harness.reply(schedules_due=due(late))
        harness.wake()
        harness.reply(fire=status)
        assert caplog.text.count("schedule s: occurrences were missed, catching up with 2") == told


def test_early_poll_is_not_repeated_at_once():
    harness = woken()
    harness.reply(schedules_due=due(), pending_to_ready=occurring(harness, 0))
    assert harness.sleeps == 0.005
