"""When a consumer polls its queue, and how long it sleeps in between."""

import pytest

from delayq.errors import ServerError
from delayq.worker.delivery.disposition import Disposition
from tests.support.loop_harness import SERVER, LoopHarness, claimed, promoted


def test_loop_starts_at_once_without_listening():
    harness = LoopHarness()
    assert harness.sleeps == 0
    assert not harness.listens


def test_a_consumer_that_goes_on_at_once_does_not_listen():
    harness = LoopHarness(concurrency=2)
    harness.wake()
    harness.reply(ready_to_unack=claimed("a", left=1))
    assert harness.sleeps == 0
    assert not harness.listens


def test_first_turn_collects_promotes_and_claims():
    harness = LoopHarness()
    harness.wake()
    assert harness.asked == ["collect", "pending_to_ready", "ready_to_unack"]


def test_consumer_of_a_paused_queue_sleeps():
    harness = LoopHarness()
    harness.wake()
    harness.reply(pending_to_ready=promoted(paused=0))
    assert harness.sleeps > 0.5


def test_calls_of_a_turn_are_in_order():
    harness = LoopHarness(lease=3, concurrency=3)
    harness.hold("a", "b", "c")
    harness.wake(after=0.1, woken=True)
    harness.reply(pending_to_ready=promoted(next_deadline=harness.server(harness.now + 1), garbage=1))
    harness.wake(after=1.5, done=[harness.done("a"), harness.done("b", Disposition.NACK, "boom")], woken=True)
    assert harness.asked == [
        "ack",
        "nack",
        "extend",
        "unack_to_retry",
        "collect",
        "pending_to_ready",
        "ready_to_unack",
    ]


def test_claim_has_lease_and_consumer_id():
    harness = LoopHarness(lease="45s")
    harness.wake()
    assert harness.ask("ready_to_unack").options == {"lease": 45_000, "consumer_id": "me"}


def test_empty_queue_sleeps_for_a_tick_and_listens():
    harness = LoopHarness(tick=2)
    harness.wake()
    harness.reply()
    assert harness.sleeps == 2
    assert harness.listens


def test_an_idle_turn_asks_only_whether_the_queue_is_still_empty():
    harness = LoopHarness(tick=2)
    harness.wake()
    harness.reply()
    for _ in range(3):
        harness.wake()
        assert harness.asked == ["is_empty"]
        harness.reply()
        assert harness.sleeps == 2


def taking_turns(**seen):
    """A consumer that looks every 4 s at 2 s past, once it has found what is given."""
    harness = LoopHarness(promotes=False)
    harness.loop.take_turns(4.0, harness.now + 2.0, workers=8)
    harness.wake()
    harness.reply(pending_to_ready=promoted(**seen))
    return harness


def test_consumers_of_a_queue_in_which_nothing_happens_look_in_turn():
    harness = taking_turns()
    assert harness.sleeps == 2
    for _ in range(3):
        harness.wake()
        assert harness.asked == ["is_empty"]
        harness.reply()
        assert harness.sleeps == 4
    later = harness.server(harness.now + 3600)
    for seen in ({"next_due": later}, {"next_schedule": later}):
        assert taking_turns(**seen).sleeps == 2


def test_ten_consumers_or_more_collect_a_tenth_as_often():
    for workers, after in ((1, 60), (3, 180), (10, 600), (50, 600)):
        harness = LoopHarness(tick=3600)
        harness.wake()
        harness.reply()
        assert harness.sleeps == 60
        harness.loop.take_turns(1.0, harness.now, workers=workers)
        assert harness.loop.outlook.collect_at - harness.now == after
        harness.wake(after=after)
        harness.reply()
        assert harness.loop.outlook.collect_at - harness.now == after


def test_a_look_that_was_too_early_is_followed_by_one_in_time():
    harness = taking_turns()
    harness.wake(after=1.5, woken=True)
    harness.reply()
    assert harness.sleeps == 0.5


@pytest.mark.parametrize("seen", [{"next_deadline": 60}, {"paused": 0}, {"next_gate": 60}])
def test_each_consumer_looks_with_the_tick_while_something_is_leased_or_held_back(seen):
    assert taking_turns(**{name: at and SERVER + 1000 * at for name, at in seen.items()}).sleeps == 1


def test_a_consumer_that_learns_of_a_lease_in_between_looks_with_the_tick():
    harness = taking_turns()
    harness.wake()
    harness.reply()
    harness.wake(after=0.5, woken=True)
    lease = harness.server(harness.now + 30)
    harness.reply(pending_to_unack=claimed()._replace(next_deadline=lease))
    assert harness.sleeps == 1


