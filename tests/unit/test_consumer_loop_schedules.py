"""When a consumer reads schedules and fires them, and what keeps it from it."""

from __future__ import annotations

import logging

import pytest

from delayq.answers import Promoted
from delayq.errors import QueueFullError
from delayq.flows.recurring import AHEAD, AT_ONCE
from delayq.schedules.definition import Definition, _encode
from delayq.schedules.standing import DueSchedules, Standing
from tests.support.flow import LOCAL, SERVER, Play, claimed, promoted

MINUTE = 60_000


def standing(name="s", at=SERVER, revision="7", fired=0, payload=b"P", **definition) -> Standing:
    spec = _encode(Definition(**{"retries": 2, "every": MINUTE} | definition)) + b"\n" + payload
    return Standing(name, at, spec, revision, fired, 0, False)


def due(*schedules: Standing, now=SERVER, complete=True) -> DueSchedules:
    return DueSchedules(now, complete, list(schedules))


def occurring(play: Play, seconds: float, **options) -> Promoted:
    """Return a promotion that says when the next schedule occurs."""
    return promoted(next_schedule=play.server(play.now + seconds), **options)


def woken(seconds: float = 0.0, **options) -> Play:
    """Return a play whose consumer knows when the next schedule occurs, and was woken in time for it."""
    play = Play(**options)
    play.wake()
    play.answer(pending_to_ready=occurring(play, seconds), ready_to_unack=claimed())
    play.wake()
    return play


def test_it_sleeps_until_a_little_before_the_next_occurrence():
    play = Play(tick=60)
    play.wake()
    play.answer(pending_to_ready=occurring(play, 5))
    assert play.sleeps == 5 - AHEAD / 1000
    play.wake()
    assert play.asked == ["schedules_due", "pending_to_ready", "ready_to_unack"]
    assert play.ask("schedules_due").options == {"ahead": AHEAD, "offset": 0, "limit": AT_ONCE, "room": 1 << 20}


def test_a_queue_without_schedules_is_never_asked_for_them():
    play = Play()
    for _ in range(3):
        play.wake()
        assert "schedules_due" not in play.asked
        play.answer()


def test_what_it_has_read_it_fires_in_the_next_turn():
    play = woken()
    play.answer(schedules_due=due(standing(headers={"a": "b"})), pending_to_ready=occurring(play, 0))
    assert play.sleeps == 0
    play.wake()
    assert play.asked[:3] == ["fire", "pending_to_ready", "ready_to_unack"]
    (row,) = play.ask("fire").what
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
    )
    play.answer(fire="1", pending_to_ready=occurring(play, 40))
    assert play.sleeps == 1


def test_what_is_not_due_yet_is_fired_a_little_ahead():
    play = woken()
    play.answer(schedules_due=due(standing(at=SERVER + AHEAD)))
    play.wake()
    assert play.ask("fire").what[0].occurrences.endswith(f" {SERVER + AHEAD}")


def test_with_more_to_read_it_reads_on_while_it_fires():
    play = woken()
    play.answer(schedules_due=due(standing(), complete=False))
    play.wake()
    assert play.asked[:2] == ["fire", "schedules_due"]
    assert play.ask("schedules_due").options["offset"] == 0
    play.answer(fire="1", schedules_due=due(standing("t")))
    play.wake()
    assert play.asked[0] == "fire"
    assert play.ask("fire").what[0].name == "t"


def test_it_fires_at_most_a_thousand_messages_at_a_time_and_one_schedule_at_least():
    many = standing("many", SERVER - 900 * 1000, every=1000, late_after=3_600_000)
    play = woken()
    play.answer(schedules_due=due(many, many._replace(name="more")))
    play.wake()
    assert [row.name for row in play.ask("fire").what] == ["many"]
    assert "schedules_due" in play.asked


def test_a_full_consumer_fires_as_well():
    play = Play(concurrency=1, prefetch=0)
    play.hold("a", pending_to_ready=occurring(play, 0.5))
    assert play.sleeps == 0.4
    play.wake()
    assert "schedules_due" in play.asked


def test_while_it_stops_it_fires_nothing():
    play = woken()
    play.answer(schedules_due=due(standing()))
    play.stop(within=1)
    play.wake()
    play.tell()
    assert play.ended


def test_a_burst_ends_when_what_is_due_has_been_fired():
    play = Play(burst=True)
    play.wake()
    play.answer(pending_to_ready=occurring(play, 0))
    play.wake()
    play.answer(schedules_due=due(standing()), pending_to_ready=occurring(play, 0))
    play.wake()
    play.answer(fire="1", pending_to_ready=occurring(play, 40, waiting=1), ready_to_unack=claimed("s@1"))
    play.wake(after=0, done=[play.done("s@1")])
    play.answer(ack="1", pending_to_ready=occurring(play, 40))
    while not play.ended:
        play.wake()
        play.answer(pending_to_ready=occurring(play, 40))
    assert play.now < LOCAL + 1


