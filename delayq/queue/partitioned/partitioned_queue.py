"""A queue over many partitions: `DelayQueue("reminders", partitions=16)`, with the methods of any other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from delayq._parity import awaited, mirrors
from delayq.broker.transport.operation import Operation
from delayq.errors import NoResultError
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.partitioned.leases import AsyncPartitionedLease, PartitionedLease
from delayq.queue.partitioned.merged_events import MergedEvents
from delayq.queue.partitioned.partition import Partition
from delayq.queue.partitioned.partitioned_base import PartitionedBase
from delayq.queue.partitioned.routing import until, which_has
from delayq.queue.partitioned.sends import AsyncPartitionedSends, PartitionedProducer, PartitionedSends
from delayq.queue.placing.layout import (
    Layout,
    check_partitions,
)
from delayq.queue.sending.group_commit import AsyncGroupCommit, GroupCommit


class PartitionedQueue(PartitionedBase, DelayQueue[Any]):
    """A `DelayQueue` with the option `partitions`."""

    def __init__(self, name: str, **options: Any) -> None:
        """Take the arguments of a `DelayQueue`."""
        wanted = check_partitions(options["partitions"])
        DelayQueue.__init__(self, name, **options)
        self._perform = self._perform_located
        self.producer = PartitionedProducer(self)
        self._lay_out(Layout(name, wanted or 1, 0))
        self.sends: Any = PartitionedSends(self, lambda one: GroupCommit(one.producer, self.executor))

    @mirrors(DelayQueue.open)
    def open(self, *, connect_timeout: Any = None) -> None:
        if self.executor.opening:
            self.executor.perform(self._open_all(), should_retry=until(connect_timeout))

    def _know(self) -> None:
        if not self._located:
            self.executor.perform(self._locate())

    def _perform_located(self, operation: Operation[Any], **options: Any) -> Any:
        self._know()
        return self.executor.perform(operation, **options)

    @mirrors(DelayQueue.result)
    def result(self, id: str, *, timeout: Any = None) -> Any:
        self._know()
        own = self.partition_of(str(id))
        try:
            return self._waits(own).wait(id, timeout)
        except NoResultError:
            elsewhere = self._perform(which_has(self.partitions, own, id))
            if elsewhere is None:
                raise
            return self._waits(elsewhere).wait(id, timeout)

    def _waits(self, partition: Partition) -> Any:
        return partition._results  # noqa: SLF001 - they block, as those of any queue

    @mirrors(DelayQueue.events)
    def events(self, after: Any = 0, *, follow: bool = False) -> Iterator[Any]:
        self._know()
        return MergedEvents(self.partitions, self.executor, after, follow=follow).iterate()

    @mirrors(DelayQueue.lease)
    def lease(self, duration: Any = None, *, n: Any = None, block: Any = 0) -> Any:
        self.open()
        return PartitionedLease(self, duration, n, block=block)


class AsyncPartitionedQueue(PartitionedBase, AsyncDelayQueue[Any]):
    """An `AsyncDelayQueue` with the option `partitions`."""

    _perform: Any

    def __init__(self, name: str, **options: Any) -> None:
        """Take the arguments of an `AsyncDelayQueue`."""
        wanted = check_partitions(options["partitions"])
        AsyncDelayQueue.__init__(self, name, **options)
        self._perform = self._perform_located
        self.producer = PartitionedProducer(self)
        self._lay_out(Layout(name, wanted or 1, 0))
        self.sends: Any = AsyncPartitionedSends(self, self._commit)

    def _commit(self, partition: Partition) -> AsyncGroupCommit:
        return AsyncGroupCommit(partition.producer, self._perform, self.executor)

    @mirrors(AsyncDelayQueue.open)
    async def open(self, *, connect_timeout: Any = None) -> None:
        if self.executor.opening:
            await self.executor.perform(self._open_all(), should_retry=until(connect_timeout))

    async def _know(self) -> None:
        if not self._located:
            await self.executor.perform(self._locate())

    async def _perform_located(self, operation: Operation[Any], **options: Any) -> Any:
        await self._know()
        return await self.executor.perform(operation, **options)

    @mirrors(AsyncDelayQueue.result)
    async def result(self, id: str, *, timeout: Any = None) -> Any:  # noqa: ASYNC109 - as of any queue
        await self._know()
        own = self.partition_of(str(id))
        try:
            return await self._waits(own).wait(id, timeout)
        except NoResultError:
            elsewhere = await self._perform(which_has(self.partitions, own, id))
            if elsewhere is None:
                raise
            return await self._waits(elsewhere).wait(id, timeout)

    def _waits(self, partition: Partition) -> Any:
        found = self._result_waits.get(partition.name)
        if found is None:
            from delayq.queue.results.result_waits import AsyncResultWaits

            found = self._result_waits[partition.name] = AsyncResultWaits(partition.context, self.executor)
        return found

    @cached_property
    def _result_waits(self) -> dict[str, Any]:
        return {}

    @mirrors(AsyncDelayQueue.events)
    async def events(self, after: Any = 0, *, follow: bool = False) -> Any:
        await self._know()
        async for event in MergedEvents(self.partitions, self.executor, after, follow=follow).iterate_async():
            yield event

    @mirrors(AsyncDelayQueue.lease)
    def lease(self, duration: Any = None, *, n: Any = None, block: Any = 0) -> Any:
        return AsyncPartitionedLease(self, duration, n, block=block)

    cancel = awaited(PartitionedBase.cancel)
    kill = awaited(PartitionedBase.kill)
    edit = awaited(PartitionedBase.edit)
    reschedule = awaited(PartitionedBase.reschedule)
    get = awaited(PartitionedBase.get)
    why = awaited(PartitionedBase.why)
    counts = awaited(PartitionedBase.counts)
    stats = awaited(PartitionedBase.stats)
    workers = awaited(PartitionedBase.workers)
    history = awaited(PartitionedBase.history)
    memory_usage = awaited(PartitionedBase.memory_usage)
    forecast = awaited(PartitionedBase.forecast)
    forget = awaited(PartitionedBase.forget)
    rekey = awaited(PartitionedBase.rekey)
    check = awaited(PartitionedBase.check)
    runs = awaited(PartitionedBase.runs)
    forget_run = awaited(PartitionedBase.forget_run)
    refusals = awaited(PartitionedBase.refusals)
    resume = awaited(PartitionedBase.resume)
    pause = awaited(PartitionedBase.pause)
    purge = awaited(PartitionedBase.purge)
    end_run = awaited(PartitionedBase.end_run)
    examine = awaited(PartitionedBase.examine)
    repair = awaited(PartitionedBase.repair)
    list = awaited(PartitionedBase.list)
    search = awaited(PartitionedBase.search)


def kind_of(plain: type) -> Any:
    """Return the class of queues over partitions for a class of plain queues."""
    return AsyncPartitionedQueue if issubclass(plain, AsyncDelayQueue) else PartitionedQueue
