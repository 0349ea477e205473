"""When a consumer looks at its queue, and how long it sleeps between."""

import pytest

from delayq.errors import ServerError
from delayq.verdict import Verdict
from tests.support.flow import Play, claimed, promoted


def test_it_begins_at_once_without_listening_for_wakeups():
    play = Play()
    assert play.sleeps == 0
    assert not play.listens


def test_the_first_turn_collects_looks_and_claims():
    play = Play()
    play.wake()
    assert play.asked == ["collect_garbage", "pending_to_ready", "ready_to_unack"]


def test_the_calls_of_a_turn_stand_in_the_order_in_which_they_must_run():
    play = Play(lease=3, concurrency=3)
    play.hold("a", "b", "c")
    play.wake(after=0.1)
    play.answer(pending_to_ready=promoted(next_deadline=play.server(play.now + 1), garbage=1))
    play.wake(after=1.5, done=[play.done("a"), play.done("b", Verdict.NACK, "boom")], signalled=True)
    assert play.asked == [
        "ack",
        "nack",
        "extend",
        "unack_to_retry",
        "collect_garbage",
        "pending_to_ready",
        "ready_to_unack",
    ]


def test_a_claim_asks_for_the_lease_in_its_own_name():
    play = Play(lease="45s")
    play.wake()
    assert play.ask("ready_to_unack").options == {"lease": 45_000, "holder": "me"}


def test_an_empty_queue_is_left_alone_for_a_tick_but_listened_to():
    play = Play(tick=2)
    play.wake()
    play.answer()
    assert play.sleeps == 2
    assert play.listens


def test_an_idle_turn_is_a_single_command():
    play = Play()
    play.wake()
    play.answer()
    play.wake()
    assert play.asked == ["pending_to_ready"]


@pytest.mark.parametrize(
    ("due_in", "sleeps"), [(0.25, 0.25), (0.001, 0.001), (1.0, 1.0), (60.0, 1.0), (0.0, 0.0), (-5.0, 0.0)]
)
def test_the_sleep_ends_when_the_next_message_is_due_or_with_the_tick(due_in, sleeps):
    play = Play(tick=1)
    play.wake()
    play.answer(pending_to_ready=promoted(next_due=play.server(play.now + due_in)))
    assert play.sleeps == sleeps


@pytest.mark.parametrize(("ends_in", "sleeps"), [(0.25, 0.25), (60.0, 1.0), (-5.0, 0.0)])
def test_the_sleep_ends_at_the_next_deadline_or_with_the_tick(ends_in, sleeps):
    play = Play(tick=1)
    play.wake()
    play.answer(pending_to_ready=promoted(next_deadline=play.server(play.now + ends_in)))
    assert play.sleeps == sleeps


@pytest.mark.parametrize("drift", [-86_400.0, 86_400.0])
def test_a_client_clock_a_day_wrong_makes_no_difference(drift):
    play = Play(tick=1, drift=drift)
    play.wake()
    play.answer(pending_to_ready=promoted(next_due=play.server(play.now + 0.25)))
    assert play.sleeps == 0.25


def looking(play, due):
    """Let it look once more, and find a message due at a server's time (ms)."""
    play.wake(after=0.0, signalled=True)
    play.answer(pending_to_ready=promoted(next_due=due))
    return play.sleeps


def test_the_sleep_counts_the_part_of_a_millisecond_that_the_server_does_not_tell():
    play = Play(tick=10)
    play.wake()
    due = play.server(play.now) + 10
    play.answer(pending_to_ready=promoted(next_due=due))
    assert play.sleeps == 0.01
    play.now += 0.0008
    assert looking(play, due) == 0.0092  # the server still says the same
    play.now += 0.0005
    assert looking(play, due) == 0.0087


def test_an_answer_that_took_long_is_not_thought_to_be_of_the_moment_when_it_came():
    play = Play(tick=10)
    play.wake()
    due = play.server(play.now) + 1000
    play.answer(pending_to_ready=promoted(next_due=due))
    play.wake(after=0.1, signalled=True)
    answers = [play._answer(ask, None) for ask in play._turn.calls]
    look = play.asked.index("pending_to_ready")
    play.tell(after=0.3, answers=[*answers[:look], answers[look]._replace(next_due=due), *answers[look + 1 :]])
    assert play.sleeps == pytest.approx(0.6, abs=1e-4)


@pytest.mark.parametrize("by", [-3600.0, -0.01, 0.01, 3600.0])
def test_where_a_clock_was_set_the_latest_answer_counts(by):
    play = Play(tick=10)
    play.wake()
    play.answer()
    play.now += 0.0008
    play.drift += by
    assert looking(play, play.server(play.now) + 10) == 0.01


def test_what_was_learnt_of_the_servers_clock_is_trusted_less_and_less():
    play = Play(tick=3600)
    play.wake()
    play.answer()
    play.now += 0.0008
    assert looking(play, play.server(play.now) + 10) == 0.0092
    play.now += 5
    assert looking(play, play.server(play.now) + 10) == 0.0097
    play.now += 5
    assert looking(play, play.server(play.now) + 10) == 0.01


