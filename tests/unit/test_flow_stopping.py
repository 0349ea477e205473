"""A stop drains: what has not started goes back, what runs is waited for, what is cut off is nacked."""

import logging

import pytest

from delayq.errors import OutcomeUnknown, ServerError
from delayq.script import MOST_MOVED
from delayq.values import Failure
from delayq.verdict import Verdict
from tests.support.flow import TOKEN, Play, claimed, promoted

REFUSED = ServerError("release: WRONGTYPE")


def holding(*ids, running=(), **options):
    play = Play(concurrency=len(ids) or 1, **options)
    play.wake()
    assert play.answer(ready_to_unack=claimed(*ids, left=3), pending_to_ready=promoted(waiting=3)) == list(ids)
    play.begin(*running)
    return play


def stopped(*ids, running=(), grace=30.0, **options):
    """A consumer that has been asked to stop and has taken back what had not started."""
    play = holding(*ids, running=running, **options)
    play.stop(grace)
    play.wake(after=0.0)
    assert play.recalls
    play.tell(recalled=[id for id in ids if id not in running])
    return play


def test_an_idle_consumer_ends_at_once():
    assert stopped().ended


def test_a_stop_before_the_first_turn_ends_it():
    play = Play()
    play.stop(30)
    play.wake()
    assert play.recalls
    play.tell()
    assert play.ended


def test_a_wake_up_that_comes_with_a_stop_is_passed_on():
    play = Play()
    play.stop(30)
    play.wake(after=0.0, signalled=True)
    play.tell()
    assert not play.listens
    play.wake(after=0.0)
    assert play.asked == ["ready_to_unack"]
    assert play.ask("ready_to_unack").what == 0
    play.answer()
    assert play.ended


def test_wake_ups_that_come_with_the_last_answers_are_passed_on():
    play = stopped("a")
    play.tell(answers=[play._answer(ask, None) for ask in play._turn.calls], signalled=True)
    play.wake(after=0.0)
    for signalled in (True, False):
        assert play.asked == ["ready_to_unack"]
        play.tell(answers=[play._answer(ask, None) for ask in play._turn.calls], signalled=signalled)
    assert play.ended


def test_what_has_not_started_is_released_and_nothing_is_claimed_any_more():
    play = stopped("a", "b", "c", running=["a"])
    assert play.asked == ["release"]
    assert play.ask("release").what == play.receipts("b", "c")
    play.answer()
    assert play.held == ["a"]


def test_with_nothing_running_the_end_comes_with_the_answer():
    play = stopped("a", "b")
    play.answer()
    assert play.ended


def test_running_callbacks_are_waited_for_without_listening():
    play = stopped("a", running=["a"], grace=30, lease=60)
    assert not play.listens
    play.wake(after=3, done=[play.done("a")])
    assert play.asked == ["ack"]
    play.answer()
    assert play.ended


@pytest.mark.parametrize("prefetch", [0, 5])
def test_waiting_for_callbacks_is_one_long_sleep_however_much_the_queue_holds(prefetch):
    play = stopped("a", running=["a"], grace=5, lease=60, prefetch=prefetch)
    assert play.sleeps == 5


def test_waiting_for_callbacks_does_not_spin_once_an_old_deadline_has_passed():
    play = Play(lease=30, max_consume_duration=600)
    play.wake()
    play.answer(ready_to_unack=claimed("a"))
    play.wake(after=0.1)
    play.answer(pending_to_ready=promoted(next_deadline=play.server(play.now + 2)))
    play.begin("a")
    play.stop(60)
    play.wake(after=0.1)
    play.tell()
    naps = 0
    while not play.abandons:
        naps += 1
        assert naps < 20
        assert play.sleeps > 0
        play.wake()
        if not play.abandons and play._turn:
            play.answer()


def test_leases_are_renewed_while_a_stop_waits():
    play = stopped("a", running=["a"], grace=30, lease=9)
    assert play.sleeps == 3
    play.wake()
    assert play.ask("extend").what == play.receipts("a")


def test_what_outlasts_the_grace_is_cut_off_and_nacked():
    play = stopped("a", "b", running=["a", "b"], grace=2)
    play.wake()
    assert play.abandons
    play.tell()
    assert play.ask("nack").what == [Failure(id, TOKEN, 50, "cut off by a stop") for id in ("a", "b")]
    play.answer()
    assert play.ended