def test_what_has_come_into_an_empty_queue_unseen_is_found_with_the_tick():
    harness = LoopHarness()
    harness.wake()
    harness.reply()
    harness.wake()
    harness.reply(is_empty=False)
    assert harness.sleeps == 0
    harness.wake()
    assert harness.asked == ["pending_to_ready"]
    harness.reply(pending_to_ready=promoted(moved=1, waiting=1))
    harness.wake()
    assert harness.asked == ["ready_to_unack"]


@pytest.mark.parametrize("later", ["next_due", "next_deadline", "next_schedule"])
def test_a_queue_with_something_in_it_is_asked_what_is_due(later):
    harness = LoopHarness()
    harness.wake()
    harness.reply(pending_to_ready=promoted(**{later: harness.server(harness.now + 60)}))
    harness.wake()
    assert harness.asked == ["pending_to_ready"]


@pytest.mark.parametrize(
    ("due_in", "sleeps"), [(0.25, 0.25), (0.001, 0.001), (1.0, 1.0), (60.0, 1.0), (0.0, 0.0), (-5.0, 0.0)]
)
def test_the_sleep_ends_when_the_next_message_is_due_or_with_the_tick(due_in, sleeps):
    harness = LoopHarness(tick=1)
    harness.wake()
    harness.reply(pending_to_ready=promoted(next_due=harness.server(harness.now + due_in)))
    assert harness.sleeps == sleeps


@pytest.mark.parametrize(("ends_in", "sleeps"), [(0.25, 0.25), (60.0, 1.0), (-5.0, 0.0)])
def test_the_sleep_ends_at_the_next_deadline_or_with_the_tick(ends_in, sleeps):
    harness = LoopHarness(tick=1)
    harness.wake()
    harness.reply(pending_to_ready=promoted(next_deadline=harness.server(harness.now + ends_in)))
    assert harness.sleeps == sleeps


@pytest.mark.parametrize("drift", [-86_400.0, 86_400.0])
def test_wrong_client_clock_makes_no_difference(drift):
    harness = LoopHarness(tick=1, drift=drift)
    harness.wake()
    harness.reply(pending_to_ready=promoted(next_due=harness.server(harness.now + 0.25)))
    assert harness.sleeps == 0.25


def looking(harness, due):
    """Poll once more and find a message due at a time of the server (ms)."""
    harness.wake(after=0.0, woken=True)
    harness.reply(pending_to_ready=promoted(next_due=due))
    return harness.sleeps


def test_sleep_accounts_for_fractions_of_the_servers_millisecond():
    harness = LoopHarness(tick=10)
    harness.wake()
    due = harness.server(harness.now) + 10
    harness.reply(pending_to_ready=promoted(next_due=due))
    assert harness.sleeps == 0.01
    harness.now += 0.0008
    assert looking(harness, due) == 0.0092  # the server still says the same
    harness.now += 0.0005
    assert looking(harness, due) == 0.0087


def test_slow_reply_does_not_shift_the_clock():
    harness = LoopHarness(tick=10)
    harness.wake()
    due = harness.server(harness.now) + 1000
    harness.reply(pending_to_ready=promoted(next_due=due))
    harness.wake(after=0.1, woken=True)
    replies = [harness._answer(ask, None) for ask in harness._turn.calls]
    look = harness.asked.index("pending_to_ready")
    harness.tell(after=0.3, replies=[*replies[:look], replies[look]._replace(next_due=due), *replies[look + 1 :]])
    assert harness.sleeps == pytest.approx(0.6, abs=1e-4)


@pytest.mark.parametrize("by", [-3600.0, -0.01, 0.01, 3600.0])
def test_after_a_clock_change_the_latest_reply_counts(by):
    harness = LoopHarness(tick=10)
    harness.wake()
    harness.reply()
    harness.now += 0.0008
    harness.drift += by
    assert looking(harness, harness.server(harness.now) + 10) == 0.01


def test_clock_estimate_decays_with_drift():
    harness = LoopHarness(tick=3600)
    harness.wake()
    harness.reply()
    harness.now += 0.0008
    assert looking(harness, harness.server(harness.now) + 10) == 0.0092
    harness.now += 5
    assert looking(harness, harness.server(harness.now) + 10) == 0.0097
    harness.now += 5
    assert looking(harness, harness.server(harness.now) + 10) == 0.01


def test_the_sleep_ends_in_time_for_the_heartbeat():
    harness = LoopHarness(tick=3, lease="1.5s")
    harness.hold("a")
    assert harness.sleeps == 0.5


def test_due_message_is_promoted_and_claimed_in_one_round_trip():
    harness = LoopHarness()
    harness.wake()
    harness.reply(pending_to_ready=promoted(next_due=harness.server(harness.now + 0.25)))
    harness.wake()
    assert harness.asked == ["pending_to_ready", "ready_to_unack"]


