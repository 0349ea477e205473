"""A burst ends when nothing is due any more, and not before."""

import pytest

from delayq.answers import Collected, Expired
from delayq.errors import ServerError
from delayq.verdict import Verdict
from tests.support.flow import Play, claimed, promoted


def begun(**options):
    play = Play(burst=True, tick=1, **options)
    play.wake()
    return play


def drained(play):
    """Let it look around until it ends, or sleeps."""
    for _ in range(5):
        if play.ended:
            return True
        if play.sleeps:
            return False
        play.wake()
        play.answer()
    raise AssertionError("it does not come to rest")


def test_an_empty_queue_ends_it_after_one_look():
    play = begun()
    play.answer()
    assert play.ended


def test_a_queue_with_only_later_messages_ends_it():
    play = begun()
    play.answer(pending_to_ready=promoted(next_due=play.server(play.now + 0.5)))
    assert play.ended


def test_it_processes_what_is_there_first():
    play = begun()
    play.answer(pending_to_ready=promoted(moved=1, waiting=1), ready_to_unack=claimed("a"))
    assert not play.ended
    play.wake(after=0.1, done=[play.done("a")])
    assert play.held == ["a"]
    play.answer()
    assert drained(play)


def test_it_does_not_end_while_a_callback_runs():
    play = begun()
    play.answer(ready_to_unack=claimed("a"))
    for _ in range(5):
        play.wake()
        play.answer()
        assert not play.ended


def test_it_does_not_end_before_its_settlements_are_answered():
    play = begun()
    play.answer(ready_to_unack=claimed("a"))
    play.wake(after=0.1, done=[play.done("a")])
    play.answer(ack=ServerError("ack: WRONGTYPE"))
    assert not play.ended
    play.wake()
    play.answer()
    assert drained(play)


def test_it_looks_once_more_after_a_callback_that_settled_by_hand_during_the_look():
    play = begun()
    play.answer(ready_to_unack=claimed("a"))
    play.wake()
    play.answer(pending_to_ready=promoted(), done=[play.done("a", Verdict.NOTHING)])
    assert not play.ended
    assert play.sleeps == 0
    play.wake()
    play.answer(pending_to_ready=promoted(waiting=1))
    play.wake()
    assert play.answer(pending_to_ready=promoted(waiting=1), ready_to_unack=claimed("a")) == ["a"]


def test_it_claims_what_a_full_consumer_left_behind():
    play = begun(prefetch=0)
    play.answer(pending_to_ready=promoted(waiting=2), ready_to_unack=claimed("a", left=1))
    play.wake(after=0.1, done=[play.done("a")])
    play.answer(pending_to_ready=promoted(waiting=1), ready_to_unack=claimed("b", left=0))
    assert play.held == ["b"]
    assert not play.ended


@pytest.mark.parametrize(("back_in", "waits"), [(0.05, True), (1.0, True), (1.001, False), (60.0, False)])
def test_it_waits_for_what_comes_back_within_a_tick(back_in, waits):
    play = begun()
    play.answer(ready_to_unack=claimed("a"))
    play.wake(after=0.1, done=[play.done("a", Verdict.NACK, "boom", delay=round(back_in * 1000))])
    back_at = play.now + back_in
    for _ in range(3):
        play.answer(pending_to_ready=promoted(next_deadline=play.server(back_at)))
        if play.ended or play.sleeps:
            break
        play.wake()
    assert play.ended is not waits
    if waits:
        assert play.sleeps == back_in
        play.wake()
        play.answer(pending_to_ready=promoted(waiting=1), ready_to_unack=claimed("a", token=8))
        assert play.held == ["a"]


def test_it_collects_what_is_spent_before_it_ends():
    play = begun()
    play.answer(pending_to_ready=promoted(garbage=1))
    assert not play.ended
    play.wake()
    play.answer(collect_garbage=Collected(1, 0, 0))
    assert drained(play)


def test_a_message_due_at_this_moment_is_not_left_behind():
    play = begun()
    play.answer(pending_to_ready=promoted(next_due=play.server(play.now)))
    assert not play.ended
    play.wake()
    play.answer(ready_to_unack=claimed("a"))
    assert play.held == ["a"]


def test_after_settling_it_looks_once_more():
    play = begun()
    play.answer(ready_to_unack=claimed("a"))
    play.wake(after=0.1, done=[play.done("a")])
    play.answer()
    assert not play.ended
    assert play.sleeps == 0
    play.wake()
    play.answer(pending_to_ready=promoted(waiting=1))
    assert not play.ended


def test_what_another_consumer_brought_back_between_its_calls_is_not_left_behind():
    play = begun()
    play.answer(ready_to_unack=claimed(left=1))
    assert not play.ended


def test_where_the_clock_stands_still_it_does_not_wait_for_what_cannot_come_back():
    play = Play(burst=True, tick=1)
    play.frozen = True
    play.wake()
    play.answer(ready_to_unack=claimed("a"))
    play.wake(after=0.1, done=[play.done("a", Verdict.NACK, "boom")])
    for _ in range(9):
        play.answer(pending_to_ready=promoted(next_deadline=play.server(0) + 50))
        if play.ended:
            break
        play.wake()
    assert play.ended


def test_what_a_server_moved_after_its_promotion_is_not_left_behind_where_its_clock_stands_still():
    play = Play(burst=True, tick=1)
    play.frozen = True
    play.wake()
    play.answer(pending_to_ready=promoted(next_deadline=play.server(play.now)))
    play.wake(after=0.1)
    play.answer(unack_to_retry=Expired(1, 0, -1), pending_to_ready=promoted(next_deadline=play.server(play.now)))
    assert not play.ended
    play.wake()
    play.answer(pending_to_ready=promoted(waiting=1), ready_to_unack=claimed("a"))
    assert play.held == ["a"]


def test_an_error_is_no_end():
    play = begun()
    play.answer(pending_to_ready=ServerError("LOADING"))
    assert not play.ended
    play.wake()
    play.answer()
    assert drained(play)


def test_without_burst_it_never_ends_by_itself():
    play = Play()
    play.wake()
    for _ in range(5):
        play.answer()
        play.wake()
    assert not play.ended