# What goes wrong


def cannot(name: str, revision: str = "7") -> Standing:
    return Standing(name, SERVER, b"{}\n", revision, 0, 0, False)


def errors(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_one_that_cannot_be_fired_here_is_told_once_and_left_to_others_for_a_tick(caplog):
    play = woken(tick=2)
    play.answer(schedules_due=due(cannot("bad")), pending_to_ready=occurring(play, 0))
    assert play.sleeps == 2
    play.wake()
    assert "fire" not in play.asked
    play.answer(schedules_due=due(cannot("bad")), pending_to_ready=occurring(play, -2))
    assert play.sleeps == 2
    (told,) = errors(caplog)
    assert told.startswith("schedule bad cannot be fired here: its definition cannot be read")
    play.wake()
    play.answer(schedules_due=due(cannot("bad", "8")), pending_to_ready=occurring(play, -4))
    assert len(errors(caplog)) == 2


def test_it_keeps_none_of_the_others_from_being_fired():
    play = woken()
    play.answer(schedules_due=due(cannot("bad"), standing()), pending_to_ready=occurring(play, 0))
    assert play.sleeps == 0
    play.wake()
    assert [row.name for row in play.ask("fire").what] == ["s"]


def test_a_page_full_of_them_is_passed_over():
    play = woken()
    bad = [cannot(f"bad{n}") for n in range(AT_ONCE)]
    play.answer(schedules_due=due(*bad, complete=False), pending_to_ready=occurring(play, 0))
    assert play.sleeps == 0
    play.wake()
    assert play.ask("schedules_due").options["offset"] == AT_ONCE
    play.answer(schedules_due=due(standing()), pending_to_ready=occurring(play, 0))
    play.wake()
    assert play.asked[0] == "fire"
    play.answer(fire="1", pending_to_ready=occurring(play, 0))
    play.wake()
    assert play.ask("schedules_due").options["offset"] == 0


def test_without_cronsim_a_cron_schedule_is_left_to_others(monkeypatch, caplog):
    def missing(*_: object) -> None:
        from delayq.errors import ConfigurationError

        raise ConfigurationError("cron expressions need cronsim: pip install 'delayq[cron]'")

    monkeypatch.setattr("delayq.schedules.timetable._simulator", missing)
    play = woken()
    cron = standing("nightly", cron="1 2 3 4 *", every=0)
    play.answer(schedules_due=due(cron, standing("sweep")), pending_to_ready=occurring(play, 0))
    play.wake()
    assert [row.name for row in play.ask("fire").what] == ["sweep"]
    (told,) = errors(caplog)
    assert told == "schedule nightly cannot be fired here: cron expressions need cronsim: pip install 'delayq[cron]'"


@pytest.mark.parametrize("call", ["fire", "schedules_due"])
def test_a_refusal_is_told_once_and_tried_again_while_all_else_goes_on(call, caplog):
    play = woken(tick=5)
    if call == "fire":
        play.answer(schedules_due=due(standing()))
        play.wake()
    for _ in range(3):
        refused = {call: QueueFullError("Redis is full"), "ready_to_unack": claimed(left=1)}
        play.answer(**refused, pending_to_ready=occurring(play, 0))
        play.wake(after=0)
        assert play.asked == ["pending_to_ready", "ready_to_unack"]  # at once, for it is not kept from claiming
        play.answer(pending_to_ready=occurring(play, 0))
        assert play.sleeps == 1
        play.wake()
        assert "schedules_due" in play.asked
        if call == "fire":
            play.answer(schedules_due=due(standing()), pending_to_ready=occurring(play, 0))
            play.wake()
    assert errors(caplog) == ["Redis refused to fire schedules, trying again: Redis is full"]


def test_what_was_missed_is_told_by_who_fires_it(caplog):
    late = standing(at=SERVER - 10 * MINUTE)
    for digit, told in (("0", 0), ("1", 1)):
        play = woken()
        play.answer(schedules_due=due(late))
        play.wake()
        play.answer(fire=digit)
        assert caplog.text.count("schedule s: occurrences were missed, 2 are made up for") == told


def test_a_look_that_came_a_little_early_is_not_followed_by_another_at_once():
    play = woken()
    play.answer(schedules_due=due(), pending_to_ready=occurring(play, 0))
    assert play.sleeps == 0.005
