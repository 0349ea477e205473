"""Batches of limited count and size."""

import pytest

from delayq.broker.batches import batched, byte_slices


def test_batched_splits_items_into_batches():
    assert list(batched(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(batched([], 2)) == []


@pytest.mark.parametrize(
    ("sizes", "max_items", "expected"),
    [
        ([], None, []),
        ([0, 0, 0], None, [[0, 0, 0]]),
        ([600, 600, 100, 2000, 10], 4, [[600], [600, 100], [2000], [10]]),
        ([500, 500, 1], None, [[500, 500], [1]]),
        ([1, 2, 3, 4, 5], 2, [[1, 2], [3, 4], [5]]),
        ([1000, 0, 0, 1001, 0], None, [[1000, 0, 0], [1001], [0]]),
    ],
)
def test_byte_slices_limits_items_and_bytes(sizes, max_items, expected):
    assert [sizes[part] for part in byte_slices(sizes, 1000, max_items)] == expected
