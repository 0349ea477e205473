"""In which order the queues of a worker get free callbacks: by weight, or strictly by rank.

By weight, a queue's next start is due at a virtual time: each start moves it on by the reciprocal of the weight. The
earliest comes first. In any run of as many starts as all weights together, a queue that is never empty thus gets
exactly its weight, evenly spread. A queue that was empty continues from now on: it saves up nothing, and owes nothing.

Queues are numbers. Those that have something to start wait in a heap, so a start costs little however many others
there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from math import lcm


class WeightedOrder:
    """Smooth weighted round robin over queues that come and go."""

    def __init__(self) -> None:
        """Start without queues."""
        self._common = 2
        """Twice a common multiple of the weights, so that half a step is a whole number."""
        self._steps: dict[int, int] = {}
        self._next: dict[int, int] = {}
        self._now = 0
        self._heap: list[tuple[int, int]] = []
        self._waiting: set[int] = set()

    def add(self, queue: int, weight: int) -> None:
        """Add a queue; its weight is 1 or more."""
        factor = lcm(self._common, 2 * weight) // self._common
        if factor > 1:
            self._common *= factor
            self._now *= factor
            self._steps = {known: factor * step for known, step in self._steps.items()}
            self._next = {known: factor * at for known, at in self._next.items()}
            self._heap = [(factor * at, known) for at, known in self._heap]
        self._steps[queue] = self._common // weight
        self._next[queue] = self._now + self._steps[queue] // 2

    def remove(self, queue: int) -> None:
        """Forget a queue."""
        del self._steps[queue], self._next[queue]
        self._waiting.discard(queue)

    def _resume(self, queues: Iterable[int]) -> None:
        for queue in queues:
            if self._next[queue] < self._now:
                self._next[queue] = self._now + self._steps[queue] // 2

    @property
    def waiting(self) -> Collection[int]:
        """The queues that were put in and not taken out."""
        return self._waiting

    def put(self, queue: int) -> None:
        """Put a queue in, which has something to start."""
        if queue not in self._waiting:
            self._waiting.add(queue)
            self._resume([queue])
            heappush(self._heap, (self._next[queue], queue))

    def take(self) -> int | None:
        """Take out the queue whose turn it is; None if there is none. It counts as a start only with `count`."""
        while self._heap:
            at, queue = heappop(self._heap)
            if queue not in self._waiting:  # removed
                continue
            self._resume([queue])
            if self._next[queue] > at:  # it could not start at its time
                heappush(self._heap, (self._next[queue], queue))
                continue
            self._waiting.discard(queue)
            return queue
        return None

    def count(self, queue: int) -> None:
        """Count a start of a queue that was taken out."""
        self._now = self._next[queue]
        self._next[queue] += self._steps[queue]

    def share(self, starts: int, most: Mapping[int, int], stops: Collection[int]) -> dict[int, int]:
        """Return how many of the next `starts` each queue would get if it can start at `most` so many.

        What would follow one of `stops` that has no more is not counted: its turn comes first.
        """
        self._resume(most)
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

    def __init__(self) -> None:
        """Start without queues."""
        self._heap: list[int] = []
        self._waiting: set[int] = set()

    def add(self, queue: int, weight: int) -> None:
        """Add a queue; weights do not count."""

    def remove(self, queue: int) -> None:
        """Forget a queue."""
        self._waiting.discard(queue)

    @property
    def waiting(self) -> Collection[int]:
        """The queues that were put in and not taken out."""
        return self._waiting

    def put(self, queue: int) -> None:
        """Put a queue in, which has something to start."""
        if queue not in self._waiting:
            self._waiting.add(queue)
            heappush(self._heap, queue)

    def take(self) -> int | None:
        """Take out the first queue; None if there is none."""
        while self._heap:
            queue = heappop(self._heap)
            if queue in self._waiting:
                self._waiting.discard(queue)
                return queue
        return None

    def count(self, queue: int) -> None:
        """Count a start, which changes nothing."""

    def share(self, starts: int, most: Mapping[int, int], stops: Collection[int]) -> dict[int, int]:
        """Return how many of the next `starts` each queue would get; see `WeightedOrder.share`."""
        shares = dict.fromkeys(most, 0)
        for queue in sorted(most):
            shares[queue] = max(0, min(starts, most[queue]))
            starts -= shares[queue]
            if queue in stops:
                break
        return shares
