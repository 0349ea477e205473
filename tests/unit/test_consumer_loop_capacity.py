"""How many messages a consumer holds at a time."""

import pytest

from delayq.broker.replies import ClaimedMessage, ClaimReply
from delayq.errors import ServerError
from delayq.worker.delivery.disposition import Disposition
from tests.support.loop_harness import LoopHarness, claimed


def wanted(harness):
    return harness.ask("ready_to_unack").what


def room(harness):
    """Return how many more messages it may claim."""
    return harness.capacity


def measured(took, **options):
    """A consumer that has just measured how long its callback takes."""
    harness = LoopHarness(**options)
    harness.hold("a")
    harness.wake(after=0.1, done=[harness.done("a", took=took)], woken=True)
    return harness


@pytest.mark.parametrize("concurrency", [1, 10])
def test_nothing_is_prefetched_before_measuring(concurrency):
    harness = LoopHarness(concurrency=concurrency)
    harness.wake()
    assert wanted(harness) == concurrency


@pytest.mark.table(
    ("took", "concurrency", "prefetch"),
    [
        (0.0, 1, 500),
        (0.0001, 1, 500),
        (0.0002, 1, 500),
        (0.001, 1, 100),
        (0.01, 1, 10),
        (0.03, 1, 3),
        (0.1, 1, 1),
        (0.11, 1, 0),
        (0.2, 1, 0),
        (3600.0, 1, 0),
        (0.05, 10, 20),
        (1.0, 10, 1),
        (1.0, 20, 2),
        (0.001, 10, 500),
        (0.001, 49, 500),
        (0.01, 49, 490),
        (0.001, 50, 1000),
        (0.01, 50, 500),
        (0.001, 5000, 1000),
    ],
)
def test_100_ms_of_work_is_prefetched_up_to_500_messages_and_1000_for_many_workers(took, concurrency, prefetch):
    assert room(measured(took, concurrency=concurrency)) == concurrency + prefetch


def test_one_slow_callback_does_not_end_the_prefetching_of_fast_ones():
    harness = measured(0.001)
    harness.reply(ready_to_unack=claimed("b"))
    harness.wake(after=0.5, done=[harness.done("b", took=0.101)], woken=True)
    assert wanted(harness) == 1 + 9  # 0.9 of 1 ms and 0.1 of 101 ms are 11 ms


def test_failed_callbacks_are_measured_too():
    harness = LoopHarness()
    harness.hold("a")
    harness.wake(after=0.1, done=[harness.done("a", Disposition.NACK, "boom", took=0.02)], woken=True)
    assert wanted(harness) == 1 + 5


@pytest.mark.parametrize(("prefetch", "concurrency", "most"), [(0, 1, 1), (0, 4, 4), (7, 1, 8), (500, 10, 510)])
def test_fixed_prefetch_ignores_measurements(prefetch, concurrency, most):
    assert room(measured(0.0001, prefetch=prefetch, concurrency=concurrency)) == most


@pytest.mark.parametrize(("fetch_limit", "most"), [(1, 1), (3, 3), (11, 11), (50, 12)])
def test_the_fetch_limit_bounds_running_and_prefetched_together(fetch_limit, most):
    harness = LoopHarness(concurrency=10, prefetch=2, fetch_limit=fetch_limit)
    harness.wake()
    assert wanted(harness) == most


def test_fetch_limit_of_unsettled_messages_stops_claims():
    ids = [f"m{n}" for n in range(10)]
    harness = LoopHarness(concurrency=20, fetch_limit=10)
    harness.wake()
    harness.reply(ready_to_unack=claimed(*ids, left=90))
    harness.wake()
    assert harness.asked == ["pending_to_ready"]


def test_claims_grow_while_they_leave_messages():
    harness = LoopHarness(prefetch=500)
    harness.wake()
    sizes = []
    for claim in range(4):
        sizes.append(wanted(harness))
        harness.reply(ready_to_unack=claimed(f"m{claim}", left=1000))
        harness.wake()
    assert sizes == [16, 64, 250, 250]
    harness.reply(ready_to_unack=claimed("last"))
    harness.wake(after=0.5, woken=True)
    assert wanted(harness) == 16


@pytest.mark.parametrize(("options", "first"), [({"concurrency": 40}, 40), ({"concurrency": 4, "batch": 10}, 40)])
def test_first_claim_gives_every_free_worker_a_callback(options, first):
    harness = LoopHarness(prefetch=500, **options)
    harness.wake()
    assert wanted(harness) == first


@pytest.mark.parametrize(
    ("options", "most"),
    [({"prefetch": 500}, 250), ({"prefetch": 500, "concurrency": 49}, 250), ({"concurrency": 5000}, 500)],
)
def test_claim_takes_at_most_250_and_500_for_many_workers(options, most):
    harness = LoopHarness(**options)
    harness.loop.in_flight.prefetch.grow(250, more=True)
    harness.wake()
    assert wanted(harness) == most


