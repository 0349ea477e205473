"""A stop drains: prefetched messages are released, running callbacks finish, cancelled ones go back uncharged."""

import logging

import pytest

from delayq.broker.requests import Release
from delayq.broker.scripts import MAX_MOVED
from delayq.errors import OutcomeUnknown, ServerError
from delayq.worker.delivery.disposition import Disposition
from tests.support.loop_harness import TOKEN, LoopHarness, claimed, promoted

REFUSED = ServerError("release: WRONGTYPE")


def consumer_with(*ids, running=(), **options):
    harness = LoopHarness(concurrency=len(ids) or 1, **options)
    harness.wake()
    assert harness.reply(ready_to_unack=claimed(*ids, left=3), pending_to_ready=promoted(waiting=3)) == list(ids)
    harness.begin(*running)
    return harness


def stopped(*ids, running=(), grace=30.0, **options):
    """A consumer that was asked to stop and has released its prefetched messages."""
    harness = consumer_with(*ids, running=running, **options)
    harness.stop(grace)
    harness.wake(after=0.0)
    assert harness.recalls
    harness.tell(withdrawn=[id for id in ids if id not in running])
    return harness


def test_idle_consumer_ends_at_once():
    assert stopped().ended


def test_a_stop_before_the_first_turn_ends_it():
    harness = LoopHarness()
    harness.stop(30)
    harness.wake()
    assert harness.recalls
    harness.tell()
    assert harness.ended


def test_wakeup_that_comes_with_a_stop_is_passed_on():
    harness = LoopHarness()
    harness.stop(30)
    harness.wake(after=0.0, woken=True)
    harness.tell()
    assert not harness.listens
    harness.wake(after=0.0)
    assert harness.asked == ["ready_to_unack"]
    assert harness.ask("ready_to_unack").what == 0
    harness.reply()
    assert harness.ended


def test_wakeups_with_the_last_replies_are_passed_on():
    harness = stopped("a")
    harness.tell(replies=[harness._answer(ask, None) for ask in harness._turn.calls], woken=True)
    harness.wake(after=0.0)
    for woken in (True, False):
        assert harness.asked == ["ready_to_unack"]
        harness.tell(replies=[harness._answer(ask, None) for ask in harness._turn.calls], woken=woken)
    assert harness.ended


def test_unstarted_messages_are_released_and_nothing_is_claimed():
    harness = stopped("a", "b", "c", running=["a"])
    assert harness.asked == ["release"]
    assert harness.ask("release").what == harness.releases("b", "c")
    harness.reply()
    assert harness.in_flight == ["a"]


def test_with_nothing_running_it_ends_with_the_reply():
    harness = stopped("a", "b")
    harness.reply()
    assert harness.ended


def test_running_callbacks_are_waited_for_without_listening():
    harness = stopped("a", running=["a"], grace=30, lease=60)
    assert not harness.listens
    harness.wake(after=3, done=[harness.done("a")])
    assert harness.asked == ["ack"]
    harness.reply()
    assert harness.ended


@pytest.mark.parametrize("prefetch", [0, 5])
def test_waiting_for_callbacks_is_one_long_sleep(prefetch):
    harness = stopped("a", running=["a"], grace=5, lease=60, prefetch=prefetch)
    assert harness.sleeps == 5


def test_waiting_for_callbacks_does_not_spin_once_an_old_deadline_has_passed():
    harness = LoopHarness(lease=30, max_consume_duration=600)
    harness.wake()
    harness.reply(ready_to_unack=claimed("a"))
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_ready=promoted(next_deadline=harness.server(harness.now + 2)))
    harness.begin("a")
    harness.stop(60)
    harness.wake(after=0.1)
    harness.tell()
    naps = 0
    while not harness.abandons:
        naps += 1
        assert naps < 20
        assert harness.sleeps > 0
        harness.wake()
        if not harness.abandons and harness._turn:
            harness.reply()


def test_leases_are_renewed_while_a_stop_waits():
    harness = stopped("a", running=["a"], grace=30, lease=9)
    assert harness.sleeps == 3
    harness.wake()
    assert harness.ask("extend").what == harness.receipts("a")


def test_callbacks_beyond_the_grace_are_cancelled_and_go_back_uncharged():
    harness = stopped("a", "b", running=["a", "b"], grace=2)
    harness.wake()
    assert harness.abandons
    assert harness.delivery("a").lost
    harness.tell()
    assert harness.ask("release").what == [Release(id, TOKEN, 0, b"snoozes=1") for id in ("a", "b")]
    harness.reply()
    assert harness.ended


