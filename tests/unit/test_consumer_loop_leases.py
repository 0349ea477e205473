"""How leases are renewed while messages are held."""

import logging

import pytest

from delayq.errors import ServerError
from delayq.worker.delivery.disposition import Disposition
from delayq.worker.loop.loop_steps import Run
from delayq.worker.parts.time_limits import MAX_HUNG
from tests.support.loop_harness import LoopHarness, claimed, promoted


def consumer_with(*ids, **options):
    options = {"tick": 3600, "lease": 30, "concurrency": max(len(ids), 1)} | options
    harness = LoopHarness(**options)
    harness.hold(*ids)
    return harness


@pytest.mark.parametrize(("lease", "every"), [(30, 10), (1.5, 0.5), (0.3, 0.1)])
def test_leases_are_renewed_every_third_of_their_length(lease, every):
    harness = consumer_with("a", lease=lease)
    for _ in range(5):
        assert harness.sleeps == pytest.approx(every)
        harness.wake()
        assert harness.ask("extend").what == harness.receipts("a")
        assert harness.ask("extend").options == {"lease": lease * 1000}
        harness.reply()


def test_nothing_is_renewed_before_its_time():
    harness = consumer_with("a", "b")
    harness.wake(after=9.9, done=[harness.done("a")])
    assert "extend" not in harness.asked


def test_running_and_prefetched_messages_are_renewed_in_one_call():
    harness = consumer_with("a", "b", "c")
    harness.begin("a")
    harness.wake()
    assert harness.ask("extend").what == harness.receipts("a", "b", "c")


def test_more_than_a_thousand_are_renewed_in_batches():
    ids = [f"m{n}" for n in range(1500)]
    harness = LoopHarness(tick=3600, concurrency=2000, prefetch=0)
    harness.wake()
    harness.reply(ready_to_unack=claimed(*ids[:1000], left=500))
    harness.wake()
    harness.reply(ready_to_unack=claimed(*ids[1000:]))
    harness.wake()
    sizes = [len(ask.what) for ask in harness._turn.calls if ask.name == "extend"]
    assert sizes == [1000, 500]


def test_a_renewed_lease_counts_from_before_the_call():
    harness = consumer_with("a")
    harness.wake()
    asked_at = harness.now
    harness.reply(after=2)
    assert harness.delivery("a").deadline == asked_at + 30


def test_claimed_lease_counts_from_before_the_call():
    harness = LoopHarness(lease=30)
    harness.wake()
    asked_at = harness.now
    harness.reply(after=2, ready_to_unack=claimed("a"))
    assert harness.delivery("a").deadline == asked_at + 30


def test_lease_that_was_extended_further_is_not_renewed():
    harness = consumer_with("a", "b")
    harness.delivery("a").deadline = harness.now + 45
    harness.wake()
    assert harness.ask("extend").what == harness.receipts("b")
    harness.reply()
    harness.wake()
    assert harness.ask("extend").what == harness.receipts("a", "b")


def test_a_callback_is_not_kept_alive_beyond_max_consume_duration():
    harness = consumer_with("a", "b", max_consume_duration=15)
    harness.begin("a")
    harness.wake()
    assert harness.ask("extend").what == harness.receipts("a", "b")
    harness.reply()
    harness.wake()  # five seconds later it has run for 15
    assert harness.asked[0] == "nack"
    (failure,) = harness.ask("nack").what
    assert (failure.id, failure.error) == ("a", "TimeoutError: the callback took longer than 15s")
    harness.reply(nack="1")
    harness.wake(after=5)
    assert harness.ask("extend").what == harness.receipts("b")  # which has not started


def test_with_only_overdue_callbacks_nothing_is_renewed_and_nothing_spins():
    harness = consumer_with("a", max_consume_duration=1)
    harness.begin("a")
    harness.wake()
    assert "extend" not in harness.asked
    harness.reply(nack="1")
    assert harness.sleeps == 9
    harness.wake()
    harness.tell()  # nothing to run
    assert harness.sleeps == 10


def test_overdue_callback_is_abandoned_with_one_warning(caplog):
    harness = consumer_with("a", max_consume_duration=1)
    harness.begin("a")
    for _ in range(3):
        harness.wake()
        harness.reply()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.id == "a"


def test_abandoned_message_frees_capacity_for_another():
    harness = consumer_with("a", max_consume_duration=1, prefetch=0)
    harness.begin("a")
    harness.wake(woken=True)
    assert harness.ask("ready_to_unack").what == 1
    assert harness.reply(ready_to_unack=claimed("b")) == ["b"]
    assert harness.loop.in_flight.abandoned == 1


@pytest.mark.parametrize(("concurrency", "most"), [(1, MAX_HUNG), (MAX_HUNG + 2, MAX_HUNG + 2)])
def test_claiming_rests_while_many_callbacks_hang_and_is_said_once(caplog, concurrency, most):
    harness = consumer_with("m0", max_consume_duration=1, prefetch=0, concurrency=concurrency)
    for n in range(1, most):
        harness.begin(f"m{n - 1}")
        harness.wake(after=31, woken=True)
        assert harness.reply(ready_to_unack=claimed(f"m{n}")) == [f"m{n}"]
    assert not harness.loop.in_flight.stuck
    harness.begin(f"m{most - 1}")
    for _ in range(3):
        harness.wake(after=31)
        harness.reply()
        assert harness.capacity == 0
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [
        f"{most} callbacks hang: no more messages are claimed until one ends; restart the worker if none does"
    ]
    harness.wake(after=1, done=[harness.done("m3", Disposition.NOTHING)])
    assert harness.capacity > 0
    assert "claimed again" in caplog.text


