"""Leases of a partitioned queue: claims from those partitions that have something due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from random import sample
from typing import Any

from delayq.broker.scripts import MAX_IDS
from delayq.broker.transport.operation import Operation
from delayq.queue.consuming.lease import AsyncLease, Lease
from delayq.queue.partitioned.routing import at_each
from delayq.values.checks import check_int
from delayq.values.times import Duration, monotonic, to_millis

LOOK_EVERY = 0.1
"""Seconds between two looks at partitions that have nothing due."""


class _Leases:
    """The leases of several partitions as one."""

    def __init__(self, queue: Any, duration: Duration | None, n: int | None, *, block: Duration) -> None:
        self._queue, self._duration, self._single = queue, duration, n is None
        self._wanted = 1 if n is None else check_int(n, "n", 1, MAX_IDS)
        self._end = monotonic() + to_millis(block, "block") / 1000
        self._leases: list[Any] = []

    @property
    def messages(self) -> list[Any]:
        """The messages claimed."""
        return [message for lease in self._leases for message in lease.messages]

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody has cancelled one of the messages meanwhile."""
        return any(lease.cancel_requested for lease in self._leases)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def _left(self) -> int:
        return self._wanted - len(self)

    @property
    def _entered(self) -> Any:
        messages = self.messages
        return messages if not self._single else messages[0] if messages else None

    def _due(self) -> Operation[list[Any]]:
        """Return the partitions that have something due, in any order."""
        partitions = self._queue.partitions
        counted = yield from at_each(partitions, _look)
        due = [one for one, found in zip(partitions, counted, strict=True) if found]
        return sample(due, len(due))

    def _wait(self) -> float:
        """Return how long to wait for the next look; nothing after the last one."""
        return min(LOOK_EVERY, self._end - monotonic())


def _look(partition: Any) -> Operation[bool]:
    calls = partition.context.calls
    expired, promoted = yield [calls.unack_to_retry(), calls.pending_to_ready()]
    may_start = 0 <= promoted.next_gate <= promoted.now  # what a limit has held back
    return bool(promoted.waiting or promoted.garbage or expired.retried or expired.spent or may_start)


class PartitionedLease(_Leases):
    """Messages claimed by `lease`; see `consuming.lease.Lease`."""

    def __init__(self, queue: Any, duration: Duration | None, n: int | None, *, block: Duration) -> None:
        super().__init__(queue, duration, n, block=block)
        while True:
            for one in queue.executor.perform(self._due()):
                self._leases.append(Lease(one.context, queue.executor, duration, self._left, block=0))
                if not self._left:
                    return
            if len(self) or self._wait() <= 0:
                return
            time.sleep(self._wait())

    def __enter__(self) -> Any:
        """Return the message (None if there is none), or with `n` the list of messages."""
        return self._entered

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Settle the messages that were not settled by hand; see `Lease`."""
        outcomes = [lease.__exit__(kind, error, trace) for lease in self._leases]
        return any(outcomes)


class AsyncPartitionedLease(_Leases):
    """Messages claimed by `lease` of an asyncio queue; see `AsyncLease`."""

    def __await__(self) -> Any:
        """Claim the messages and return the lease."""
        return self._claim().__await__()

    async def _claim(self) -> AsyncPartitionedLease:
        queue = self._queue
        await queue.open()
        while not self._leases:
            for one in await queue.executor.perform(self._due()):
                lease: Any = AsyncLease(one.context, queue.executor, self._duration, self._left, block=0)
                self._leases.append(await lease)
                if not self._left:
                    return self
            if len(self) or self._wait() <= 0:
                return self
            self._leases.clear()
            await asyncio.sleep(self._wait())
        return self

    async def __aenter__(self) -> Any:
        """Claim and return the message (None if there is none), or with `n` the list of messages."""
        await self._claim()
        return self._entered

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Settle the messages that were not settled by hand; see `AsyncLease`."""
        outcomes = [await lease.__aexit__(kind, error, trace) for lease in self._leases]
        return any(outcomes)
