"""How settlements are sent, and what becomes of those that cannot be."""

import logging

import pytest

from delayq import Backoff
from delayq.errors import OutcomeUnknown, QueueFullError, ServerError, UnavailableError
from delayq.values import Failure, Rejection
from delayq.verdict import Verdict
from tests.support.flow import TOKEN, Play, claimed

REFUSED = ServerError("ack: WRONGTYPE Operation against a key holding the wrong kind of value")


def holding(*ids, **options):
    play = Play(concurrency=max(len(ids), 1), **options)
    play.hold(*ids)
    return play


def test_an_acknowledged_message_is_settled_and_held_no_longer():
    play = holding("a")
    play.wake(after=0.1, done=[play.done("a")])
    assert play.ask("ack").what == play.receipts("a")
    assert [receipt.id for receipt in play.ask("ack").what] == ["a"]
    assert play.held == ["a"]
    play.answer()
    assert play.held == []


def test_settlements_are_sent_by_verdict_in_one_round_trip():
    play = holding(*"abcdefg")
    done = [
        play.done("a"),
        play.done("b", Verdict.NACK, "boom", delay=2000),
        play.done("c", Verdict.REJECT, "no such user"),
        play.done("d", Verdict.DISCARD, "over"),
        play.done("e"),
        play.done("f", Verdict.NACK, "bang", delay=3000),
    ]
    play.wake(after=0.1, done=done)
    assert play.asked == ["ack", "ack", "nack", "reject", "pending_to_ready"]
    acked, discarded, failed, rejected = play._turn.calls[:4]
    assert (acked.what, acked.options) == (play.receipts("a", "e"), {})
    assert (discarded.what, discarded.options) == (play.receipts("d"), {"discarded": True})
    assert failed.what == [Failure("b", TOKEN, 2000, "boom"), Failure("f", TOKEN, 3000, "bang")]
    assert rejected.what == [Rejection("c", TOKEN, "no such user", "")]


def test_a_batch_is_settled_in_one_call():
    play = holding("a", "b", "c")
    play.wake(after=0.1, done=[play.done(("a", "b", "c"))])
    assert play.asked == ["ack", "pending_to_ready"]
    assert play.ask("ack").what == play.receipts("a", "b", "c")
    play.answer()
    assert play.held == []


def test_a_failed_batch_takes_one_retry_from_each_and_waits_as_each_has_been_tried():
    play = holding("a", "b", nack_delay=Backoff.constant("7s"))
    play.wake(after=0.1, done=[play.done(("a", "b"), Verdict.NACK, "boom")])
    assert play.ask("nack").what == [Failure(id, TOKEN, 7000, "boom") for id in "ab"]


def test_of_a_batch_what_was_settled_by_hand_is_held_no_longer_and_not_settled_again():
    play = holding("a", "b", "c")
    play.holding("b").settled = True
    play.wake(after=0.1, done=[play.done(("a", "b", "c"))])
    assert play.ask("ack").what == play.receipts("a", "c")
    assert play.held == ["a", "c"]


def test_a_nack_without_a_delay_waits_as_the_backoff_says():
    play = holding("a", nack_delay=Backoff.constant("7s"))
    play.wake(after=0.1, done=[play.done("a", Verdict.NACK, "boom")])
    assert play.ask("nack").what == [Failure("a", TOKEN, 7000, "boom")]


@pytest.mark.parametrize(("delay", "waits"), [(0, 50), (1, 50), (50, 50), (51, 51), (None, 50)])
def test_a_nack_never_comes_back_so_soon_that_it_could_spin_a_worker(delay, waits):
    play = holding("a", nack_delay=0)
    play.wake(after=0.1, done=[play.done("a", Verdict.NACK, "boom", delay=delay)])
    assert play.ask("nack").what[0].delay == waits


@pytest.mark.parametrize(("text", "kept"), [("x" * 5000, "x" * 2048), ("\ud800 \x00 ü", "? \x00 ü"), ("", "")])
@pytest.mark.parametrize("verdict", [Verdict.NACK, Verdict.REJECT])
def test_an_error_text_is_cut_and_made_encodable(verdict, text, kept):
    play = holding("a")
    play.wake(after=0.1, done=[play.done("a", verdict, text)])
    (item,) = play._turn.calls[0].what
    assert (item.error if verdict is Verdict.NACK else item.reason) == kept


