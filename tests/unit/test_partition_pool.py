"""The pool of a partitioned queue: which partitions claim how much, and in which order callbacks run."""

from __future__ import annotations

import math
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from delayq.queue.partitioned.partition_pool import TURN, TURN_SECONDS, PartitionPool
from delayq.worker.delivery.disposition import Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import Batch
from delayq.worker.parts.in_flight import MAX_CLAIMED, Prefetch


class _Buffer:
    """Deliveries that wait for a runner, as many as `batch` for one callback."""

    def __init__(self, batch: int = 1) -> None:
        self.waiting: deque[Any] = deque()
        self.batch = batch
        self.completed: list[Any] = []
        self.stop_reason: str | None = None
        self.fails = False

    @property
    def backlog(self) -> int:
        return len(self.waiting)

    def get(self) -> Any:
        taken = [self.waiting.popleft() for _ in range(min(self.batch, len(self.waiting)))]
        return (Batch(1.0, [True], "q"), taken, taken) if taken else None

    def complete(self, batch: Batch, deliveries: Any, result: object, error: object) -> float:
        if self.fails:
            raise ValueError("no completion")
        self.completed.append(deliveries)
        return 2.0

    def fail(self, batch: Batch, deliveries: Any, error: object) -> None:
        self.completed.append(error)


class _Partition:
    """A partition that has `there` messages; its callbacks take 10 µs."""

    def __init__(self, there: int = 100_000, *, fetch_limit: int | None = None, batch: int = 1) -> None:
        settings: Any = SimpleNamespace(concurrency=4, prefetch=None, fetch_limit=fetch_limit)
        prefetch = Prefetch(settings, batch)
        prefetch.on_completed([Completion([], Disposition.ACK, "", None, 0.00001)], 0.0)
        prefetch.grow(MAX_CLAIMED, more=True)
        self.there, self.weight, self.claimed, self.took = there, 1, 0, 0
        self.context = SimpleNamespace(settings=settings, queue="q#0")
        self.callback = SimpleNamespace(batch=batch)
        self.buffer = _Buffer(batch)
        self.in_flight = SimpleNamespace(prefetch=prefetch, allotted=0, held=0, deliveries=[], overdue=[])

    def start(self) -> None:
        """Start nothing."""

    def put(self, deliveries: list[Any], *, stopping: bool) -> None:
        if not stopping:
            self.buffer.waiting.extend(deliveries)

    def claimable(self, now: float) -> int:
        return self.there

    def claim(self) -> int:
        """Claim what it is allotted, as far as it is there, and have it processed at once."""
        took = min(self.in_flight.allotted, self.there)
        self.there -= took
        self.took += took
        return took


def _pool(*partitions: _Partition) -> tuple[PartitionPool, Any]:
    pool = PartitionPool(4)
    queues: Any = list(partitions)
    pool.add(queues)
    return pool, queues


def test_a_single_partition_claims_as_much_as_a_plain_queue():
    pool, queues = _pool(_Partition())
    pool.allot(queues, 1.0)
    assert queues[0].in_flight.allotted == MAX_CLAIMED


def _order(pool: PartitionPool, queues: Any, times: list[float]) -> list[int]:
    """Return which partitions claim at these times."""
    order = []
    for now in times:
        pool.allot(queues, now)
        order += [at for at, queue in enumerate(queues) if queue.claim()]
    return order


def test_partitions_take_turns_of_many_messages():
    pool, queues = _pool(*(_Partition() for _ in range(4)))
    order = _order(pool, queues, [1.0] * 32)  # the clock stands: no turn ends by its time
    claims = TURN // MAX_CLAIMED
    assert order[:4] == [0, 1, 2, 3]  # none waits for the turn of another before its first claim
    assert order[4:] == [at for at in [0, 1, 2, 3] * 2 for _ in range(claims)][: len(order) - 4]
    queues[3].there = 0
    pool.allot(queues, 1.0)
    queues[3].there = 5
    assert _order(pool, queues, [1.0])[-1] == 3  # it had nothing, so it need not wait for its turn


def test_a_turn_ends_with_its_time_too():
    pool, queues = _pool(_Partition(), _Partition())
    times = [1.0 + at * 2 * TURN_SECONDS for at in range(6)]
    assert _order(pool, queues, times) == [0, 1, 0, 0, 1, 1]  # the second claim finds its time over


