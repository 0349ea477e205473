"""A burst ends when no message is due any more, and not before."""

import pytest

from delayq.broker.replies import CollectReply, ExpireReply
from delayq.errors import ServerError
from delayq.worker.delivery.disposition import Disposition
from tests.support.loop_harness import LoopHarness, claimed, promoted


def begun(**options):
    harness = LoopHarness(burst=True, tick=1, **options)
    harness.wake()
    return harness


def drained(harness):
    """Run the loop until it ends or sleeps."""
    for _ in range(5):
        if harness.ended:
            return True
        if harness.sleeps:
            return False
        harness.wake()
        harness.reply()
    raise AssertionError("it does not come to rest")


def test_burst_on_an_empty_queue_ends_after_one_poll():
    harness = begun()
    harness.reply()
    assert harness.ended


def test_burst_with_only_later_messages_ends():
    harness = begun()
    harness.reply(pending_to_ready=promoted(next_due=harness.server(harness.now + 0.5)))
    assert harness.ended


def test_burst_processes_ready_messages_first():
    harness = begun()
    harness.reply(pending_to_ready=promoted(moved=1, waiting=1), ready_to_unack=claimed("a"))
    assert not harness.ended
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.in_flight == ["a"]
    harness.reply()
    assert drained(harness)


def test_it_does_not_end_while_a_callback_runs():
    harness = begun()
    harness.reply(ready_to_unack=claimed("a"))
    for _ in range(5):
        harness.wake()
        harness.reply()
        assert not harness.ended


def test_it_does_not_end_before_its_settlements_have_replies():
    harness = begun()
    harness.reply(ready_to_unack=claimed("a"))
    harness.wake(after=0.1, done=[harness.done("a")])
    harness.reply(ack=ServerError("ack: WRONGTYPE"))
    assert not harness.ended
    harness.wake()
    harness.reply()
    assert drained(harness)


def test_it_polls_again_after_a_settlement_by_hand_during_the_poll():
    harness = begun()
    harness.reply(ready_to_unack=claimed("a"))
    harness.wake()
    harness.reply(pending_to_ready=promoted(), done=[harness.done("a", Disposition.NOTHING)])
    assert not harness.ended
    assert harness.sleeps == 0
    harness.wake()
    harness.reply(pending_to_ready=promoted(waiting=1))
    harness.wake()
    assert harness.reply(ready_to_unack=claimed("a")) == ["a"]


def test_it_claims_messages_left_by_a_full_consumer():
    harness = begun(prefetch=0)
    harness.reply(pending_to_ready=promoted(waiting=2), ready_to_unack=claimed("a", left=1))
    harness.wake(after=0.1, done=[harness.done("a")])
    harness.reply(ready_to_unack=claimed("b", left=0))
    assert harness.in_flight == ["b"]
    assert not harness.ended
    harness.wake(after=0.1, done=[harness.done("b")])
    harness.reply()  # nothing is known to be left: it asks before it ends
    assert drained(harness)


@pytest.mark.parametrize(("back_in", "waits"), [(0.05, True), (1.0, True), (1.001, False), (60.0, False)])
def test_it_waits_for_retries_within_a_tick(back_in, waits):
    harness = begun()
    harness.reply(ready_to_unack=claimed("a"))
    harness.wake(after=0.1, done=[harness.done("a", Disposition.NACK, "boom", delay=round(back_in * 1000))])
    back_at = harness.now + back_in
    for _ in range(3):
        harness.reply(pending_to_ready=promoted(next_deadline=harness.server(back_at)))
        if harness.ended or harness.sleeps:
            break
        harness.wake()
    assert harness.ended is not waits
    if waits:
        assert harness.sleeps == back_in
        harness.wake()
        harness.reply(pending_to_ready=promoted(waiting=1), ready_to_unack=claimed("a", token=8))
        assert harness.in_flight == ["a"]


def test_it_collects_spent_messages_before_it_ends():
    harness = begun()
    harness.reply(pending_to_ready=promoted(garbage=1))
    assert not harness.ended
    harness.wake()
    harness.reply(collect=CollectReply(1, 0, 0))
    assert drained(harness)


def test_a_message_due_at_this_moment_is_not_left_behind():
    harness = begun()
    harness.reply(pending_to_ready=promoted(next_due=harness.server(harness.now)))
    assert not harness.ended
    harness.wake()
    harness.reply(ready_to_unack=claimed("a"))
    assert harness.in_flight == ["a"]


def test_it_polls_again_after_settling():
    harness = begun()
    harness.reply(ready_to_unack=claimed("a"))
    harness.wake(after=0.1, done=[harness.done("a")])
    harness.reply()
    assert not harness.ended
    assert harness.sleeps == 0
    harness.wake()
    harness.reply(pending_to_ready=promoted(waiting=1))
    assert not harness.ended


def test_messages_returned_by_another_consumer_are_not_left_behind():
    harness = begun()
    harness.reply(ready_to_unack=claimed(left=1))
    assert not harness.ended


def test_with_a_stopped_clock_it_does_not_wait_for_deadlines():
    harness = LoopHarness(burst=True, tick=1)
    harness.frozen = True
    harness.wake()
    harness.reply(ready_to_unack=claimed("a"))
    harness.wake(after=0.1, done=[harness.done("a", Disposition.NACK, "boom")])
    for _ in range(9):
        harness.reply(pending_to_ready=promoted(next_deadline=harness.server(0) + 50))
        if harness.ended:
            break
        harness.wake()
    assert harness.ended


def test_with_a_stopped_clock_messages_moved_after_promotion_are_not_left_behind():
    harness = LoopHarness(burst=True, tick=1)
    harness.frozen = True
    harness.wake()
    harness.reply(pending_to_ready=promoted(next_deadline=harness.server(harness.now)))
    harness.wake(after=0.1)
    harness.reply(
        unack_to_retry=ExpireReply(1, 0, -1), pending_to_ready=promoted(next_deadline=harness.server(harness.now))
    )
    assert not harness.ended
    harness.wake()
    harness.reply(pending_to_ready=promoted(waiting=1), ready_to_unack=claimed("a"))
    assert harness.in_flight == ["a"]


def test_error_does_not_end_a_burst():
    harness = begun()
    harness.reply(pending_to_ready=ServerError("LOADING"))
    assert not harness.ended
    harness.wake()
    harness.reply()
    assert drained(harness)


def test_without_burst_it_never_ends_by_itself():
    harness = LoopHarness()
    harness.wake()
    for _ in range(5):
        harness.reply()
        harness.wake()
    assert not harness.ended