@pytest.mark.table(
    ("latency", "most"), [(0.0, 250), (0.0035, 250), (0.0045, 500), (0.0065, 750), (0.0085, 1000), (0.5, 1000)]
)
def test_claim_over_a_network_takes_up_to_1000(latency, most):
    harness = LoopHarness(concurrency=49, batch=100)
    for _ in range(2):  # the first connects
        harness.wake(after=0.1, woken=True)
        harness.reply(after=latency)
        harness.settle_down()
    harness.wake(after=0.1, woken=True)
    assert wanted(harness) == most


@pytest.mark.table(
    ("latency", "took", "prefetch"),
    [(0.0, 0.0, 500), (0.0045, 0.0, 1000), (0.5, 0.0, 2000), (0.5, 0.0001, 1000), (0.5, 0.01, 10)],
)
def test_100_ms_of_work_is_prefetched_over_a_network_up_to_2000_messages(latency, took, prefetch):
    harness = LoopHarness(concurrency=1)
    harness.hold("a")
    harness.wake(after=0.1, done=[harness.done("a", took=took)], woken=True)
    harness.reply(after=latency)
    assert room(harness) == 1 + prefetch


def test_claim_takes_a_whole_batch():
    harness = LoopHarness(batch=1000)
    harness.wake()
    assert wanted(harness) == 1000


def test_half_of_the_prefetch_is_claimed_while_the_other_runs():
    ids = [f"m{n}" for n in range(250)]
    harness = LoopHarness(prefetch=500)
    harness.wake()
    harness.reply(ready_to_unack=claimed(*ids, left=1000))
    assert harness.sleeps == 0
    harness.wake()
    assert harness.asked == ["ready_to_unack"]
    harness.reply(
        ready_to_unack=claimed(*(f"n{n}" for n in range(250)), left=750), done=[harness.done(id) for id in ids]
    )
    assert harness.sleeps == 0
    harness.wake()
    assert harness.asked == ["ack", "ready_to_unack"]
    assert len(harness.ask("ack").what) == wanted(harness) == 250


# Batches


@pytest.mark.parametrize(("batch", "concurrency", "most"), [(1, 1, 1), (5, 1, 5), (100, 2, 200)])
def test_capacity_is_concurrency_times_batch(batch, concurrency, most):
    harness = LoopHarness(batch=batch, concurrency=concurrency)
    harness.wake()
    assert wanted(harness) == most


@pytest.mark.parametrize(
    ("took", "batch", "prefetch"),
    [(0.1, 10, 10), (0.15, 10, 0), (0.07, 10, 10), (0.02, 10, 50), (0.0001, 10, 500), (0.01, 100, 500)],
)
def test_whole_batches_that_start_within_100_ms_are_prefetched_up_to_500_messages(took, batch, prefetch):
    assert room(measured(took, batch=batch)) == batch + prefetch


def test_partial_batch_keeps_its_worker_from_more():
    harness = LoopHarness(batch=100, concurrency=2)
    harness.hold("a", "b")
    harness.begin_batch("a", "b")
    harness.wake(after=0.1, woken=True)
    assert wanted(harness) == 100


def test_the_fetch_limit_bounds_batches_too():
    harness = LoopHarness(batch=100, concurrency=10, fetch_limit=30)
    harness.wake()
    assert wanted(harness) == 30


def test_batch_with_separate_results_is_measured_once():
    harness = LoopHarness(concurrency=3)
    harness.hold("a", "b", "c")
    done = [harness.done("a", took=0.01), harness.done("b", took=None), harness.done("c", took=None)]
    harness.wake(after=0.1, done=done, woken=True)
    assert room(harness) == 3 + 30


def test_messages_in_flight_use_capacity():
    harness = LoopHarness(concurrency=4, prefetch=2)
    harness.hold("a", "b")
    harness.wake(woken=True)
    assert wanted(harness) == 4


def test_settlement_frees_capacity_in_the_same_turn():
    harness = LoopHarness(concurrency=2, prefetch=0)
    harness.hold("a", "b")
    harness.wake(after=0.1, done=[harness.done("a")], woken=True)
    assert wanted(harness) == 1


def test_unsent_settlement_frees_no_capacity():
    harness = LoopHarness(concurrency=1, prefetch=0)
    harness.hold("a")
    harness.wake(after=0.1, done=[harness.done("a")], woken=True)
    harness.reply(ack=ServerError("ack: WRONGTYPE"))
    harness.wake(after=0.1, woken=True)
    assert wanted(harness) == 0


def test_two_deliveries_of_an_id_are_separate():
    harness = LoopHarness(concurrency=3)
    harness.hold("a")
    first = harness.delivery("a")
    harness.wake(after=0.1, woken=True)
    again = ClaimReply(0, 0, 0, [ClaimedMessage("a", 8, b"1", 3, 0, 2, b"")])
    harness.reply(ready_to_unack=again)
    assert harness.in_flight == ["a", "a"]
    assert harness.delivery("a") is not first
