"""How many messages a consumer holds at a time."""

import pytest

from delayq.answers import Claimed, Delivery
from delayq.errors import ServerError
from delayq.verdict import Verdict
from tests.support.flow import Play, claimed


def wanted(play):
    return play.ask("ready_to_unack").what


def room(play):
    """How many it may hold once what it owes is settled."""
    return play.flow.held.room() + len(play.flow.owed)


def measured(took, **options):
    """A consumer that has just measured how long its callback takes."""
    play = Play(**options)
    play.hold("a")
    play.wake(after=0.1, done=[play.done("a", took=took)], signalled=True)
    return play


@pytest.mark.parametrize("concurrency", [1, 10])
def test_before_anything_was_measured_one_message_is_prefetched(concurrency):
    play = Play(concurrency=concurrency)
    play.wake()
    assert wanted(play) == concurrency + 1


@pytest.mark.parametrize(
    ("took", "concurrency", "prefetch"),
    [
        (0.0, 1, 500),
        (0.0001, 1, 500),
        (0.0002, 1, 500),
        (0.001, 1, 100),
        (0.01, 1, 10),
        (0.03, 1, 3),
        (0.1, 1, 1),
        (0.2, 1, 1),
        (3600.0, 1, 1),
        (0.05, 10, 20),
        (1.0, 10, 1),
        (1.0, 20, 2),
        (0.001, 10, 500),
    ],
)
def test_what_starts_within_100_ms_is_prefetched_1_to_500(took, concurrency, prefetch):
    assert room(measured(took, concurrency=concurrency)) == concurrency + prefetch


def test_one_slow_callback_does_not_end_the_prefetching_of_fast_ones():
    play = measured(0.001)
    play.answer(ready_to_unack=claimed("b"))
    play.wake(after=0.5, done=[play.done("b", took=0.101)], signalled=True)
    assert wanted(play) == 1 + 9  # 0.9 of 1 ms and 0.1 of 101 ms are 11 ms


def test_failed_callbacks_are_measured_too():
    play = Play()
    play.hold("a")
    play.wake(after=0.1, done=[play.done("a", Verdict.NACK, "boom", took=0.02)], signalled=True)
    assert wanted(play) == 1 + 5


@pytest.mark.parametrize(("prefetch", "concurrency", "most"), [(0, 1, 1), (0, 4, 4), (7, 1, 8), (500, 10, 510)])
def test_a_fixed_prefetch_is_kept_whatever_is_measured(prefetch, concurrency, most):
    assert room(measured(0.0001, prefetch=prefetch, concurrency=concurrency)) == most


@pytest.mark.parametrize(("fetch_limit", "most"), [(1, 1), (3, 3), (11, 11), (50, 11)])
def test_the_fetch_limit_bounds_running_and_prefetched_together(fetch_limit, most):
    play = Play(concurrency=10, fetch_limit=fetch_limit)
    play.wake()
    assert wanted(play) == most


def test_with_everything_of_the_fetch_limit_unsettled_nothing_more_is_claimed():
    ids = [f"m{n}" for n in range(10)]
    play = Play(concurrency=20, fetch_limit=10)
    play.wake()
    play.answer(ready_to_unack=claimed(*ids, left=90))
    play.wake()
    assert play.asked == ["pending_to_ready"]


@pytest.mark.parametrize(
    ("options", "most"), [({"concurrency": 250}, 250), ({"concurrency": 5000}, 250), ({"prefetch": 500}, 250)]
)
def test_one_claim_takes_250_at_most_so_that_the_server_is_at_work_while_callbacks_are(options, most):
    play = Play(**options)
    play.wake()
    assert wanted(play) == most


def test_one_claim_takes_a_whole_batch_however_large():
    play = Play(batch=1000)
    play.wake()
    assert wanted(play) == 1000


def test_while_half_of_what_is_prefetched_is_processed_the_other_half_is_claimed():
    ids = [f"m{n}" for n in range(250)]
    play = Play(prefetch=500)
    play.wake()
    play.answer(ready_to_unack=claimed(*ids, left=1000))
    assert play.sleeps == 0
    play.wake()
    assert play.asked == ["pending_to_ready", "ready_to_unack"]
    play.answer(ready_to_unack=claimed(*(f"n{n}" for n in range(250)), left=750), done=[play.done(id) for id in ids])
    assert play.sleeps == 0
    play.wake()
    assert play.asked == ["ack", "pending_to_ready", "ready_to_unack"]
    assert len(play.ask("ack").what) == wanted(play) == 250


# Batches


@pytest.mark.parametrize(("batch", "concurrency", "most"), [(1, 1, 2), (5, 1, 6), (100, 2, 201)])
def test_there_is_room_for_as_many_batches_as_run_at_a_time(batch, concurrency, most):
    play = Play(batch=batch, concurrency=concurrency)
    play.wake()
    assert wanted(play) == most


@pytest.mark.parametrize(
    ("took", "batch", "prefetch"), [(0.1, 10, 10), (1.0, 10, 1), (0.02, 10, 50), (0.0001, 10, 500), (0.01, 100, 500)]
)
def test_batches_that_start_within_100_ms_are_prefetched_up_to_500_messages(took, batch, prefetch):
    assert room(measured(took, batch=batch)) == batch + prefetch


def test_the_fetch_limit_bounds_batches_too():
    play = Play(batch=100, concurrency=10, fetch_limit=30)
    play.wake()
    assert wanted(play) == 30


def test_a_batch_that_was_judged_one_by_one_is_measured_once():
    play = Play(concurrency=3)
    play.hold("a", "b", "c")
    done = [play.done("a", took=0.01), play.done("b", took=None), play.done("c", took=None)]
    play.wake(after=0.1, done=done, signalled=True)
    assert room(play) == 3 + 30


def test_what_is_held_takes_room():
    play = Play(concurrency=4, prefetch=2)
    play.hold("a", "b")
    play.wake(signalled=True)
    assert wanted(play) == 4


def test_what_is_settled_in_a_turn_makes_room_in_the_same_turn():
    play = Play(concurrency=2, prefetch=0)
    play.hold("a", "b")
    play.wake(after=0.1, done=[play.done("a")], signalled=True)
    assert wanted(play) == 1


def test_a_settlement_that_cannot_be_sent_yet_makes_no_room():
    play = Play(concurrency=1, prefetch=0)
    play.hold("a")
    play.wake(after=0.1, done=[play.done("a")], signalled=True)
    play.answer(ack=ServerError("ack: WRONGTYPE"))
    play.wake(after=0.1, signalled=True)
    assert wanted(play) == 0


def test_two_lives_of_an_id_are_held_apart():
    play = Play(concurrency=3)
    play.hold("a")
    first = play.holding("a")
    play.wake(after=0.1, signalled=True)
    again = Claimed(0, 0, 0, [Delivery("a", 8, b"1", 3, 0, 2, b"")])
    play.answer(ready_to_unack=again)
    assert play.held == ["a", "a"]
    assert play.holding("a") is not first
