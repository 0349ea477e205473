"""Workers: many queues, one pool of callbacks, shared by weight or in strict order.

Each queue keeps its own consumer loop; `worker.pool_loop` composes them, so one turn is one round trip for all queues
on the same server, and one blocking command waits for the wake-ups of all. `worker.pool` picks whose callback runs
next, and says how much each queue may claim. A loop runs for each server, so that one that is down holds up no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar

from delayq._parity import mirrors
from delayq.broker.batches import batched
from delayq.broker.engine import Feature
from delayq.broker.keys import check_pattern
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.async_base import AsyncBase
from delayq.queue.base import QueueBase, SyncBase, parts_of
from delayq.queue.consuming.consumer import ConsumeOptions, check_consume_options
from delayq.queue.consuming.starting import AsyncStarts, D, Starts
from delayq.queue.pooling.matching_queues import MatchingQueues
from delayq.queue.pooling.opening_many import (
    OPENED_TOGETHER,
    ask_server,
    by_server,
    check_server,
    connect_deadline,
    declaring,
    identity_of,
    opening_of_many,
    raise_first,
    read_opened,
    to_open,
)
from delayq.values.checks import check_bool, check_concurrency, check_int
from delayq.values.times import Duration, to_millis
from delayq.worker.drivers.served import ServerLoop
from delayq.worker.pool.fair_pool import FairPool
from delayq.worker.pool.pool import Pool, PoolQueue
from delayq.worker.pool.pool_loop import PoolLoop

Q = TypeVar("Q", bound=QueueBase[Any, Any])

NAME = "delayq-worker"
MAX_WEIGHT = 1000


class WorkerBase(Generic[Q]):
    """The queues of a worker with their weights and limits, validated."""

    _kind: type[QueueBase[Any, Any]]
    _loop_class = PoolLoop
    _queues: Mapping[Q, int] = MappingProxyType({})
    _limits: Mapping[Q, int] = MappingProxyType({})
    _strict = False
    _pattern = ""
    """Which queues to serve like the queue `_like`."""
    _like: Q | None = None
    _unchecked: Q | None = None
    """The queue `_like` until its server was checked."""
    _limit: int | None = None

    def __init__(
        self,
        queues: Mapping[Q, int],
        *,
        concurrency: int | None = None,
        limits: Mapping[Q, int] | None = None,
        strict: bool = False,
    ) -> None:
        """Serve `queues`, a mapping from queue objects to their weights (1 to 1000).

        Up to `concurrency` callbacks run at a time, by default as many as the queues have together. `limits` bounds
        the callbacks of one queue at a time. With `strict`, a queue starts only what those before it leave: the order
        of the mapping counts, and the weights do not. Raises `ConfigurationError`; asks no server.
        """
        self._queues = self._checked(queues)
        for queue, weight in self._queues.items():
            check_int(weight, f"the weight of {queue.name}", 1, MAX_WEIGHT)
        self._strict = check_bool(strict, "strict")
        self._concurrency = None if concurrency is None else check_concurrency(concurrency)
        self._limits = self._checked_limits({} if limits is None else limits)

    @classmethod
    def matching(cls, pattern: str, like: Q, *, concurrency: int | None = None, limit: int | None = None) -> Self:
        """Return a worker that serves every queue whose name matches `pattern`, all with the same weight.

        In a pattern such as `tenant-*`, `*` stands for any characters, `?` for one, `[abc]` for one of some, `[!abc]`
        for any other. Each queue is served like the queue `like`, with its callback or tasks, options and connections;
        `like` itself is served if its name matches. The names are those under its prefix in the registry, where a queue
        is from its first message on. The worker reads them when it starts and every 10 s: it serves new queues from
        then on, and drops one that is gone once its running callbacks have ended. Up to `concurrency` callbacks run at
        a time, by default as many as `like` has, and `limit` bounds those of each queue. Raises `ConfigurationError`.
        """
        worker = cls.__new__(cls)
        cls._match(worker, pattern, like, concurrency, limit)  # in place of `__init__`
        return worker

    def _match(self, pattern: str, like: Q, concurrency: int | None, limit: int | None) -> None:
        self._pattern = check_pattern(pattern)
        self._like = self._unchecked = self._checked_queue(like)
        like.context.calls.capabilities.require(Feature.REGISTRY)
        self._concurrency = check_concurrency(like.settings.concurrency if concurrency is None else concurrency)
        self._limit = None if limit is None else check_int(limit, "limit", 1, 10_000)

    def __repr__(self) -> str:
        """Show the queues and their weights, or their pattern."""
        if self._like is not None:
            return f"<{type(self).__name__} {self._pattern} like {self._like.name}>"
        queues = ", ".join(f"{queue.name}={weight}" for queue, weight in self._queues.items())
        return f"<{type(self).__name__} {queues}>"

    def _checked(self, queues: Mapping[Q, int]) -> dict[Q, int]:
        name = type(self).__name__
        if not isinstance(queues, Mapping):
            text = f"give the queues of a {name} with their weights, as in {{critical: 6, low: 1}}, not"
            raise ConfigurationError(f"{text} {short_repr(queues)}")
        if not queues:
            raise ConfigurationError(f"a {name} needs at least one queue, as in {name}({{queue: 1}})")
        sources: dict[object, str] = {}
        for queue in queues:
            self._checked_queue(queue)
            if (source := parts_of(queue).source) in sources:
                raise ConfigurationError(f"queue {queue.name} is given twice: one object of it is enough")
            sources[source] = queue.name
        return dict(queues)

    def _checked_queue(self, queue: Q) -> Q:
        if not isinstance(queue, self._kind):
            name, kind = type(self).__name__, self._kind_name()
            raise ConfigurationError(f"a queue of a {name} must be {kind}, not {short_repr(queue)}")
        parts_of(queue)  # a queue over partitions has none
        queue.handlers.find()
        return queue

    def _kind_name(self) -> str:
        return "a DelayQueue or a StreamQueue" if self._kind is SyncBase else "an AsyncDelayQueue or AsyncStreamQueue"

    def _checked_limits(self, limits: Mapping[Q, int]) -> dict[Q, int]:
        if not isinstance(limits, Mapping):
            raise ConfigurationError(f"limits must be a mapping, as in {{low: 5}}, not {short_repr(limits)}")
        served = self._queues
        for queue, limit in limits.items():
            if queue not in served:
                raise ConfigurationError(f"limits has {short_repr(queue)}, which this worker does not serve: add it")
            check_int(limit, f"the limit of {queue.name}", 1, 10_000)
        return dict(limits)

    def _make_driver(self, kind: type[D], options: ConsumeOptions) -> D:
        """Return the driver of a run, with a loop for each server."""
        wanted, burst = options.get("concurrency"), options.get("burst", False)
        concurrency = self._concurrency if wanted is None else wanted
        if concurrency is None:
            concurrency = sum(queue.settings.concurrency for queue in self._queues)
        make = partial(self._pooled, kind.message_class, concurrency=concurrency, burst=burst)
        lifespans: dict[Any, Any] = {
            queue: queue.own_lifespan.anew() for queue in self._all_queues() if queue.own_lifespan is not None
        }
        pool = self._make_pool(concurrency)
        servers: list[ServerLoop] = []
        if self._like is not None:
            executor = self._like.executor
            loop = PoolLoop([], pool, in_cluster=executor.is_cluster, burst=burst)
            serve = partial(make, weight=1, limit=self._limit, restores=False, lifespan=lifespans.get(self._like))
            loop.begin(MatchingQueues(self._pattern, self._like, serve).run(loop, burst=burst), stays=True)
            servers.append(ServerLoop(executor, loop))
        pooled: dict[Q, PoolQueue] = {
            queue: make(queue, weight=weight, limit=self._limits.get(queue), lifespan=lifespans.get(queue))
            for queue, weight in self._queues.items()
        }
        pool.add([*pooled.values()])
        for group in by_server(pooled):
            queues = [pooled[queue] for queue in group]
            executor = queues[0].executor
            loop = self._loop_class(queues, pool, in_cluster=executor.is_cluster, burst=burst)
            self._begin_chores(loop, {queue: pooled[queue] for queue in group}, make)
            servers.append(ServerLoop(executor, loop))
        self._begin_together(servers, pool, burst=burst)
        grace = options.get("grace")
        millis = (
            max(queue.settings.grace for queue in self._all_queues()) if grace is None else to_millis(grace, "grace")
        )
        driver = kind(pool, servers, NAME, grace=millis / 1000, on_health_change=options.get("on_health_change"))
        if lifespans:
            entered = [*lifespans.values()]
            driver.lifespans = entered[0].together(entered)
        return driver

    def _make_pool(self, concurrency: int) -> Pool:
        return FairPool(concurrency, strict=self._strict)

    def _begin_chores(self, loop: PoolLoop, served: dict[Q, PoolQueue], make: Callable[..., PoolQueue]) -> None:
        """Begin what else the loop of a server does, which serves these queues; `make` serves one more."""

    def _begin_together(self, servers: list[ServerLoop], pool: Pool, *, burst: bool) -> None:
        """Begin what a worker does once for all of its servers, maybe in a loop more."""

    def _pooled(
        self,
        message_class: Any,
        queue: Any,
        *,
        concurrency: int,
        burst: bool,
        weight: int,
        limit: int | None,
        lifespan: Any,
        restores: bool = True,
    ) -> PoolQueue:
        return PoolQueue(
            queue.context if lifespan is None else queue.context.with_lifespan(lifespan),
            queue.handlers.find(),
            queue.executor,
            message_class,
            concurrency=concurrency,
            limit=limit,
            burst=burst,
            weight=weight,
            identity=identity_of(queue, restores=restores),
        )

    def _all_queues(self) -> list[Q]:
        """Return the queue objects of the application."""
        return [*self._queues] if self._like is None else [self._like]

    def _read_server(self, reply: Any) -> None:
        if self._unchecked is not None:
            check_server(self._unchecked, self._pattern, reply)
            self._unchecked = None

    def _check_consuming(self, options: ConsumeOptions) -> None:
        check_consume_options(options)
        for queue in self._all_queues():
            queue.handlers.find()


class Worker(WorkerBase[SyncBase[Any]], Starts):
    """Consumes many queues with one pool of threads: `Worker({critical: 6, default: 3, low: 1}, concurrency=20)`.

    While several queues have messages, their callbacks start in proportion to the weights: of any 10 starts, 6, 3 and
    1. A queue that is empty takes no part. With `strict=True` the order of the queues decides. The queues may be on
    different servers; each has its own callback, options and settlements, and one that Redis refuses holds up no other.
    """

    _kind = SyncBase

    def open(self, *, connect_timeout: Duration | None = None) -> None:
        """Open all queues, many of them in a round trip, and store the schedules that the program declares.

        Starting does this by itself. It raises `UnavailableError` if a server does not answer within `connect_timeout`;
        see `DelayQueue.open`.
        """
        deadline = connect_deadline(connect_timeout)
        for first, others in to_open(self._queues):
            first.open(connect_timeout=connect_timeout)
            for some in batched(others, OPENED_TOGETHER):
                raise_first(read_opened(some, first.executor.run(opening_of_many(some), deadline=deadline)))
        for first, queue in declaring(self._queues):
            first.executor.perform(parts_of(queue).put_declared(), writes=True)
        if self._unchecked is not None:
            (reply,) = self._unchecked.executor.run([ask_server()], deadline=deadline)
            self._read_server(reply)

    def _open_to_consume(self, connect_timeout: Duration | None) -> None:
        self.open(connect_timeout=connect_timeout)


class AsyncWorker(WorkerBase[AsyncBase[Any]], AsyncStarts):
    """Consumes many queues with one pool of tasks in the event loop; see `Worker`."""

    _kind = AsyncBase

    def _check_loop(self) -> None:
        for queue in self._all_queues():
            queue.executor.check_loop()

    @mirrors(Worker.open)
    async def open(self, *, connect_timeout: Duration | None = None) -> None:
        deadline = connect_deadline(connect_timeout)
        self._check_loop()
        for first, others in to_open(self._queues):
            await first.open(connect_timeout=connect_timeout)
            for some in batched(others, OPENED_TOGETHER):
                replies = await first.executor.run(opening_of_many(some), deadline=deadline)
                raise_first(read_opened(some, replies))
        for first, queue in declaring(self._queues):
            await first.executor.perform(parts_of(queue).put_declared(), writes=True)
        if self._unchecked is not None:
            (reply,) = await self._unchecked.executor.run([ask_server()], deadline=deadline)
            self._read_server(reply)

    async def _open_to_consume(self, connect_timeout: Duration | None) -> None:
        await self.open(connect_timeout=connect_timeout)
