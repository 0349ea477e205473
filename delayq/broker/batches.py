"""Batches: one call handles a limited number of items, so that it does not block the server for long."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import TypeVar

BATCH = 250
"""Messages sent in one call: more cost the server no less, and consumers wait until it ends."""
BATCH_BYTES = 1 << 20
"""Payload bytes sent in one call; a single payload may be larger."""

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def byte_slices(sizes: Sequence[int], max_bytes: int, max_items: int | None = None) -> Iterator[slice]:
    """Yield slices of a sequence whose items have these sizes, each of at most `max_bytes` or of a single item."""
    ends = list(accumulate(sizes, initial=0))
    first = 0
    while first < len(sizes):
        last = min(first + (max_items or len(sizes)), len(sizes))
        end = max(bisect_right(ends, ends[first] + max_bytes, hi=last + 1) - 1, first + 1)
        yield slice(first, end)
        first = end
