"""In which order the queues of a worker get free callbacks: by weight, or strictly by rank.

By weight, a queue's next start is due at a virtual time: each start moves it on by the reciprocal of the weight. The
earliest comes first. In any run of as many starts as all weights together, a queue that is never empty thus gets
exactly its weight, evenly spread. A queue that was empty continues from now on: it saves up nothing, and owes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from math import lcm


class WeightedOrder:
    """Smooth weighted round robin over queues, which are numbers from 0."""

    def __init__(self, weights: Sequence[int]) -> None:
        """Start with all queues even; a weight is 1 or more."""
        common = 2 * lcm(*weights)
        self._steps = [common // weight for weight in weights]
        self._next = [step // 2 for step in self._steps]
        self._now = 0

    def _resume(self, queues: Sequence[int]) -> None:
        for queue in queues:
            if self._next[queue] < self._now:
                self._next[queue] = self._now + self._steps[queue] // 2

    def pick(self, queues: Sequence[int]) -> int:
        """Return which of these queues starts next, and count that start."""
        self._resume(queues)
        queue = min(queues, key=self._next.__getitem__)
        self._now = self._next[queue]
        self._next[queue] += self._steps[queue]
        return queue

    def share(self, starts: int, most: Mapping[int, int], stops: Collection[int]) -> dict[int, int]:
        """Return how many of the next `starts` each queue would get if it can start at `most` so many.

        What would follow one of `stops` that has no more is not counted: its turn comes first.
        """
        self._resume([*most])
        shares = dict.fromkeys(most, 0)
        coming = [(self._next[queue], queue) for queue, limit in most.items() if limit > 0 or queue in stops]
        heapify(coming)
        for _ in range(starts):
            if not coming:
                break
            at, queue = coming[0]
            if shares[queue] == most[queue]:
                break
            shares[queue] += 1
            if shares[queue] < most[queue] or queue in stops:
                heapreplace(coming, (at + self._steps[queue], queue))
            else:
                heappop(coming)
        return shares


class StrictOrder:
    """Always the first queue that has something to start."""

    def pick(self, queues: Sequence[int]) -> int:
        """Return which of these queues starts next."""
        return min(queues)

    def share(self, starts: int, most: Mapping[int, int], stops: Collection[int]) -> dict[int, int]:
        """Return how many of the next `starts` each queue would get; see `WeightedOrder.share`."""
        shares = dict.fromkeys(most, 0)
        for queue in sorted(most):
            shares[queue] = max(0, min(starts, most[queue]))
            starts -= shares[queue]
            if queue in stops:
                break
        return shares