def test_worker_is_replaced_even_with_nothing_to_start():
    harness = consumer_with("a", max_consume_duration=1)
    harness.begin("a")
    harness.wake()
    batch = harness.delivery("a").batch
    harness.tell(replies=["1", *[harness._answer(ask, None) for ask in harness._turn.calls[1:]]])
    assert harness.step == Run([], [batch])


def test_callback_that_ends_just_before_it_is_abandoned_counts():
    harness = consumer_with("a", max_consume_duration=1)
    harness.begin("a")
    assert harness.delivery("a").batch.conclude()  # by its worker; the completion is on its way
    harness.wake()
    assert "nack" not in harness.asked
    harness.wake()
    assert harness.ask("extend").what == harness.receipts("a")
    harness.reply(done=[harness.done("a")])
    harness.wake()
    assert harness.ask("ack").what == harness.receipts("a")


def test_abandoned_callback_that_ends_is_removed():
    harness = consumer_with("a", max_consume_duration=1, prefetch=0)
    harness.begin("a")
    harness.wake()
    harness.reply()
    assert harness.in_flight == ["a"]
    harness.wake(after=1, done=[harness.done("a", Disposition.NOTHING)])
    assert harness.in_flight == []
    assert harness.capacity == 1


def test_overdue_batch_is_abandoned_as_one(caplog):
    harness = consumer_with("a", "b", "c", max_consume_duration=1, prefetch=0, batch=3, concurrency=1)
    harness.begin_batch("a", "b")
    for _ in range(3):
        harness.wake()
        harness.reply()
    assert harness.loop.in_flight.abandoned == 1
    assert harness.capacity == 2
    assert [record.id for record in caplog.records] == ["a", "b"]
    assert all("the callback took longer than 1s" in record.getMessage() for record in caplog.records)


def test_leases_of_an_abandoned_batch_are_not_renewed():
    harness = consumer_with("a", "b", "c", max_consume_duration=15, batch=3, concurrency=2)
    harness.begin_batch("a", "b")
    harness.wake()
    assert harness.ask("extend").what == harness.receipts("a", "b", "c")
    harness.reply()
    harness.wake()
    assert [failure.id for failure in harness.ask("nack").what] == ["a", "b"]
    harness.reply(nack="11")
    harness.wake(after=5)
    assert harness.ask("extend").what == harness.receipts("c")


def test_abandoned_batch_that_ends_is_removed():
    harness = consumer_with("a", "b", max_consume_duration=1, prefetch=0, batch=2, concurrency=1)
    harness.begin_batch("a", "b")
    harness.wake()
    harness.reply()
    harness.wake(after=1, done=[harness.done(("a", "b"))])
    harness.reply(ack="00")
    assert harness.in_flight == []
    assert harness.capacity == 2


def test_a_lost_lease_is_flagged_and_logged_once(caplog):
    harness = consumer_with("a", "b")
    harness.wake()
    harness.reply(extend="01")
    assert harness.delivery("a").lost
    assert not harness.delivery("b").lost
    harness.wake()
    harness.reply(extend="01")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.id == "a"


def test_message_settled_during_renewal_is_not_lost(caplog):
    harness = consumer_with("a")
    harness.wake()
    harness.delivery("a").settled = True
    harness.reply(extend="0")
    assert not harness.delivery("a").lost
    assert not caplog.records


def test_settled_message_is_not_renewed():
    harness = consumer_with("a", "b")
    harness.wake(after=10, done=[harness.done("a")])
    assert harness.ask("extend").what == harness.receipts("b")


def test_settled_message_without_a_reply_is_not_renewed():
    harness = consumer_with("a", "b", lease=3)
    harness.begin("b")
    harness.wake(after=0.5, done=[harness.done("a", Disposition.NACK, "boom")])
    harness.reply(nack=ServerError("refused"))
    harness.wake(after=1)
    assert harness.ask("extend").what == harness.receipts("b")


def test_refused_renewal_is_retried_with_the_next_heartbeat():
    harness = consumer_with("a")
    harness.wake()
    harness.reply(extend=ServerError("refused"))
    assert not harness.delivery("a").lost
    harness.wake()
    harness.reply()
    harness.wake()
    assert harness.now == pytest.approx(harness.delivery("a").claimed_at + 20)
    assert harness.ask("extend").what == harness.receipts("a")


def test_nothing_in_flight_renews_nothing():
    harness = LoopHarness(tick=3600)
    harness.wake()
    harness.reply(pending_to_ready=promoted())
    harness.wake()
    assert "extend" not in harness.asked


def test_heartbeat_starts_with_the_first_claim():
    harness = consumer_with("a", lease=30)
    harness.wake(after=1, done=[harness.done("a")])
    harness.reply()
    harness.wake(after=100, woken=True)
    harness.reply(ready_to_unack=claimed("b"))
    assert harness.sleeps == 10