def test_the_sleep_ends_in_time_for_the_heartbeat():
    play = Play(tick=3, lease="1.5s")
    play.hold("a")
    assert play.sleeps == 0.5


def test_what_becomes_due_is_promoted_and_claimed_in_one_round_trip():
    play = Play()
    play.wake()
    play.answer(pending_to_ready=promoted(next_due=play.server(play.now + 0.25)))
    play.wake()
    assert play.asked == ["pending_to_ready", "ready_to_unack"]


def test_what_has_passed_its_deadline_is_moved_and_claimed_in_one_round_trip():
    play = Play()
    play.wake()
    play.answer(pending_to_ready=promoted(next_deadline=play.server(play.now + 0.25)))
    play.wake()
    assert play.asked == ["unack_to_retry", "pending_to_ready", "ready_to_unack"]


def test_more_leases_than_one_call_moves_are_moved_without_a_rest():
    play = Play()
    play.wake()
    play.answer(pending_to_ready=promoted(next_deadline=play.server(play.now)))
    for _ in range(3):
        assert play.sleeps == 0
        play.wake()
        assert "unack_to_retry" in play.asked
        play.answer(pending_to_ready=promoted(next_deadline=play.server(play.now)))
    play.wake()
    play.answer(pending_to_ready=promoted(next_deadline=play.server(play.now + 9)))
    assert play.sleeps == 1


def test_a_wakeup_lets_it_claim_at_once():
    play = Play()
    play.wake()
    play.answer()
    play.wake(after=0.1, signalled=True)
    assert play.asked == ["pending_to_ready", "ready_to_unack"]


def test_a_wakeup_counts_once():
    play = Play()
    play.wake()
    play.answer()
    play.wake(after=0.1, signalled=True)
    play.answer()
    play.wake()
    assert play.asked == ["pending_to_ready"]


def test_a_wakeup_that_comes_during_a_round_trip_is_not_lost():
    play = Play()
    play.wake()
    play.tell(answers=[play._answer(ask, None) for ask in play._turn.calls], signalled=True)
    play.wake()
    assert "ready_to_unack" in play.asked


def test_what_the_promotion_found_waiting_is_claimed_without_a_rest():
    play = Play()
    play.wake()
    play.answer()
    play.wake()
    play.answer(pending_to_ready=promoted(moved=3, waiting=3))
    assert play.sleeps == 0
    play.wake()
    assert "ready_to_unack" in play.asked


def test_while_more_is_waiting_and_there_is_room_it_goes_on_without_a_rest():
    play = Play(concurrency=5)
    play.wake()
    play.answer(ready_to_unack=claimed("a", left=1))
    assert play.sleeps == 0
    play.wake()
    play.answer(ready_to_unack=claimed("b", left=0))
    assert play.sleeps == 1


def test_a_full_consumer_waits_for_its_callbacks_not_for_what_is_due():
    play = Play(concurrency=1, prefetch=0)
    play.wake()
    play.answer(
        ready_to_unack=claimed("a", left=5), pending_to_ready=promoted(waiting=6, next_due=play.server(play.now + 0.1))
    )
    assert play.sleeps == 1
    assert not play.listens


def test_a_full_consumer_claims_again_as_soon_as_a_callback_has_ended():
    play = Play(concurrency=1, prefetch=0)
    play.wake()
    play.answer(ready_to_unack=claimed("a", left=5))
    play.wake(after=0.2, done=[play.done("a")])
    assert play.asked == ["ack", "pending_to_ready", "ready_to_unack"]


def test_a_full_consumer_passes_a_wakeup_on_by_claiming_nothing():
    play = Play(concurrency=1, prefetch=0)
    play.hold("a")
    play.wake(after=0.1, signalled=True)
    assert play.ask("ready_to_unack").what == 0


def test_a_full_consumer_without_a_wakeup_claims_nothing():
    play = Play(concurrency=1, prefetch=0)
    play.wake()
    play.answer(ready_to_unack=claimed("a", left=5))
    play.wake()
    assert play.asked == ["pending_to_ready"]


def test_claimed_messages_are_started_in_their_order_with_their_lateness():
    play = Play(concurrency=3)
    play.wake()
    assert play.answer(ready_to_unack=claimed("c", "a", "b", late=1500)) == ["c", "a", "b"]
    assert [play.holding(id).lateness for id in "cab"] == [1.5, 1.5, 1.5]
    assert play.held == ["c", "a", "b"]


def test_nothing_is_started_twice():
    play = Play(concurrency=2)
    play.hold("a", "b")
    play.wake()
    assert play.answer() == []
    play.wake(signalled=True)
    assert play.answer(ready_to_unack=ServerError("refused")) == []


def test_a_completion_that_comes_while_others_are_started_is_taken_in():
    play = Play(concurrency=5)
    play.hold("a")
    play.wake(after=0.1, signalled=True)
    play.answer(ready_to_unack=claimed("b"), done=[play.done("a")])
    assert play.sleeps == 0
    play.wake()
    assert play.ask("ack").what == play.receipts("a")
