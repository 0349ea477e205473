"""Consuming a partitioned queue: one worker for all partitions, with a loop for each node that has some."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from delayq.broker.transport.operation import Wait
from delayq.errors import DelayqError
from delayq.queue.consuming.consumer import ConsumeOptions
from delayq.queue.consuming.starting import D
from delayq.queue.partitioned.partition import Partition
from delayq.queue.partitioned.partition_pool import PartitionPool
from delayq.queue.placing.layout import read_layout
from delayq.queue.pooling.worker import WorkerBase
from delayq.queue.sharing.sharing_loops import PartitionsLoop, begin_sharing
from delayq.safe_log import SafeLog
from delayq.worker.drivers.served import ServerLoop
from delayq.worker.pool.pool import Pool, PoolQueue
from delayq.worker.pool.pool_chores import ChoreSteps
from delayq.worker.pool.pool_loop import PoolLoop

log = SafeLog("delayq.consumer")

LOOK_EVERY = 3.0
"""Seconds between two looks at how many partitions there are, and on which nodes."""


class PartitionsWorker(WorkerBase[Any]):
    """Consumes all partitions of a queue with its one pool of callbacks: those that have messages take turns.

    The partitions of a node share a loop, so a node that does not answer holds up its own partitions alone.
    """

    _kind = Partition
    _loop_class = PartitionsLoop

    def __init__(self, queue: Any) -> None:
        """Consume with the functions and options of a queue."""
        super().__init__(dict.fromkeys(queue.partitions, 1), concurrency=queue.settings.concurrency)
        self._queue = queue
        self._lifespan = None if queue.own_lifespan is None else queue.own_lifespan.anew()
        self._nodes: list[Any] = []
        """The node of each loop: of one that has no partition any more, the next that has some takes over."""
        self._locating = threading.Lock()
        """Held while a loop is looked for: each runs in a thread of its own."""
        self._burst = False

    def _pooled(self, message_class: Any, queue: Any, **how: Any) -> PoolQueue:
        return super()._pooled(message_class, queue, **{**how, "lifespan": self._lifespan})

    def _begin_chores(self, loop: PoolLoop, served: dict[Any, PoolQueue], make: Callable[..., PoolQueue]) -> None:
        self._make, self._nodes = make, [*self._nodes, next(iter(served)).node]
        self._begin_following(loop, {one.name: pooled for one, pooled in served.items()}, len(self._nodes) - 1)

    def _begin_following(self, loop: PoolLoop, served: dict[str, PoolQueue], number: int) -> None:
        # It stays, also while its node has no partition: a slot may come back. A burst ends with what it began with.
        loop.begin(self._follow(loop, served, number), stays=not self._burst)

    def _follow(self, loop: PoolLoop, served: dict[str, PoolQueue], number: int) -> ChoreSteps[None]:
        """Serve partitions that are new, or have come to the node of a loop, and those that have left no more."""
        queue = self._queue
        while True:
            yield Wait(LOOK_EVERY)
            (stored,), _ = yield [read_layout(queue.prefix, queue.name)]
            if isinstance(stored, DelayqError):
                continue
            queue.learn(stored)
            own = {one.name: one for one in queue.partitions if self._loop_of(one) == number}
            if gone := [name for name in served if name not in own]:
                log.info("not serving %s here any more", ", ".join(gone))
                loop.remove([served.pop(name) for name in gone])
            if new := [one for name, one in own.items() if name not in served]:
                log.info("serving %s", ", ".join(one.name for one in new))
                made = {one.name: self._make(one, weight=1, limit=None, lifespan=None) for one in new}
                served |= made
                loop.add_new([*made.values()])

    def _make_pool(self, concurrency: int) -> Pool:
        return PartitionPool(concurrency)

    def _begin_together(self, servers: list[ServerLoop], pool: Pool, *, burst: bool) -> None:
        self._pool = pool
        begin_sharing(self._queue, servers, pool, burst=burst)

    def _loop_of(self, partition: Partition) -> int:
        """Return the number of the loop that serves a partition: that of its node, which may be a new one."""
        node = partition.node
        with self._locating:
            if node not in self._nodes:
                used = {one.node for one in self._queue.partitions}
                free = next((at for at, known in enumerate(self._nodes) if known not in used), None)
                if free is not None:
                    self._nodes[free] = node
                elif self._burst:
                    return 0
                else:
                    self._add_loop(partition)
            return self._nodes.index(node)

    def _add_loop(self, partition: Partition) -> None:
        log.info("%s is at a node that is new: a loop more serves it", partition.name)
        loop = self._loop_class([], self._pool, in_cluster=True)
        self._nodes.append(partition.node)
        self._begin_following(loop, {}, len(self._nodes) - 1)
        self._driver.add_server(ServerLoop(partition.executor, loop))

    def make_driver(self, kind: type[D], options: ConsumeOptions) -> D:
        """Return the driver of a run."""
        self._burst = options.get("burst", False)
        self._driver: Any = self._make_driver(kind, options)
        if self._lifespan is not None:
            self._driver.lifespans = self._lifespan.together([self._lifespan])
        return self._driver  # type: ignore[no-any-return]  # the one made above
