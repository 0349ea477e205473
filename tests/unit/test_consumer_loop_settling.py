"""How settlements are sent, and how those that cannot be sent are repeated."""

import logging

import pytest

from delayq import Backoff
from delayq.broker.requests import Failure, Rejection
from delayq.errors import OutcomeUnknown, QueueFullError, ServerError, UnavailableError
from delayq.worker.delivery.disposition import Disposition
from tests.support.loop_harness import TOKEN, LoopHarness, claimed, promoted

REFUSED = ServerError("ack: WRONGTYPE Operation against a key holding the wrong kind of value")


def consumer_with(*ids, **options):
    harness = LoopHarness(**{"concurrency": max(len(ids), 1), **options})
    harness.hold(*ids)
    return harness


def test_acknowledged_message_is_settled_and_removed():
    harness = consumer_with("a")
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.ask("ack").what == harness.receipts("a")
    assert [receipt.id for receipt in harness.ask("ack").what] == ["a"]
    assert harness.in_flight == ["a"]
    harness.reply()
    assert harness.in_flight == []


def test_settlements_are_grouped_in_one_round_trip():
    harness = consumer_with(*"abcdefg")
    done = [
        harness.done("a"),
        harness.done("b", Disposition.NACK, "boom", delay=2000),
        harness.done("c", Disposition.REJECT, "no such user"),
        harness.done("d", Disposition.DISCARD, "over"),
        harness.done("e"),
        harness.done("f", Disposition.NACK, "bang", delay=3000),
    ]
    harness.wake(after=0.1, done=done)
    assert harness.asked == ["ack", "discard", "nack", "reject", "pending_to_ready"]
    acked, discarded, failed, rejected = harness._turn.calls[:4]
    assert (acked.what, acked.options) == (harness.receipts("a", "e"), {})
    assert (discarded.what, discarded.options) == (harness.receipts("d"), {})
    assert failed.what == [Failure("b", TOKEN, 2000, "boom"), Failure("f", TOKEN, 3000, "bang")]
    assert rejected.what == [Rejection("c", TOKEN, "no such user", "")]


def test_a_batch_is_settled_in_one_call():
    harness = consumer_with("a", "b", "c")
    harness.wake(after=0.1, done=[harness.done(("a", "b", "c"))])
    assert harness.asked == ["ack"]
    assert harness.ask("ack").what == harness.receipts("a", "b", "c")
    harness.reply()
    assert harness.in_flight == []


def test_what_one_call_could_not_settle_follows_at_once():
    harness = consumer_with("a", "b", "c")
    harness.wake(after=0.1, done=[harness.done(("a", "b", "c"))])
    harness.reply(ack="1")  # a large message follows
    assert harness.sleeps == 0
    harness.wake()
    assert harness.ask("ack").what == harness.receipts("b", "c")
    harness.reply()
    assert harness.in_flight == []
    assert harness.sleeps > 0


def test_failed_batch_uses_one_retry_and_the_backoff_of_each():
    harness = consumer_with("a", "b", nack_delay=Backoff.constant("7s"))
    harness.wake(after=0.1, done=[harness.done(("a", "b"), Disposition.NACK, "boom")])
    assert harness.ask("nack").what == [Failure(id, TOKEN, 7000, "boom") for id in "ab"]


def test_message_of_a_batch_settled_by_hand_is_removed():
    harness = consumer_with("a", "b", "c")
    harness.delivery("b").settled = True
    harness.wake(after=0.1, done=[harness.done(("a", "b", "c"))])
    assert harness.ask("ack").what == harness.receipts("a", "c")
    assert harness.in_flight == ["a", "c"]


def test_nack_without_a_delay_uses_the_backoff():
    harness = consumer_with("a", nack_delay=Backoff.constant("7s"))
    harness.wake(after=0.1, done=[harness.done("a", Disposition.NACK, "boom")])
    assert harness.ask("nack").what == [Failure("a", TOKEN, 7000, "boom")]