@pytest.mark.parametrize("partitions", [2, 16, 64])
def test_one_with_a_single_message_waits_for_one_turn_of_each_other_at_most(partitions):
    busy = [_Partition() for _ in range(partitions - 1)]
    pool, queues = _pool(*busy, late := _Partition(TURN))
    while not late.took:  # its turn ends with this
        pool.allot(queues, 1.0)
        for queue in queues:
            queue.claim()
    late.took, late.there = 0, 1
    claimed_by_others = 0
    while not late.took:
        pool.allot(queues, 1.0)
        claimed_by_others += sum(queue.claim() for queue in busy)
        late.claim()
        assert claimed_by_others <= TURN * (partitions - 1) + MAX_CLAIMED  # with what others get beside it


def test_many_with_little_claim_together():
    pool, queues = _pool(*(_Partition(5) for _ in range(16)))
    pool.allot(queues, 1.0)
    assert [queue.in_flight.allotted for queue in queues] == [5] * 16


def test_nothing_is_claimed_while_enough_is_here():
    pool, queues = _pool(_Partition(), _Partition())
    pool.put([(queues[0], [object()] * 4000)])
    pool.allot(queues, 1.0)
    assert [queue.in_flight.allotted for queue in queues] == [0, 0]


def test_a_fetch_limit_holds_for_all_partitions_together():
    pool, queues = _pool(*(_Partition(5, fetch_limit=20) for _ in range(16)))
    queues[3].in_flight.deliveries = [object()] * 9
    queues[3].in_flight.overdue = [object()]
    queues[4].in_flight.held = 2
    pool.allot(queues, 1.0)
    assert sum(queue.in_flight.allotted for queue in queues) == 20 - 8 - 2


def test_callbacks_run_in_the_order_of_claims_whatever_the_partition():
    pool, queues = _pool(_Partition(), _Partition())
    pool.put([(queues[1], ["a", "b"]), (queues[0], ["c"])])
    pool.put([(queues[1], ["d"])])
    taken: Any = []
    while (one := pool.get()) is not None:
        taken.append(one)
    assert [one[1] for one in taken] == [["a"], ["b"], ["c"], ["d"]]
    assert [pool.queue_of(one[0]) for one in taken] == [queues[1], queues[1], queues[0], queues[1]]
    assert (pool.free, pool.runners, pool.waiting) == (0, 4, False)
    for one in taken:
        pool.complete(one[0], one[1], None, None)
    assert queues[1].buffer.completed == [["a"], ["b"], ["d"]]
    assert (pool.free, pool.runners) == (4, 0)


def test_a_batch_takes_what_is_there_of_its_partition_and_what_is_withdrawn_is_passed_over():
    pool, queues = _pool(_Partition(batch=3), _Partition(batch=3))
    pool.put([(queues[0], list("abcd")), (queues[1], list("xy"))])
    queues[1].buffer.waiting.clear()
    assert [pool.get()[1], pool.get()[1], pool.get()] == [["a", "b", "c"], ["d"], None]  # type: ignore[index]
    assert not pool.waiting


def test_what_cannot_be_completed_fails_and_what_stops_names_its_partition():
    pool, queues = _pool(_Partition())
    pool.put([(queues[0], ["a", "b"])])
    first, second = pool.get(), pool.get()
    assert first is not None
    assert second is not None
    queues[0].buffer.fails = True
    with pytest.raises(ValueError, match="no completion") as raised:
        pool.complete(first[0], first[1], None, None)
    pool.fail(first[0], first[1], raised.value)
    pool.fail(first[0], first[1], raised.value)  # it has ended
    assert queues[0].buffer.completed == [raised.value]
    queues[0].buffer.fails, queues[0].buffer.stop_reason = False, "enough"
    pool.complete(second[0], second[1], None, None)
    assert pool.stopped_by is queues[0]
    assert pool.stop_reason == "enough"


def test_a_partition_that_is_gone_claims_no_more():
    pool, queues = _pool(_Partition(), _Partition())
    pool.remove(queues[0])
    pool.allot(queues[1:], 1.0)
    assert queues[1].in_flight.allotted == MAX_CLAIMED
    pool.allot([], 1.0)
    assert math.isfinite(pool.presence_every(1))
