"""What is due goes straight from pending to the consumer, unless something has to be promoted or looked at first."""

import pytest

from delayq.broker.replies import TurnReply
from delayq.worker.delivery.disposition import Disposition
from delayq.worker.parts.schedule_firing import FIRE_AHEAD
from tests.support.loop_harness import SERVER, LoopHarness, claimed, promoted


def consumer(**options):
    """A consumer that knows that the queue is empty."""
    harness = LoopHarness(**{"promotes": False, "concurrency": 2, "prefetch": 0} | options)
    harness.wake()
    harness.reply()
    return harness


def due_claimed(harness, *ids, due_in=None, deadline_in=None, schedule_in=None, left=0):
    """A reply to a claim from pending, at the harness's time; the times in seconds."""
    times = {"next_due": due_in, "next_deadline": deadline_in, "next_schedule": schedule_in}
    known = {name: harness.server(harness.now + at) for name, at in times.items() if at is not None}
    return claimed(*ids, left=left)._replace(now=harness.server(harness.now), **known)


def test_the_first_turn_promotes():
    harness = LoopHarness(promotes=False)
    harness.wake()
    assert harness.asked == ["collect", "pending_to_ready", "ready_to_unack"]


def test_a_wakeup_is_answered_by_one_call():
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    assert harness.asked == ["pending_to_unack"]
    assert harness.ask("pending_to_unack").what == 2
    assert harness.ask("pending_to_unack").options == {"lease": 30_000, "consumer_id": "me"}
    assert harness.reply(pending_to_unack=due_claimed(harness, "a")) == ["a"]


def test_a_wakeup_of_a_queue_that_is_not_plain_is_answered_at_once_in_the_general_way():
    harness = consumer(plain=True)
    harness.wake(after=0.1, woken=True)
    assert harness.asked == ["turn"]
    harness.reply(turn=TurnReply("", None))
    assert harness.sleeps == 0
    harness.wake()
    assert harness.asked == ["pending_to_unack"]


def test_it_sleeps_until_the_next_message_is_due_and_claims_it():
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_unack=due_claimed(harness, due_in=0.25))
    assert harness.sleeps == 0.25
    harness.wake()
    assert harness.asked == ["pending_to_unack"]
    assert harness.reply(pending_to_unack=due_claimed(harness, "a", "b", due_in=0.0)) == ["a", "b"]
    assert harness.sleeps > 0  # it is full


def test_it_claims_again_at_once_while_more_is_due():
    harness = consumer(concurrency=5)
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_unack=due_claimed(harness, "a", "b", due_in=0.0))
    assert harness.sleeps == 0
    harness.wake()
    assert harness.asked == ["pending_to_unack"]


def test_what_waits_in_the_lists_is_promoted_to_and_claimed():
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_unack=due_claimed(harness, due_in=-1.0, left=1))
    assert harness.sleeps == 0
    harness.wake()
    assert harness.asked == ["pending_to_ready", "ready_to_unack"]


def test_what_waits_in_the_lists_is_claimed_with_nothing_due():
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_unack=due_claimed(harness, left=1))
    harness.wake()
    assert harness.asked == ["ready_to_unack"]


def test_where_messages_have_priorities_what_is_due_is_promoted_before_each_claim():
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_unack=due_claimed(harness, due_in=-1.0)._replace(ranks=True))
    harness.wake()
    assert harness.asked == ["pending_to_ready", "ready_to_unack"]
    harness.reply(pending_to_ready=promoted(moved=5, waiting=5), ready_to_unack=claimed("a", "b", left=3))
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.asked == ["ack", "pending_to_ready", "ready_to_unack"]  # something urgent may be due since
    harness.reply(pending_to_ready=promoted(waiting=3), ready_to_unack=claimed("c", left=2))
    harness.wake(after=0.1, woken=True)
    assert harness.asked[-1] == "ready_to_unack"  # it is full, and passes the wake-up on


def test_that_messages_have_priorities_is_learnt_from_a_promotion_and_kept():
    harness = LoopHarness(promotes=False, concurrency=2, prefetch=0)
    harness.wake()
    harness.reply(pending_to_ready=promoted(ranks=1))
    for _ in range(2):
        harness.wake(after=0.1, woken=True)
        assert harness.asked == ["pending_to_ready", "ready_to_unack"]
        harness.reply(pending_to_ready=promoted())


def test_with_the_tick_it_looks_at_everything():
    harness = consumer(tick=1)
    for _ in range(2):
        harness.wake(after=0.3, woken=True)
        assert harness.asked == ["pending_to_unack"]
        harness.reply(pending_to_unack=due_claimed(harness, due_in=0.3))
    harness.wake(after=0.4)
    assert harness.asked == ["pending_to_ready", "ready_to_unack"]


def test_a_full_consumer_passes_its_wakeup_on():
    harness = consumer(concurrency=1)
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_unack=due_claimed(harness, "a"))
    harness.begin("a")
    harness.wake(after=0.1, woken=True)
    assert harness.asked == ["pending_to_ready", "ready_to_unack"]
    assert harness.ask("ready_to_unack").what == 0


def test_settlements_go_before_the_claim():
    harness = consumer(concurrency=1)
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_unack=due_claimed(harness, "a", due_in=0.1))
    harness.begin("a")
    harness.wake(after=0.2, done=[harness.done("a")])
    assert harness.asked == ["ack", "pending_to_unack"]


@pytest.mark.parametrize("end", [Disposition.NACK, Disposition.RELEASE])
def test_after_it_has_returned_a_message_it_asks_what_is_due_next(end):
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_unack=due_claimed(harness, "a", due_in=0.1))
    harness.begin("a")
    harness.wake(after=0.1, done=[harness.done("a", end)])
    assert harness.asked == [end.name.lower(), "pending_to_ready", "ready_to_unack"]


def test_an_expired_lease_is_looked_for_first():
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_unack=due_claimed(harness, deadline_in=0.2))
    assert harness.sleeps == 0.2
    harness.wake()
    assert harness.asked == ["unack_to_retry", "pending_to_ready", "ready_to_unack"]


def test_it_fires_the_schedule_that_a_claim_has_told():
    harness = consumer()
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_unack=due_claimed(harness, schedule_in=0.5))
    assert harness.sleeps == 0.5 - FIRE_AHEAD / 1000  # an occurrence is stored a little before it is due
    harness.wake()
    assert "schedules_due" in harness.asked


def test_a_burst_promotes_before_it_says_that_nothing_is_left():
    harness = LoopHarness(promotes=False, burst=True, concurrency=2, prefetch=0)
    harness.wake()
    harness.reply(pending_to_ready=promoted(moved=1, waiting=1, next_due=SERVER), ready_to_unack=claimed("a"))
    harness.wake()
    assert harness.asked == ["pending_to_unack"]
    harness.reply(pending_to_unack=due_claimed(harness, "b"))
    harness.begin("a", "b")
    harness.wake(after=0.1, done=[harness.done("a"), harness.done("b")])
    assert harness.asked == ["ack", "pending_to_ready"]
    harness.reply()
    harness.wake()
    harness.reply()
    assert harness.ended