@pytest.mark.parametrize(("delay", "waits"), [(0, 50), (1, 50), (50, 50), (51, 51), (None, 50)])
def test_nack_has_a_minimal_delay(delay, waits):
    harness = consumer_with("a", nack_delay=0)
    harness.wake(after=0.1, done=[harness.done("a", Disposition.NACK, "boom", delay=delay)])
    assert harness.ask("nack").what[0].delay == waits


@pytest.mark.parametrize(("text", "kept"), [("x" * 5000, "x" * 2048), ("\ud800 \x00 ü", "? \x00 ü"), ("", "")])
@pytest.mark.parametrize("disposition", [Disposition.NACK, Disposition.REJECT])
def test_an_error_text_is_cut_and_made_encodable(disposition, text, kept):
    harness = consumer_with("a")
    harness.wake(after=0.1, done=[harness.done("a", disposition, text)])
    (item,) = harness._turn.calls[0].what
    assert (item.error if disposition is Disposition.NACK else item.reason) == kept


def test_more_than_five_hundred_are_settled_in_batches():
    ids = [f"m{n}" for n in range(2500)]
    harness = LoopHarness(concurrency=3000, prefetch=0)
    harness.wake()
    for first in range(0, 2500, 1000):
        harness.reply(ready_to_unack=claimed(*ids[first : first + 1000], left=1))
        harness.wake()
    harness.reply()
    harness.wake(after=0.1, done=[harness.done(id) for id in ids])
    sizes = []
    while "ack" in harness.asked:
        sizes.append(len(harness.ask("ack").what))
        harness.reply()
        if harness.sleeps:
            break
        harness.wake()
    assert sizes == [500] * 5
    assert harness.in_flight == []


@pytest.mark.parametrize(
    "error", [REFUSED, OutcomeUnknown("ack: silence"), UnavailableError("gone"), QueueFullError("full")]
)
def test_settlement_without_a_reply_is_sent_again_after_a_pause(error):
    harness = consumer_with("a")
    harness.wake(after=0.1, done=[harness.done("a")])
    harness.reply(ack=error)
    assert harness.in_flight == ["a"]
    assert harness.sleeps == 1
    harness.wake()
    assert harness.ask("ack").what == harness.receipts("a")
    harness.reply()
    assert harness.in_flight == []


def test_reply_counts_although_another_call_was_refused():
    harness = consumer_with("a", "b")
    harness.wake(after=0.1, done=[harness.done("a"), harness.done("b", Disposition.NACK, "boom")])
    harness.reply(ack=REFUSED)
    assert harness.in_flight == ["a"]


def test_during_the_pause_it_asks_nothing():
    harness = consumer_with("a", "b")
    harness.wake(after=0.1, done=[harness.done("a")])
    harness.reply(ack=REFUSED)
    harness.wake(after=0.3, done=[harness.done("b")])
    assert harness.sleeps == 0.7
    harness.wake()
    assert harness.ask("ack").what == harness.receipts("a", "b")


def test_completions_during_a_round_trip_wait_for_the_next():
    harness = consumer_with("a", "b")
    harness.wake(after=0.1, done=[harness.done("a")])
    harness.reply(done=[harness.done("b")])
    assert harness.in_flight == ["b"]
    assert harness.sleeps == 0
    harness.wake()
    assert harness.ask("ack").what == harness.receipts("b")


def test_lasting_error_is_logged_once(caplog):
    harness = consumer_with("a")
    harness.wake(after=0.1, done=[harness.done("a")])
    for _ in range(3):
        harness.reply(ack=REFUSED)
        harness.wake()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "retrying every 1 s, claiming nothing meanwhile: ack: WRONGTYPE" in caplog.text


def test_lasting_error_is_logged_once_although_callbacks_end_during_the_pause(caplog):
    harness = consumer_with("a", "b")
    harness.begin("b")
    harness.wake(after=0.1, done=[harness.done("a")])
    harness.reply(ack=REFUSED)
    harness.wake(after=0.1, done=[harness.done("b")])
    harness.reply()
    harness.wake()
    harness.reply(ack=REFUSED)
    assert len(caplog.records) == 1


