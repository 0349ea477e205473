"""Leases of a partitioned queue: each claims from one partition that has something due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from random import choice
from typing import Any

from delayq.broker.transport.operation import Operation
from delayq.queue.consuming.lease import AsyncLease, Lease
from delayq.queue.partitioned.routing import at_each
from delayq.values.times import Duration, monotonic, to_millis

LOOK_EVERY = 0.1
"""Seconds between two looks at partitions that have nothing due."""


def due_partition(partitions: Sequence[Any]) -> Operation[Any]:
    """Return one of the partitions that have something to claim, any of them; None if none has."""
    looked = yield from at_each(partitions, _look)
    due = [one for one, found in zip(partitions, looked, strict=True) if found]
    return choice(due) if due else None  # noqa: S311 - no secret


def _look(partition: Any) -> Operation[bool]:
    calls = partition.context.calls
    expired, promoted = yield [calls.unack_to_retry(), calls.pending_to_ready()]
    may_start = 0 <= promoted.next_gate <= promoted.now  # what a limit has held back
    return bool(promoted.waiting or promoted.garbage or expired.retried or expired.spent or may_start)


def lease(queue: Any, duration: Duration | None, n: int | None, block: Duration) -> Lease[Any, Any]:
    """Claim messages of one partition, waiting up to `block` for the first; see `DelayQueue.lease`."""
    end = monotonic() + to_millis(block, "block") / 1000
    while True:
        one = queue.executor.perform(due_partition(queue.partitions))
        found: Lease[Any, Any] = Lease((one or queue.partitions[0]).context, queue.executor, duration, n, block=0)
        if len(found) or monotonic() >= end:
            return found
        time.sleep(max(0.0, min(LOOK_EVERY, end - monotonic())))


class AsyncPartitionedLease(AsyncLease[Any, Any]):
    """Messages claimed by `lease` of an asyncio queue; see `AsyncLease`."""

    def __init__(self, queue: Any, duration: Duration | None, n: int | None, *, block: Duration) -> None:
        super().__init__(queue.partitions[0].context, queue.executor, duration, n, block=0)
        self._queue = queue
        self._end = monotonic() + to_millis(block, "block") / 1000

    async def _claim_once(self) -> AsyncPartitionedLease:
        await self._queue.open()
        while not self._claimed:
            if (one := await self._executor.perform(due_partition(self._queue.partitions))) is not None:
                self._context = one.context
            if one is not None or monotonic() >= self._end:
                await super()._claim_once()
                if len(self) or monotonic() >= self._end:
                    break
                self._claimed = False  # another consumer was faster
            await asyncio.sleep(max(0.0, min(LOOK_EVERY, self._end - monotonic())))
        return self