def test_a_callback_that_ends_while_it_is_cut_off_is_nacked_once():
    play = stopped("a", running=["a"], grace=2)
    play.wake()
    verdict = play.done("a", Verdict.NACK, "cancelled")
    play.tell()
    assert play.ask("nack").what == [Failure("a", TOKEN, 50, "cut off by a stop")]
    play.tell(answers=["1"], done=[verdict])
    assert play.ended


def test_no_grace_cuts_off_at_once():
    play = stopped("a", running=["a"], grace=0)
    assert play.abandons


def test_a_second_stop_shortens_the_wait():
    play = stopped("a", running=["a"], grace=30, lease=300)
    assert play.sleeps == 30
    play.wake(after=1)
    play.stop(0)
    play.wake(after=0)
    assert play.abandons


def test_what_was_owed_before_is_settled_too():
    play = holding("a", "b", running=["a", "b"])
    play.stop(30)
    play.wake(after=0.1, done=[play.done("a")])
    assert play.recalls
    play.tell(done=[play.done("b", Verdict.NACK, "boom")])
    assert play.asked == ["ack", "nack"]
    play.answer()
    assert play.ended


def test_many_are_released_in_slices():
    ids = [f"m{n}" for n in range(1000)]
    more = [f"n{n}" for n in range(200)]
    play = Play(concurrency=2000, prefetch=0)
    play.wake()
    play.answer(ready_to_unack=claimed(*ids, left=200))
    play.wake()
    play.answer(ready_to_unack=claimed(*more))
    play.stop(30)
    play.wake(after=0)
    play.tell(recalled=[*ids, *more])
    for wanted in (MOST_MOVED, MOST_MOVED):
        assert len(play.ask("release").what) == wanted
        play.answer()
        assert play.sleeps == 0
        play.wake()
    assert len(play.ask("release").what) == 200
    play.answer()
    assert play.ended


def test_a_refused_release_is_sent_again_after_a_rest():
    play = stopped("a", "b", running=["b"], grace=30, lease=60)
    play.answer(release=REFUSED)
    assert play.sleeps == 1
    play.wake()
    assert play.ask("release").what == play.receipts("a")


def test_a_refused_release_is_waited_for_within_the_grace_even_with_nothing_running():
    play = stopped("a", grace=2.5)
    play.answer(release=REFUSED)
    assert play.sleeps == 1
    play.wake()
    play.answer(release=REFUSED)
    play.wake()
    play.answer()
    assert play.ended


def test_the_rest_after_a_refusal_does_not_outlast_the_grace():
    play = stopped("a", grace=0.4)
    play.answer(release=REFUSED)
    assert play.sleeps == 0.4


def test_what_is_cut_off_is_nacked_although_a_call_was_refused_just_before():
    play = stopped("a", "b", running=["b"], grace=0.5)
    play.answer(release=REFUSED)
    play.wake()
    assert play.abandons
    play.tell()
    assert play.asked == ["nack", "release"]
    play.answer()
    assert play.ended


def test_settlements_that_could_not_be_sent_are_reported_at_the_end(caplog):
    play = stopped("a", "b", running=["b"], grace=0.5)
    play.answer(release=REFUSED)
    play.wake()
    play.tell()
    caplog.clear()
    play.answer(release=OutcomeUnknown("silence"), nack=OutcomeUnknown("silence"))
    assert play.ended
    assert "2 settlements unsent" in caplog.text
    assert caplog.records[-1].levelno == logging.ERROR


def test_a_clean_stop_reports_nothing(caplog):
    play = stopped("a", running=["a"])
    play.wake(after=1, done=[play.done("a")])
    play.answer()
    assert play.ended
    assert not caplog.records


def test_a_stop_that_comes_during_a_round_trip_takes_back_what_it_brought():
    play = Play(concurrency=2)
    play.wake()
    play.stop(30)
    assert play.answer(ready_to_unack=claimed("a", "b")) == ["a", "b"]
    play.wake()
    assert play.recalls
    play.tell(recalled=["a", "b"])
    assert play.ask("release").what == play.receipts("a", "b")


def test_a_burst_can_be_stopped():
    play = Play(burst=True)
    play.wake()
    play.answer(ready_to_unack=claimed("a"))
    play.stop(30)
    play.wake(after=0)
    play.tell(recalled=["a"])
    play.answer()
    assert play.ended
