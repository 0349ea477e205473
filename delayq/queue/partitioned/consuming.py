"""Consuming a partitioned queue: one worker for all partitions, with a loop for each node that has some."""

from __future__ import annotations

from typing import Any

from delayq.queue.consuming.consumer import ConsumeOptions
from delayq.queue.consuming.starting import D
from delayq.queue.partitioned.partition import Partition
from delayq.queue.pooling.worker import WorkerBase
from delayq.worker.pool.pool import PoolQueue


class PartitionsWorker(WorkerBase[Any]):
    """Consumes all partitions of a queue with its one pool of callbacks: those that have messages take turns.

    The partitions of a node share a loop, so a node that does not answer holds up its own partitions alone.
    """

    _kind = Partition

    def __init__(self, queue: Any) -> None:
        """Consume with the functions and options of a queue."""
        super().__init__(dict.fromkeys(queue.partitions, 1), concurrency=queue.settings.concurrency)
        self._lifespan = None if queue.lifespan is None else queue.lifespan.anew()

    def _pooled(self, message_class: Any, queue: Any, **how: Any) -> PoolQueue:
        return super()._pooled(message_class, queue, **{**how, "lifespan": self._lifespan})

    def make_driver(self, kind: type[D], options: ConsumeOptions) -> D:
        """Return the driver of a run."""
        driver = self._make_driver(kind, options)
        if self._lifespan is not None:
            driver.lifespans = self._lifespan.together([self._lifespan])
        return driver
