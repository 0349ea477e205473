"""Consuming a partitioned queue: one worker for all partitions, with a loop for each node that has some."""

from __future__ import annotations

from collections.abc import Generator
from copy import copy
from typing import Any

from delayq.broker.transport.operation import Wait
from delayq.queue.consuming.consumer import ConsumeOptions
from delayq.queue.consuming.starting import D
from delayq.queue.partitioned.partition import Partition
from delayq.queue.partitioned.sharing import Sharing, Turn, share_while_busy
from delayq.queue.pooling.worker import WorkerBase
from delayq.worker.drivers.served import ServerLoop
from delayq.worker.loop.loop_steps import RoundTrip, Sleep, Step, StepResult
from delayq.worker.pool.pool import Pool, PoolQueue
from delayq.worker.pool.pool_chores import Answered, attempt
from delayq.worker.pool.pool_loop import PoolLoop


class PartitionsLoop(PoolLoop):
    """The loop of the partitions on one server. A burst goes on while a limit lets others start."""

    sharing: Sharing | None = None

    def run(self) -> Generator[Step, StepResult, None]:
        """Consume; see `PoolLoop.run`."""
        while True:
            yield from super().run()
            if not self._burst or self._stop_at is not None or not (yield from self._share()):
                return
            for queue in self._first:
                queue.start()

    def _share(self) -> Generator[Step, StepResult, bool]:
        """Share out the limit of the queue, if there is one; returns whether something that waits may start now."""
        if self.sharing is None or not any(queue.loop.outlook.ranks for queue in self._first):
            return False
        while True:
            steps = attempt(self.sharing.turn())
            step = next(steps)
            try:
                while True:
                    result = yield Sleep(step.seconds, listen=False) if isinstance(step, Wait) else RoundTrip(step)
                    step = steps.send(Answered(result.replies, result.now))
            except StopIteration as end:
                found = end.value
            if not isinstance(found, Turn) or not found.whole.limits:
                return False
            if found.is_own or self._stop_at is not None:
                return found.opened
            yield Sleep(found.next_in, listen=False)


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
        self._lifespan = None if queue.lifespan is None else queue.lifespan.anew()

    def _pooled(self, message_class: Any, queue: Any, **how: Any) -> PoolQueue:
        return super()._pooled(message_class, queue, **{**how, "lifespan": self._lifespan})

    def _prepare(self, servers: list[ServerLoop], pool: Pool, *, burst: bool) -> None:
        """Have one loop share out the limit of the queue: one of its own where there are several nodes.

        So a node that does not answer holds up only that.
        """
        sharing, loop = Sharing(self._queue), servers[0].loop
        served = [queue for server in servers for queue in server.loop.queues]
        if burst:
            for server in servers:
                server.loop.sharing = sharing
        has_own = len(servers) > 1 and not burst
        if has_own:
            executor = copy(self._queue.executor)
            executor.opening = executor.checking = None
            loop = PoolLoop([], pool, in_cluster=True)
            servers.append(ServerLoop(executor, loop))
        loop.begin(share_while_busy(sharing, served), stays=has_own)

    def make_driver(self, kind: type[D], options: ConsumeOptions) -> D:
        """Return the driver of a run."""
        driver = self._make_driver(kind, options)
        if self._lifespan is not None:
            driver.lifespans = self._lifespan.together([self._lifespan])
        return driver