def test_nothing_is_claimed_while_settlements_are_refused():
    harness = consumer_with("a", concurrency=10)
    harness.wake(after=0.1, done=[harness.done("a")])
    harness.reply(ack=REFUSED)
    assert not harness.listens
    for _ in range(3):
        harness.wake()
        assert harness.asked == ["ack", "pending_to_ready"]
        harness.reply(ack=REFUSED, pending_to_ready=promoted(waiting=5))
    harness.wake()
    harness.reply(pending_to_ready=promoted(waiting=5))
    harness.wake()
    assert "ready_to_unack" in harness.asked


def test_what_has_not_started_is_released_while_settlements_are_refused():
    harness = consumer_with("a", "b", "c", concurrency=1, prefetch=2)
    harness.begin("a")
    harness.wake(after=0.1, done=[harness.done("a")])
    harness.begin("b")
    harness.reply(ack=REFUSED)
    harness.wake()
    assert harness.recalls
    harness.tell(withdrawn=["c"])
    assert harness.asked == ["ack", "release", "pending_to_ready"]
    assert harness.ask("release").what == harness.releases("c")
    harness.reply(ack=REFUSED)
    harness.wake()
    assert harness.asked == ["ack", "pending_to_ready"]


def test_what_was_claimed_beside_a_refused_settlement_does_not_start():
    harness = consumer_with("a")
    harness.wake(after=0.1, done=[harness.done("a")], woken=True)
    assert harness.asked == ["ack", "pending_to_ready", "ready_to_unack"]
    assert harness.reply(ack=REFUSED, ready_to_unack=claimed("b")) == []
    harness.wake()
    assert [receipt.id for receipt in harness.ask("release").what] == ["b"]
    harness.reply()
    assert harness.in_flight == []


def test_returning_error_is_logged_again(caplog):
    harness = consumer_with("a", "b")
    harness.begin("b")
    harness.wake(after=0.1, done=[harness.done("a")])
    harness.reply(ack=REFUSED)
    harness.wake()
    harness.reply()
    harness.wake(done=[harness.done("b")])
    harness.reply(ack=REFUSED)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING", "ERROR"]


def test_late_settlement_is_logged_and_removed(caplog):
    harness = consumer_with("a", "b")
    harness.wake(after=0.1, done=[harness.done("a"), harness.done("b")])
    harness.reply(ack="01")
    assert harness.in_flight == []
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.ids == ["a"]


def test_message_settled_by_hand_is_removed():
    harness = consumer_with("a")
    harness.delivery("a").settled = True
    harness.wake(after=0.1, done=[harness.done("a", Disposition.NOTHING)])
    assert harness.in_flight == []
    assert harness.asked == ["pending_to_ready"]


def test_disposition_of_a_message_settled_by_hand_is_ignored():
    harness = consumer_with("a")
    disposition = harness.done("a", Disposition.NACK, "boom")
    harness.delivery("a").settled = True
    harness.wake(after=0.1, done=[disposition])
    assert "nack" not in harness.asked
    assert harness.in_flight == []


def test_message_that_lost_its_lease_before_starting_is_removed():
    harness = consumer_with("a")
    harness.delivery("a").lost = True
    harness.wake(after=0.1, done=[harness.done("a", Disposition.NOTHING)])
    assert harness.in_flight == []
    assert harness.asked == ["pending_to_ready"]


def test_message_that_lost_its_lease_while_running_is_still_acknowledged():
    harness = consumer_with("a")
    harness.delivery("a").lost = True
    harness.wake(after=0.1, done=[harness.done("a")])
    assert harness.ask("ack").what == harness.receipts("a")


def test_rejections_that_were_cut_short_go_on_and_free_no_capacity_before():
    harness = consumer_with(*"abcd", prefetch=0)
    done = [harness.done(id, Disposition.REJECT, "too large") for id in "abcd"]
    harness.wake(after=0.1, done=done, woken=True)
    assert harness.ask("ready_to_unack").what == 1
    harness.reply(reject="11")
    assert harness.sleeps == 0
    harness.wake()
    assert [rejection.id for rejection in harness.ask("reject").what] == ["c", "d"]
    harness.reply(reject="11")
    assert harness.in_flight == []