def test_more_than_a_thousand_go_in_slices_without_a_rest():
    ids = [f"m{n}" for n in range(2500)]
    play = Play(concurrency=3000, prefetch=0)
    play.wake()
    for first in range(0, 2500, 1000):
        play.answer(ready_to_unack=claimed(*ids[first : first + 1000], left=1))
        play.wake()
    play.answer()
    play.wake(after=0.1, done=[play.done(id) for id in ids])
    sizes = []
    while "ack" in play.asked:
        sizes.append(len(play.ask("ack").what))
        play.answer()
        if play.sleeps:
            break
        play.wake()
    assert sizes == [1000, 1000, 500]
    assert play.held == []


@pytest.mark.parametrize(
    "error", [REFUSED, OutcomeUnknown("ack: silence"), UnavailableError("gone"), QueueFullError("full")]
)
def test_a_settlement_that_was_not_answered_is_kept_and_sent_again_after_a_rest(error):
    play = holding("a")
    play.wake(after=0.1, done=[play.done("a")])
    play.answer(ack=error)
    assert play.held == ["a"]
    assert play.sleeps == 1
    play.wake()
    assert play.ask("ack").what == play.receipts("a")
    play.answer()
    assert play.held == []


def test_an_answer_of_another_call_counts_although_one_was_refused():
    play = holding("a", "b")
    play.wake(after=0.1, done=[play.done("a"), play.done("b", Verdict.NACK, "boom")])
    play.answer(ack=REFUSED)
    assert play.held == ["a"]


def test_during_the_rest_nothing_is_settled_but_the_queue_is_looked_at():
    play = holding("a", "b")
    play.wake(after=0.1, done=[play.done("a")])
    play.answer(ack=REFUSED)
    play.wake(after=0.3, done=[play.done("b")])
    assert play.asked == ["pending_to_ready"]
    play.answer()
    assert play.sleeps == 0.7
    play.wake()
    assert play.ask("ack").what == play.receipts("a", "b")


def test_completions_that_come_during_the_round_trip_wait_for_the_next():
    play = holding("a", "b")
    play.wake(after=0.1, done=[play.done("a")])
    play.answer(done=[play.done("b")])
    assert play.held == ["b"]
    assert play.sleeps == 0
    play.wake()
    assert play.ask("ack").what == play.receipts("b")


def test_a_trouble_that_lasts_is_logged_once(caplog):
    play = holding("a")
    play.wake(after=0.1, done=[play.done("a")])
    for _ in range(3):
        play.answer(ack=REFUSED)
        play.wake()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "WRONGTYPE" in caplog.text


def test_a_trouble_that_returns_is_logged_again(caplog):
    play = holding("a", "b")
    play.wake(after=0.1, done=[play.done("a")])
    play.answer(ack=REFUSED)
    play.wake()
    play.answer()
    play.wake(done=[play.done("b")])
    play.answer(ack=REFUSED)
    assert len(caplog.records) == 2


def test_a_settlement_that_came_too_late_is_logged_and_held_no_longer(caplog):
    play = holding("a", "b")
    play.wake(after=0.1, done=[play.done("a"), play.done("b")])
    play.answer(ack="01")
    assert play.held == []
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.ids == ["a"]


def test_a_message_settled_by_hand_is_held_no_longer_and_not_settled_again():
    play = holding("a")
    play.holding("a").settled = True
    play.wake(after=0.1, done=[play.done("a", Verdict.NOTHING)])
    assert play.held == []
    assert play.asked == ["pending_to_ready"]


def test_a_verdict_on_a_message_that_was_settled_by_hand_meanwhile_changes_nothing():
    play = holding("a")
    verdict = play.done("a", Verdict.NACK, "boom")
    play.holding("a").settled = True
    play.wake(after=0.1, done=[verdict])
    assert "nack" not in play.asked
    assert play.held == []


def test_a_message_whose_lease_was_lost_before_it_started_is_held_no_longer():
    play = holding("a")
    play.holding("a").lost = True
    play.wake(after=0.1, done=[play.done("a", Verdict.NOTHING)])
    assert play.held == []
    assert play.asked == ["pending_to_ready"]


def test_a_message_whose_lease_was_lost_while_it_ran_is_acknowledged_nevertheless():
    play = holding("a")
    play.holding("a").lost = True
    play.wake(after=0.1, done=[play.done("a")])
    assert play.ask("ack").what == play.receipts("a")
