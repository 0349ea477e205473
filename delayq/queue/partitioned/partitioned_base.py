"""What the blocking and the asyncio queue over partitions share: where each operation goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from delayq._parity import mirrors
from delayq.broker.calls import Calls
from delayq.broker.partition_calls import Kind, repartition_call
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.failures import EpochError
from delayq.broker.transport.operation import Every, Operation, single
from delayq.errors import ConfigurationError, PartitionsError
from delayq.queue.base import QueueParts, R
from delayq.queue.consuming.consumer import ConsumeOptions
from delayq.queue.consuming.starting import D
from delayq.queue.delay_base import DelayBase, remove
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.partitioned import merging
from delayq.queue.partitioned.consuming import PartitionsWorker
from delayq.queue.partitioned.pages import merged_page, search_each
from delayq.queue.partitioned.partition import Partition, handlers_of
from delayq.queue.partitioned.routing import Make, at_each, at_one, by_id, of_all
from delayq.queue.partitioned.shared_limits import PartitionedLimits, check_names, why_message, why_queue
from delayq.queue.partitioned.views import PartitionedDeadLetter, PartitionedSchedules, Selected
from delayq.queue.placing import merged_stats
from delayq.queue.placing.layout import (
    STORED,
    Layout,
    StoredLayout,
    check_partitions,
    find_layout,
    names_of,
    partition_of,
    raise_epoch,
    read_layout,
)
from delayq.queue.placing.partition_finding import find_partitions, partition_key
from delayq.queue.server_check import CHECK_EVERY
from delayq.queue.sharing.closings import Closings
from delayq.queue.sharing.sharing import put_whole
from delayq.queue.sweeps.cancellation import CancelOutcome, KillOutcome, RescheduleOutcome, cancel_waiting
from delayq.queue.sweeps.editing import EditOutcome
from delayq.queue.sweeps.forgetting import Forgotten
from delayq.queue.sweeps.handler_check import HandlerCheck
from delayq.queue.sweeps.rekeying import Rekeyed
from delayq.queue.tasks.handlers import HandlerRegistry
from delayq.values.times import monotonic

MAX_STUCK = 100
"""How often in a row the layout may be read again without a change: by so many threads at once, not by one."""


def _is_none(found: Any) -> bool:
    return found is None


class PartitionedBase(DelayBase[Any, Any]):
    """A queue over partitions, with the methods of any other."""

    _perform: Any
    layout: Layout
    """The partitions, as this process knows them."""
    _stuck = 0
    """How often in a row the layout was read again and was the same."""
    _located = False
    """Whether the layout is that of the server."""

    def _lay_out(self, layout: Layout) -> None:
        known = {one.name: one for one in self.__dict__.get("partitions", ())}
        names = layout.names()
        self.partitions = [known.get(name) or Partition(self, name) for name in names]
        """Those that may have messages, by number."""
        self._by_name = {one.name: one for one in self.partitions}
        self._numbered = [self._by_name[name] for name in names_of(self.name, layout.partitions)]
        self.layout = layout

    @property
    def _parts(self) -> QueueParts:
        text = f"a worker of several queues does not serve {self.name}, which has partitions: call its own run()"
        raise ConfigurationError(f"{text}, or Worker.matching('{self.name}*', like) for its partitions")

    def partition_at(self, key: str) -> Partition:
        """Return the partition of what `partition_key` returns."""
        numbered = self._numbered
        return numbered[partition_of(key, len(numbered))]

    def named(self, name: str) -> Partition:
        """Return the partition with a name."""
        return self._by_name[name]

    def partition_of(self, key: str) -> Partition:
        """Return the partition of an id, or of the key, group or schedule by which it is placed."""
        return self.partition_at(partition_key(key))

    def calls_of(self, name: str) -> Calls:
        """Return the calls of a partition."""
        return self._by_name[name].context.calls

    def names_for(self, ids: Sequence[str], keys: Sequence[str], kind: Kind = Kind.MESSAGES) -> Operation[list[str]]:
        """Return the names of the partitions of ids, each with its `partition_key`; what is to move, moves before."""
        return find_partitions(self.calls_of, self.layout, list(zip(ids, keys, strict=True)), kind)

    def perform_at(self, id: str, make: Make, is_unknown: Callable[[Any], bool]) -> Any:
        """Run what `make` returns on the partition of an id, or on the one that has it all the same."""
        return self._perform(self.following(lambda: self.at_own(id, make, is_unknown)))

    def perform_on(self, key: str, make: Make) -> Any:
        """Run what `make` returns on the partition of a schedule."""
        return self._perform(self.following(lambda: self.at_own(key, make, lambda _: False, Kind.SCHEDULES)))

    def perform_all(self, make: Make, merge: Callable[[Sequence[Any]], Any]) -> Any:
        """Run what `make` returns on all partitions."""
        return self._perform(self._merged(make, merge))

    def cancel_waiting(self, ids: Sequence[str]) -> Operation[list[str]]:
        """Do as `cancellation.cancel_waiting` with messages that are placed by their ids."""

        def act() -> Operation[list[str]]:
            rows: dict[str, list[int]] = {}
            for at, own in enumerate((yield from self.names_for(ids, [partition_key(id) for id in ids]))):
                rows.setdefault(own, []).append(at)
            found = yield from at_each(
                [self._by_name[name] for name in rows],
                lambda one: cancel_waiting(one.context, [ids[at] for at in rows[one.name]]),
            )
            statuses = [""] * len(ids)
            for ats, some in zip(rows.values(), found, strict=True):
                for at, status in zip(ats, some, strict=True):
                    statuses[at] = status
            return statuses

        return self.following(act)

    def at_own(
        self, id: str, make: Make, is_unknown: Callable[[Any], bool], kind: Kind = Kind.MESSAGES
    ) -> Operation[Any]:
        """Run what `make` returns where an id is; raises `EpochError` if the number of partitions has changed."""
        (own,) = yield from self.names_for([id], [partition_key(id)], kind)
        return (yield from at_one(self.partitions, self._by_name[own], make, is_unknown))

    def _merged(self, make: Make, merge: Callable[[Sequence[Any]], Any]) -> Operation[Any]:
        return merge((yield from self.following(lambda: at_each(self.partitions, make))))

    def following(self, act: Callable[[], Operation[R]]) -> Operation[R]:
        """Run an operation, and again each time the number of partitions has changed meanwhile."""
        while True:
            try:
                return (yield from act())
            except EpochError:
                yield from self.relocate()

    def relocate(self) -> Operation[None]:
        """Read the layout again, and tell partitions of its epoch that a move which was cut off has left behind."""
        before = self.layout
        yield from self._locate()
        epoch = self.layout.epoch if self._located else 0
        raised = yield from at_each(self.partitions, lambda one: single(repartition_call(one.context.calls, epoch)))
        self._stuck = 0 if any(raised) or self.layout != before else self._stuck + 1
        if self._stuck > MAX_STUCK:  # other threads may have done it meanwhile, but not so many
            raise PartitionsError(
                f"queue {self.name}: its partitions are of a later epoch than {epoch}, which it has itself: run "
                f"`delayq partitions {self.name} --to {self.layout.partitions}`"
            )

    def _locate(self) -> Operation[None]:
        """Read the layout, as an operation that only reads may not store one."""
        (stored,) = yield [read_layout(self.prefix, self.name)]
        if not self.learn(stored) and self._options["partitions"] == STORED:
            raise PartitionsError(f"queue {self.name} has no partitions: give their number")

    def learn(self, stored: StoredLayout) -> bool:
        """Note the layout that Redis has; returns whether it has one."""
        found = stored.layout(self.name)
        if found is not None and found != self.layout:
            self._lay_out(found)
        self._located = found is not None
        return self._located

    # Opening

    def _open_all(self) -> Operation[None]:
        """Find the layout and open every partition."""
        wanted = check_partitions(self._options["partitions"])
        self._lay_out((yield from find_layout(self.prefix, self.name, wanted)))
        self._forbid_limits_of_names()
        asked: set[Any] = set()
        yield from at_each(self.partitions, lambda one: self._open_one(one, asked))
        self._located = True
        self.executor.opening, self.executor.check_at = None, monotonic() + CHECK_EVERY

    def _open_one(self, partition: Partition, asked: set[Any]) -> Operation[None]:
        """Open a partition; only one of each server asks what could lose messages."""
        requests = partition._opening()  # noqa: SLF001 - of the same base
        if partition.node in asked:
            requests[0] = RedisCommand(("EXISTS", partition.context.calls.keys.meta), lambda _: None)
        asked.add(partition.node)
        if self.layout.partitions > 1:
            requests.append(raise_epoch(partition.context.calls.keys.meta, self.layout.epoch))
        replies = yield Every(requests)  # some may fail, such as INFO of a login without rights
        partition._check(replies)  # noqa: SLF001

    def store_layout(self, partition: Partition) -> Operation[None]:
        """Store again that there are partitions, for one that Redis has lost: with all others, maybe."""
        if self.layout.partitions > 1:
            yield from find_layout(self.prefix, self.name, self.layout.partitions)
            yield [raise_epoch(partition.context.calls.keys.meta, self.layout.epoch)]

    def _forbid_limits_of_names(self) -> None:
        """Raise `ConfigurationError` for a limit of a task: each partition would have its own."""
        if self.layout.partitions > 1:
            check_names(self.handlers.limits)

    def _put_declared(self) -> Operation[Any]:
        outcomes: dict[str, Any] = {}
        found = yield from at_each(self.partitions, self.declare_in)
        for some in found:
            outcomes |= some
        if self.layout.partitions > 1 and None in self.handlers.limits:
            yield from put_whole(self, *self.handlers.limits[None])
        return outcomes

    def declare_in(self, partition: Partition) -> Operation[Any]:
        """Store the declared schedules whose names belong to a partition."""
        own = self._own_handlers(partition)
        outcomes = yield from own.put_declared(partition.context)
        self.handlers.stored = self.handlers.stored or own.stored
        return outcomes

    def _own_handlers(self, partition: Partition) -> HandlerRegistry:
        self._forbid_limits_of_names()
        alone = self.layout.partitions == 1
        return handlers_of(self.handlers, lambda name: self.partition_of(name) is partition, limited=alone)

    def declaring(self, partition: Partition) -> Any:
        """Return the schedules of a partition, with those that the program declares for it."""
        return partition.schedules_of(self._own_handlers(partition))

    def _reopen_if_lost(self) -> Operation[None]:
        try:
            yield from at_each(self.partitions, lambda one: one._reopen_if_lost())  # noqa: SLF001
            yield from self._locate()
        finally:
            self.executor.check_at = monotonic() + CHECK_EVERY

    # Consuming

    def _make_driver(self, kind: type[D], options: ConsumeOptions) -> D:
        return PartitionsWorker(self).make_driver(kind, options)

    # One partition

    cancel = by_id(DelayQueue.cancel, CancelOutcome.GONE.__eq__)
    kill = by_id(DelayQueue.kill, KillOutcome.GONE.__eq__)
    edit = by_id(DelayQueue.edit, EditOutcome.GONE.__eq__)
    reschedule = by_id(DelayQueue.reschedule, RescheduleOutcome.GONE.__eq__)
    get = by_id(DelayQueue.get, _is_none)

    @mirrors(DelayQueue.why)
    def why(self, id: str | None = None) -> Any:
        if id is None:
            return self._perform(why_queue(self))
        return self.perform_at(id, lambda one: why_message(self, one, id), lambda found: found.state is None)

    # All partitions

    counts = of_all(DelayQueue.counts, merged_stats.counts)
    stats = of_all(DelayQueue.stats, merged_stats.stats)
    workers = of_all(DelayQueue.workers, merging.workers)
    history = of_all(DelayQueue.history, merging.history)
    memory_usage = of_all(DelayQueue.memory_usage, merging.memory_usage)
    forecast = of_all(DelayQueue.forecast, merging.forecast)
    forget = of_all(DelayQueue.forget, merging.added_up(Forgotten))
    rekey = of_all(DelayQueue.rekey, merging.added_up(Rekeyed))
    check = of_all(DelayQueue.check, merging.added_up(HandlerCheck))
    runs = of_all(DelayQueue.runs, merging.runs)
    forget_run = of_all(DelayQueue.forget_run, any)
    refusals = of_all(DelayQueue.refusals, merging.one_list)
    resume = of_all(DelayQueue.resume, any)
    pause = of_all(DelayQueue.pause, merging.first_of)
    purge = of_all(DelayQueue.purge, sum)

    @mirrors(DelayQueue.send_into)
    def send_into(self, *_: Any, **__: Any) -> Any:
        raise ConfigurationError(f"send_into takes a queue without partitions: {self.name} is in many slots")

    @mirrors(DelayQueue.end_run)
    def end_run(self, /, run: str, *, refusals: Any = (), refused: int | None = None, **options: Any) -> Any:
        """Refusals are noted once, in the first partition."""
        listed = list(refusals)

        def make(one: Any) -> Any:
            is_first = one is self.partitions[0]
            told: Any = {"refusals": listed if is_first else (), "refused": refused if is_first else None}
            return DelayQueue.end_run(one, run, **told, **options)

        return self.perform_all(make, merging.merged_run)

    @mirrors(DelayQueue.examine)
    def examine(self, *, deep: bool = False) -> Any:
        return self.perform_all(lambda one: DelayQueue.examine(one, deep=deep), merging.checkup_of(self.name))

    @mirrors(DelayQueue.repair)
    def repair(self, *, deep: bool = False) -> Any:
        return self.perform_all(lambda one: DelayQueue.repair(one, deep=deep), merging.checkup_of(self.name))

    @mirrors(DelayQueue.list)
    def list(self, /, state: Any, *, limit: int = 100, cursor: str | None = None, **times: Any) -> Any:
        def read(one: Any, number: int, after: str | None) -> Any:
            return DelayQueue.list(one, state, limit=number, cursor=after, **times)

        return self._perform(merged_page(self, read, limit=limit, cursor=cursor))

    @mirrors(DelayQueue.search)
    def search(
        self, /, text: str, *, limit: int = 100, max_searched: int = 100_000, cursor: str | None = None, **how: Any
    ) -> Any:
        def search(one: Any, number: int, most: int, after: str | None) -> Any:
            return DelayQueue.search(one, text, limit=number, max_searched=most, cursor=after, **how)

        return self._perform(search_each(self, search, limit=limit, max_searched=max_searched, cursor=cursor))

    @mirrors(DelayQueue.select)
    def select(self, *args: Any, **options: Any) -> Any:
        return Selected(self, args, options)

    @cached_property
    def dead(self) -> Any:
        """The dead letter, over all partitions."""
        return PartitionedDeadLetter(self)

    @cached_property
    def schedules(self) -> Any:
        """The schedules, each in the partition of its name."""
        return PartitionedSchedules(self)

    @cached_property
    def closings(self) -> Closings:
        """What callbacks of one partition close of the whole queue, and a worker has not closed yet."""
        return Closings()

    @cached_property
    def limits(self) -> Any:
        """The limit of the whole queue, and those of keys; those of names are refused."""
        return PartitionedLimits(self)

    def _removing(self, opening: Callable[[], Any]) -> Operation[bool]:
        """Remove every partition, once all are empty, and then what is stored of their number."""
        count: Any = DelayQueue.counts
        found = yield from at_each(self.partitions, count)
        busy = next((at for at, counted in enumerate(found) if counted.living or counted.dead), None)
        if busy is not None:
            yield from remove(self.partitions[busy].context, self.prefix)  # raises what it has
        listed = yield from at_each(self.partitions, lambda one: remove(one.context, self.prefix))
        keys = self.context.calls.keys
        own = keys.meta, keys.limits, keys.declared, keys.gates, keys.wake, keys.notifiers, keys.plans
        yield [RedisCommand(("UNLINK", *own), int)]
        self._located = False
        self.executor.opening, self.executor.check_at = opening, math.inf
        return any(listed)