def test_callback_that_fails_while_cancelled_is_not_charged():
    harness = stopped("a", running=["a"], grace=2)
    harness.wake()
    disposition = harness.done("a", Disposition.NACK, "cancelled")
    harness.tell()
    assert harness.ask("release").what == [Release("a", TOKEN, 0, b"snoozes=1")]
    harness.tell(replies=["1"], done=[disposition])
    assert harness.ended


def test_without_grace_callbacks_are_cancelled_at_once():
    harness = stopped("a", running=["a"], grace=0)
    assert harness.abandons


def test_a_second_stop_shortens_the_wait():
    harness = stopped("a", running=["a"], grace=30, lease=300)
    assert harness.sleeps == 30
    harness.wake(after=1)
    harness.stop(0)
    harness.wake(after=0)
    assert harness.abandons


def test_earlier_settlements_are_sent_too():
    harness = consumer_with("a", "b", running=["a", "b"])
    harness.stop(30)
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.recalls
    harness.tell(done=[harness.done("b", Disposition.NACK, "boom")])
    assert harness.asked == ["ack", "nack"]
    harness.reply()
    assert harness.ended


def test_many_messages_are_released_in_batches():
    ids = [f"m{n}" for n in range(1000)]
    more = [f"n{n}" for n in range(200)]
    harness = LoopHarness(concurrency=2000, prefetch=0)
    harness.wake()
    harness.reply(ready_to_unack=claimed(*ids, left=200))
    harness.wake()
    harness.reply(ready_to_unack=claimed(*more))
    harness.stop(30)
    harness.wake(after=0)
    harness.tell(withdrawn=[*ids, *more])
    for _ in range(1000 // MAX_MOVED):
        assert len(harness.ask("release").what) == MAX_MOVED
        harness.reply()
        assert harness.sleeps == 0
        harness.wake()
    assert len(harness.ask("release").what) == 200
    harness.reply()
    assert harness.ended


def test_refused_release_is_retried_after_a_pause():
    harness = stopped("a", "b", running=["b"], grace=30, lease=60)
    harness.reply(release=REFUSED)
    assert harness.sleeps == 1
    harness.wake()
    assert harness.ask("release").what == harness.releases("a")


def test_refused_release_is_retried_within_the_grace():
    harness = stopped("a", grace=2.5)
    harness.reply(release=REFUSED)
    assert harness.sleeps == 1
    harness.wake()
    harness.reply(release=REFUSED)
    harness.wake()
    harness.reply()
    assert harness.ended


def test_pause_after_a_refusal_does_not_exceed_the_grace():
    harness = stopped("a", grace=0.4)
    harness.reply(release=REFUSED)
    assert harness.sleeps == 0.4


def test_cancelled_callbacks_are_released_despite_a_refused_call():
    harness = stopped("a", "b", running=["b"], grace=0.5)
    harness.reply(release=REFUSED)
    harness.wake()
    assert harness.abandons
    harness.tell()
    assert harness.asked == ["release", "release"]
    harness.reply()
    assert harness.ended


def test_settlements_that_could_not_be_sent_are_reported_at_the_end(caplog):
    harness = stopped("a", "b", running=["b"], grace=0.5)
    harness.reply(release=REFUSED)
    harness.wake()
    harness.tell()
    caplog.clear()
    harness.tell(replies=[OutcomeUnknown("silence")] * 2)
    assert harness.ended
    assert "2 settlements unsent" in caplog.text
    assert caplog.records[-1].levelno == logging.ERROR


def test_a_clean_stop_reports_nothing(caplog):
    harness = stopped("a", running=["a"])
    harness.wake(after=1, done=[harness.done("a")])
    harness.reply()
    assert harness.ended
    assert not caplog.records


def test_stop_during_a_round_trip_withdraws_its_messages():
    harness = LoopHarness(concurrency=2)
    harness.wake()
    harness.stop(30)
    assert harness.reply(ready_to_unack=claimed("a", "b")) == ["a", "b"]
    harness.wake()
    assert harness.recalls
    harness.tell(withdrawn=["a", "b"])
    assert harness.ask("release").what == harness.releases("a", "b")


def test_a_burst_can_be_stopped():
    harness = LoopHarness(burst=True)
    harness.wake()
    harness.reply(ready_to_unack=claimed("a"))
    harness.stop(30)
    harness.wake(after=0)
    harness.tell(withdrawn=["a"])
    harness.reply()
    assert harness.ended
