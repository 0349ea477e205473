"""How leases are renewed while messages are held."""

import logging

import pytest

from delayq.errors import ServerError
from delayq.flow import Start
from delayq.verdict import Verdict
from tests.support.flow import Play, claimed, promoted


def holding(*ids, **options):
    options = {"tick": 3600, "lease": 30, "concurrency": max(len(ids), 1)} | options
    play = Play(**options)
    play.hold(*ids)
    return play


@pytest.mark.parametrize(("lease", "every"), [(30, 10), (1.5, 0.5), (0.3, 0.1)])
def test_leases_are_renewed_every_third_of_their_length(lease, every):
    play = holding("a", lease=lease)
    for _ in range(5):
        assert play.sleeps == pytest.approx(every)
        play.wake()
        assert play.ask("extend").what == play.receipts("a")
        assert play.ask("extend").options == {"lease": lease * 1000}
        play.answer()


def test_nothing_is_renewed_before_its_time():
    play = holding("a", "b")
    play.wake(after=9.9, done=[play.done("a")])
    assert "extend" not in play.asked


def test_running_and_prefetched_messages_are_renewed_in_one_call():
    play = holding("a", "b", "c")
    play.begin("a")
    play.wake()
    assert play.ask("extend").what == play.receipts("a", "b", "c")


def test_more_than_a_thousand_are_renewed_in_slices():
    ids = [f"m{n}" for n in range(1500)]
    play = Play(tick=3600, concurrency=2000, prefetch=0)
    play.wake()
    play.answer(ready_to_unack=claimed(*ids[:1000], left=500))
    play.wake()
    play.answer(ready_to_unack=claimed(*ids[1000:]))
    play.wake()
    sizes = [len(ask.what) for ask in play._turn.calls if ask.name == "extend"]
    assert sizes == [1000, 500]


def test_a_renewed_lease_counts_from_before_the_call():
    play = holding("a")
    play.wake()
    asked_at = play.now
    play.answer(after=2)
    assert play.holding("a").deadline == asked_at + 30


def test_a_callback_is_not_kept_alive_beyond_max_consume_duration():
    play = holding("a", "b", max_consume_duration=15)
    play.begin("a")
    play.wake()
    assert play.ask("extend").what == play.receipts("a", "b")
    play.answer()
    play.wake()
    assert play.ask("extend").what == play.receipts("b")  # which has not started


def test_with_only_overdue_callbacks_nothing_is_renewed_and_nothing_spins():
    play = holding("a", max_consume_duration=1)
    play.begin("a")
    play.wake()
    assert "extend" not in play.asked
    play.answer()
    assert play.sleeps == 10


def test_a_callback_that_takes_too_long_is_given_up_with_one_warning(caplog):
    play = holding("a", max_consume_duration=1)
    play.begin("a")
    for _ in range(3):
        play.wake()
        play.answer()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.id == "a"


def test_another_message_is_claimed_in_place_of_one_that_was_given_up():
    play = holding("a", max_consume_duration=1, prefetch=0)
    play.begin("a")
    play.wake(signalled=True)
    assert play.ask("ready_to_unack").what == 1
    assert play.answer(ready_to_unack=claimed("b")) == ["b"]
    assert play.flow.held.given_up == 1


def test_a_worker_is_replaced_even_if_there_is_nothing_to_start():
    play = holding("a", max_consume_duration=1)
    play.begin("a")
    play.wake()
    play.tell(answers=[play._answer(ask, None) for ask in play._turn.calls])
    assert play.step == Start([])


def test_a_callback_that_ended_just_before_it_was_given_up_has_ended():
    play = holding("a", max_consume_duration=1)
    play.begin("a")
    assert play.holding("a").batch.conclude()  # by its worker; the completion is on its way
    play.wake()
    assert play.ask("extend").what == play.receipts("a")
    play.answer(done=[play.done("a")])
    play.wake()
    assert play.ask("ack").what == play.receipts("a")


def test_what_was_given_up_and_ends_after_all_is_held_no_longer():
    play = holding("a", max_consume_duration=1, prefetch=0)
    play.begin("a")
    play.wake()
    play.answer()
    assert play.held == ["a"]
    play.wake(after=1, done=[play.done("a", Verdict.NOTHING)])
    assert play.held == []
    assert play.flow.held.room() == 1


def test_a_batch_that_takes_too_long_is_given_up_as_one(caplog):
    play = holding("a", "b", "c", max_consume_duration=1, prefetch=0, batch=3, concurrency=1)
    play.begin_batch("a", "b")
    for _ in range(3):
        play.wake()
        play.answer()
    assert play.flow.held.given_up == 1
    assert play.flow.held.room() == 2
    (record,) = caplog.records
    assert record.getMessage() == "batch of 2 messages has been processed for more than 1 s"
    assert record.ids == ["a", "b"]


def test_of_a_batch_that_was_given_up_no_lease_is_renewed():
    play = holding("a", "b", "c", max_consume_duration=15, batch=3, concurrency=1)
    play.begin_batch("a", "b")
    play.wake()
    assert play.ask("extend").what == play.receipts("a", "b", "c")
    play.answer()
    play.wake()
    assert play.ask("extend").what == play.receipts("c")


def test_a_batch_that_was_given_up_and_ends_after_all_is_held_no_longer():
    play = holding("a", "b", max_consume_duration=1, prefetch=0, batch=2, concurrency=1)
    play.begin_batch("a", "b")
    play.wake()
    play.answer()
    play.wake(after=1, done=[play.done(("a", "b"))])
    play.answer(ack="00")
    assert play.held == []
    assert play.flow.held.room() == 2


def test_a_lost_lease_is_flagged_and_logged_once(caplog):
    play = holding("a", "b")
    play.wake()
    play.answer(extend="01")
    assert play.holding("a").lost
    assert not play.holding("b").lost
    play.wake()
    play.answer(extend="01")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.id == "a"


def test_a_message_settled_while_its_lease_is_renewed_is_not_called_lost(caplog):
    play = holding("a")
    play.wake()
    play.holding("a").settled = True
    play.answer(extend="0")
    assert not play.holding("a").lost
    assert not caplog.records


def test_what_is_settled_is_renewed_no_more():
    play = holding("a", "b")
    play.wake(after=10, done=[play.done("a")])
    assert play.ask("extend").what == play.receipts("b")


def test_what_is_settled_but_unanswered_is_not_renewed_either():
    play = holding("a", "b", lease=3)
    play.wake(after=0.5, done=[play.done("a", Verdict.NACK, "boom")])
    play.answer(nack=ServerError("refused"))
    play.wake(after=1)
    assert play.ask("extend").what == play.receipts("b")


def test_a_renewal_that_was_refused_is_tried_again_with_the_next_heartbeat():
    play = holding("a")
    play.wake()
    play.answer(extend=ServerError("refused"))
    assert not play.holding("a").lost
    play.wake()
    play.answer()
    play.wake()
    assert play.now == pytest.approx(play.holding("a").claimed + 20)
    assert play.ask("extend").what == play.receipts("a")


def test_who_holds_nothing_renews_nothing():
    play = Play(tick=3600)
    play.wake()
    play.answer(pending_to_ready=promoted())
    play.wake()
    assert "extend" not in play.asked


def test_the_heartbeat_of_a_new_hold_begins_with_it():
    play = holding("a", lease=30)
    play.wake(after=1, done=[play.done("a")])
    play.answer()
    play.wake(after=100, signalled=True)
    play.answer(ready_to_unack=claimed("b"))
    assert play.sleeps == 10
