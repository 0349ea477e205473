"""A turn makes only the calls for which there is a reason, and settlements go together."""

from itertools import pairwise

import pytest

from delayq.errors import ServerError
from delayq.worker.delivery.disposition import Disposition
from delayq.worker.loop.consumer_loop import MAX_SETTLE_WAIT
from tests.support.loop_harness import LoopHarness, claimed, promoted


def consumer_with(*ids, took=0.0, left=0, **options):
    """A consumer whose workers have taken up these messages, and whose callbacks usually take so long."""
    harness = LoopHarness(concurrency=len(ids), **{"prefetch": 0} | options)
    harness.wake()
    harness.reply(ready_to_unack=claimed(*ids, left=left))
    harness.begin(*ids)
    return harness


def test_a_settlement_with_nothing_else_to_do_is_a_single_call():
    harness = consumer_with("a")
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.asked == ["ack"]
    harness.reply()
    assert harness.sleeps == 0.9  # until the tick


@pytest.mark.parametrize("end", [Disposition.NACK, Disposition.REJECT, Disposition.RELEASE])
def test_after_it_has_returned_a_message_it_asks_what_is_due_next(end):
    harness = consumer_with("a")
    harness.wake(after=0.1, done=[harness.done("a", end)])
    assert harness.asked == [end.name.lower(), "pending_to_ready"]


def test_a_message_settled_by_hand_may_be_due_again():
    harness = consumer_with("a", "b")
    harness.wake(after=0.1, done=[harness.done("a", Disposition.NOTHING)])
    assert harness.asked == ["pending_to_ready"]


def test_with_enough_ready_nothing_is_promoted():
    harness = LoopHarness(concurrency=1, prefetch=0)
    harness.wake()
    due = promoted(waiting=2, next_due=harness.server(harness.now))
    harness.reply(pending_to_ready=due, ready_to_unack=claimed("a", left=1))
    harness.begin("a")
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.asked == ["ack", "ready_to_unack"]
    harness.reply(ready_to_unack=claimed("b", left=0))
    harness.begin("b")
    harness.wake(after=0.1, done=[harness.done("b")])
    assert harness.asked == ["ack", "pending_to_ready", "ready_to_unack"]


def test_a_tick_without_anything_due_claims_nothing():
    harness = consumer_with("a", lease=600)
    harness.wake()
    assert harness.asked == ["pending_to_ready"]


@pytest.mark.table(
    ("took", "waits"),
    [(0.0, 0.0), (0.001, 0.0001), (0.01, 0.001), (0.02, 0.002), (60.0, MAX_SETTLE_WAIT), (None, 0.0)],
)
def test_a_settlement_waits_for_others_for_a_tenth_of_its_callbacks_time_at_most(took, waits):
    harness = consumer_with("a", "b", lease=600)
    harness.wake(after=0.1, done=[harness.done("a", took=took)])
    assert (harness.sleeps if waits else harness.asked) == (waits or ["ack"])


def test_settlements_that_come_close_together_are_one_call():
    harness = consumer_with("a", "b", "c")
    harness.wake(after=0.1, done=[harness.done("a", took=0.01)])
    harness.wake(after=0.0004, done=[harness.done("b", took=0.01)])
    assert harness.sleeps == 0.0006  # the second does not delay the first
    harness.wake()
    assert harness.ask("ack").what == harness.receipts("a", "b")


def test_the_last_settlement_waits_for_nobody():
    harness = consumer_with("a")
    harness.wake(after=0.1, done=[harness.done("a", took=60.0)])
    assert harness.asked == ["ack"]


def test_waiting_settlements_never_delay_a_claim():
    harness = consumer_with("a", "b", left=1)
    harness.wake(after=0.1, done=[harness.done("a", took=60.0)])
    assert harness.asked == ["ack", "ready_to_unack"]


def test_a_settlement_that_redis_refuses_is_sent_again_after_the_pause():
    harness = consumer_with("a", "b")
    harness.wake(after=0.1, done=[harness.done("a", took=0.01)])
    harness.wake()
    harness.reply(ack=ServerError("refused"))
    assert harness.sleeps == 1
    harness.wake()
    assert harness.ask("ack").what == harness.receipts("a")


def test_prefetch_is_filled_up_when_half_of_it_is_used():
    ids = [f"m{n}" for n in range(11)]
    harness = LoopHarness(concurrency=1, prefetch=10)
    harness.wake()
    harness.reply(ready_to_unack=claimed(*ids, left=100))
    harness.begin(ids[0])
    asked = []
    for id, following in pairwise(ids[:6]):
        harness.begin(following)
        harness.wake(after=0.01, done=[harness.done(id)])
        asked.append(harness.asked)
        if len(asked) < 5:
            harness.reply()
    assert asked == [["ack"]] * 4 + [["ack", "ready_to_unack"]]
    assert harness.ask("ready_to_unack").what == 5


def test_a_free_worker_claims_however_much_is_prefetched():
    harness = LoopHarness(concurrency=3, prefetch=10)
    harness.wake()
    harness.reply(ready_to_unack=claimed("a", "b", left=100))
    harness.begin("a", "b")
    assert harness.capacity == 11
