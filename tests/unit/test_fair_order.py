"""The order in which the queues of a worker get free callbacks."""

from collections import Counter

import pytest

from delayq.worker.pool.fair_order import StrictOrder, WeightedOrder


def weighted(*weights):
    order = WeightedOrder()
    for number, weight in enumerate(weights):
        order.add(number, weight)
    return order


def starts(order, count, always):
    """Return who starts, while each of the queues `always` has something."""
    started = []
    for _ in range(count):
        for queue in always:
            order.put(queue)
        queue = order.take()
        order.count(queue)
        started.append(queue)
    return started


def test_each_window_has_each_queue_as_often_as_its_weight():
    started = starts(weighted(6, 3, 1), 100, range(3))
    assert all(Counter(started[at : at + 10]) == {0: 6, 1: 3, 2: 1} for at in range(90))


def test_a_queue_with_another_weight_that_comes_later_gets_its_part_from_then_on():
    order = weighted(3, 2)
    starts(order, 17, [0, 1])
    order.add(2, 7)
    assert Counter(starts(order, 120, [0, 1, 2])) == {0: 30, 1: 20, 2: 70}


def test_a_queue_that_has_gone_is_never_taken():
    order = weighted(1, 1)
    order.put(0)
    order.put(1)
    order.remove(0)
    assert (order.take(), order.take()) == (1, None)
    assert not order.waiting


def test_a_queue_that_was_empty_saves_up_nothing():
    order = weighted(1, 1)
    starts(order, 50, [0])
    assert Counter(starts(order, 20, [0, 1])) == {0: 10, 1: 10}


def test_a_queue_that_could_not_start_saves_up_nothing():
    order = weighted(1, 1, 1)
    for _ in range(30):  # 0 is taken, cannot start, and is put back
        order.put(0)
        order.put(1)
        order.put(2)
        held = []
        while (queue := order.take()) == 0:
            held.append(queue)
        order.count(queue)
        for one in held:
            order.put(one)
    assert Counter(starts(order, 30, [0, 1, 2])) == {0: 10, 1: 10, 2: 10}


def test_a_share_says_who_starts_next_and_counts_nothing():
    order = weighted(6, 3, 1)
    for _ in range(2):
        assert order.share(20, {0: 100, 1: 100, 2: 100}, ()) == {0: 12, 1: 6, 2: 2}
    assert order.share(20, {0: 1, 2: 100}, [0]) == {0: 1, 2: 0}
    assert order.share(20, {0: 1, 2: 100}, ()) == {0: 1, 2: 19}


@pytest.mark.parametrize("kind", [WeightedOrder, StrictOrder])
def test_without_queues_nobody_starts(kind):
    order = kind()
    assert order.take() is None
    assert not order.waiting


def test_strict_takes_the_first_and_forgets_what_has_gone():
    order = StrictOrder()
    for number in range(3):
        order.add(number, 1)
    for number in (2, 0, 1, 0):
        order.put(number)
    order.remove(0)
    assert [order.take(), order.take(), order.take()] == [1, 2, None]
    assert order.share(5, {2: 3, 1: 3}, ()) == {1: 3, 2: 2}