def test_expired_lease_is_moved_and_claimed_in_one_round_trip():
    harness = LoopHarness()
    harness.wake()
    harness.reply(pending_to_ready=promoted(next_deadline=harness.server(harness.now + 0.25)))
    harness.wake()
    assert harness.asked == ["unack_to_retry", "pending_to_ready", "ready_to_unack"]


def test_many_expired_leases_are_moved_without_a_pause():
    harness = LoopHarness()
    harness.wake()
    harness.reply(pending_to_ready=promoted(next_deadline=harness.server(harness.now)))
    for _ in range(3):
        assert harness.sleeps == 0
        harness.wake()
        assert "unack_to_retry" in harness.asked
        harness.reply(pending_to_ready=promoted(next_deadline=harness.server(harness.now)))
    harness.wake()
    harness.reply(pending_to_ready=promoted(next_deadline=harness.server(harness.now + 9)))
    assert harness.sleeps == 1


def test_a_wakeup_lets_it_claim_at_once():
    harness = LoopHarness()
    harness.wake()
    harness.reply()
    harness.wake(after=0.1, woken=True)
    assert harness.asked == ["pending_to_ready", "ready_to_unack"]


def test_a_wakeup_counts_once():
    harness = LoopHarness()
    harness.wake()
    harness.reply()
    harness.wake(after=0.1, woken=True)
    harness.reply()
    harness.wake()
    assert harness.asked == ["is_empty"]


def test_a_wakeup_that_comes_during_a_round_trip_is_not_lost():
    harness = LoopHarness()
    harness.wake()
    harness.tell(replies=[harness._answer(ask, None) for ask in harness._turn.calls], woken=True)
    harness.wake()
    assert "ready_to_unack" in harness.asked


def test_waiting_messages_are_claimed_without_a_pause():
    harness = LoopHarness()
    harness.wake()
    harness.reply()
    harness.wake()
    harness.reply(is_empty=False)
    harness.wake()
    harness.reply(pending_to_ready=promoted(moved=3, waiting=3))
    assert harness.sleeps == 0
    harness.wake()
    assert "ready_to_unack" in harness.asked


def test_it_continues_while_more_is_waiting_and_it_has_capacity():
    harness = LoopHarness(concurrency=5)
    harness.wake()
    harness.reply(ready_to_unack=claimed("a", left=1))
    assert harness.sleeps == 0
    harness.wake()
    harness.reply(ready_to_unack=claimed("b", left=0))
    assert harness.sleeps == 1


def test_full_consumer_waits_for_callbacks_not_for_due_messages():
    harness = LoopHarness(concurrency=1, prefetch=0)
    harness.wake()
    harness.reply(
        ready_to_unack=claimed("a", left=5),
        pending_to_ready=promoted(waiting=6, next_due=harness.server(harness.now + 0.1)),
    )
    assert harness.sleeps == 1
    assert not harness.listens


def test_a_full_consumer_claims_again_as_soon_as_a_callback_has_ended():
    harness = LoopHarness(concurrency=1, prefetch=0)
    harness.wake()
    harness.reply(ready_to_unack=claimed("a", left=5))
    harness.wake(after=0.2, done=[harness.done("a")])
    assert harness.asked == ["ack", "ready_to_unack"]


def test_a_full_consumer_passes_a_wakeup_on_by_claiming_nothing():
    harness = LoopHarness(concurrency=1, prefetch=0)
    harness.hold("a")
    harness.wake(after=0.1, woken=True)
    assert harness.ask("ready_to_unack").what == 0


def test_a_full_consumer_without_a_wakeup_claims_nothing():
    harness = LoopHarness(concurrency=1, prefetch=0)
    harness.wake()
    harness.reply(ready_to_unack=claimed("a", left=5))
    harness.wake()
    assert harness.asked == ["pending_to_ready"]


def test_claimed_messages_are_started_in_their_order_and_know_how_late_they_are():
    harness = LoopHarness(concurrency=3)
    harness.wake()
    assert harness.reply(ready_to_unack=claimed("c", "a", "b", late=1500)) == ["c", "a", "b"]
    deliveries = [harness.delivery(id) for id in "cab"]
    assert [delivery.server_now - delivery.claimed.due for delivery in deliveries] == [1500, 1500, 1500]
    assert harness.in_flight == ["c", "a", "b"]


def test_nothing_is_started_twice():
    harness = LoopHarness(concurrency=2)
    harness.hold("a", "b")
    harness.wake()
    assert harness.reply() == []
    harness.wake(woken=True)
    assert harness.reply(ready_to_unack=ServerError("refused")) == []


def test_completion_during_start_is_handled():
    harness = LoopHarness(concurrency=5)
    harness.hold("a")
    harness.wake(after=0.1, woken=True)
    harness.reply(ready_to_unack=claimed("b"), done=[harness.done("a")])
    assert harness.sleeps == 0
    harness.wake()
    assert harness.ask("ack").what == harness.receipts("a")
