"""Workers: many queues, one pool of callbacks, shared by weight or in strict order.

Each queue keeps its own consumer loop; `worker.pool_loop` composes them, so one turn is one round trip for all queues
on the same server, and one blocking command waits for the wake-ups of all. `worker.pool` picks whose callback runs
next, and says how much each queue may claim. A loop runs for each server, so that one that is down holds up no other.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, Unpack

from delayq._parity import mirrors
from delayq.errors import ConfigurationError, short_repr
from delayq.options import check_bool, check_concurrency, check_int
from delayq.queue.async_base import AsyncBase
from delayq.queue.base import QueueBase, SyncBase, check_callback, source_of
from delayq.queue.consumer import (
    AsyncConsuming,
    ConsumeOptions,
    Consuming,
    check_consume_options,
    check_grace,
    driver_options,
    run_to_end,
    run_to_end_async,
)
from delayq.times import Duration, to_millis
from delayq.worker.async_pool_driver import AsyncPoolDriver
from delayq.worker.message import AsyncMessage, Message
from delayq.worker.pool import Pool, PoolQueue
from delayq.worker.pool_driver import PoolDriver

Q = TypeVar("Q", bound=QueueBase[Any, Any])

NAME = "delayq-worker"
MAX_WEIGHT = 1000


class WorkerBase(Generic[Q]):
    """The queues of a worker with their weights and limits, validated."""

    _kind: type[QueueBase[Any, Any]]
    _message_class: Any

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
        self._weights = [
            check_int(weight, f"the weight of {queue.name}", 1, MAX_WEIGHT) for queue, weight in self._queues
        ]
        self._strict = check_bool(strict, "strict")
        self._concurrency = None if concurrency is None else check_concurrency(concurrency)
        self._limits = self._checked_limits({} if limits is None else limits)

    def __repr__(self) -> str:
        """Show the queues and their weights."""
        queues = ", ".join(f"{queue.name}={weight}" for queue, weight in self._queues)
        return f"<{type(self).__name__} {queues}>"

    def _checked(self, queues: Mapping[Q, int]) -> list[tuple[Q, int]]:
        name, kind = type(self).__name__, self._kind_name()
        if not isinstance(queues, Mapping):
            text = f"give the queues of a {name} with their weights, as in {{critical: 6, low: 1}}, not"
            raise ConfigurationError(f"{text} {short_repr(queues)}")
        if not queues:
            raise ConfigurationError(f"a {name} needs at least one queue, as in {name}({{queue: 1}})")
        sources: dict[object, str] = {}
        for queue in queues:
            if not isinstance(queue, self._kind):
                raise ConfigurationError(f"a queue of a {name} must be {kind}, not {short_repr(queue)}")
            check_callback(queue)
            if (source := source_of(queue)) in sources:
                raise ConfigurationError(f"queue {queue.name} is given twice: one object of it is enough")
            sources[source] = queue.name
        return list(queues.items())

    def _kind_name(self) -> str:
        return "a DelayQueue or a StreamQueue" if self._kind is SyncBase else "an AsyncDelayQueue or AsyncStreamQueue"

    def _checked_limits(self, limits: Mapping[Q, int]) -> dict[Q, int]:
        if not isinstance(limits, Mapping):
            raise ConfigurationError(f"limits must be a mapping, as in {{low: 5}}, not {short_repr(limits)}")
        served = [queue for queue, _ in self._queues]
        for queue, limit in limits.items():
            if queue not in served:
                raise ConfigurationError(f"limits has {short_repr(queue)}, which this worker does not serve: add it")
            check_int(limit, f"the limit of {queue.name}", 1, 10_000)
        return dict(limits)

    def _make_pool(self, options: ConsumeOptions) -> tuple[Pool, list[list[PoolQueue]], float]:
        """Return the pool of a run, its queues grouped by server, and the grace in seconds."""
        wanted = options.get("concurrency")
        concurrency = self._concurrency if wanted is None else check_concurrency(wanted)
        if concurrency is None:
            concurrency = sum(queue.settings.concurrency for queue, _ in self._queues)
        burst = options.get("burst", False)
        pooled: list[PoolQueue] = []
        groups: dict[object, list[PoolQueue]] = {}
        for queue, _ in self._queues:
            one = PoolQueue(
                queue._context,  # noqa: SLF001
                queue._handlers.find(),  # noqa: SLF001
                queue._executor,  # noqa: SLF001
                self._message_class,
                concurrency=concurrency,
                limit=self._limits.get(queue),
                burst=burst,
            )
            pooled.append(one)
            groups.setdefault(source_of(queue)[-1], []).append(one)
        grace = options.get("grace")
        millis = max(queue.settings.grace for queue, _ in self._queues) if grace is None else to_millis(grace, "grace")
        pool = Pool(pooled, self._weights, concurrency, strict=self._strict)
        return pool, list(groups.values()), millis / 1000

    def _check_run(self, options: ConsumeOptions, *, running: bool) -> None:
        check_consume_options(options)
        if (wanted := options.get("concurrency")) is not None:
            check_concurrency(wanted)
        check_grace(options.get("grace"))
        for queue, _ in self._queues:
            check_callback(queue)
        if running and options.get("burst"):
            raise ConfigurationError("this worker is running already: stop it before a burst")


class Worker(WorkerBase[SyncBase[Any]]):
    """Consumes many queues with one pool of threads: `Worker({critical: 6, default: 3, low: 1}, concurrency=20)`.

    While several queues have messages, their callbacks start in proportion to the weights: of any 10 starts, 6, 3 and
    1. A queue that is empty takes no part. With `strict=True` the order of the queues decides. The queues may be on
    different servers; each has its own callback, options and settlements, and one that Redis refuses holds up no other.
    """

    _kind = SyncBase
    _message_class = Message
    _consuming: Consuming | None = None

    def start_consume(self, **options: Unpack[ConsumeOptions]) -> Consuming:
        """Start to consume in the background; returns the running consumer if there is one already.

        Takes the options of `DelayQueue.start_consume`: `burst`, `concurrency`, `grace` (by default the longest of the
        queues), `connect_timeout` and `on_health_change`. Raises `UnavailableError` if a server cannot be reached.
        """
        consuming = self._prepare(options)
        consuming._start()  # noqa: SLF001
        return consuming

    def stop_consume(self, grace: Duration | None = None) -> bool:
        """Stop and wait for the end; returns whether it has ended. See `DelayQueue.stop_consume`.

        What has not started is released at once. Running callbacks may take up to `grace`. Does nothing if the worker
        is not running. Inside a callback it does not wait.
        """
        check_grace(grace)
        consuming = self._consuming
        if consuming is None or not consuming.running:
            return True
        consuming.stop(grace)
        return consuming.wait()

    def run(self, **options: Unpack[ConsumeOptions]) -> None:
        """Consume until stopped; with `burst=True`, until nothing is due in any queue. See `DelayQueue.run`."""
        run_to_end(self._prepare(options))

    def _prepare(self, options: ConsumeOptions) -> Consuming:
        running = self._consuming is not None and self._consuming.running
        self._check_run(options, running=running)
        if self._consuming is not None and running:
            return self._consuming
        for queue, _ in self._queues:  # before the first consumes: it would take what the worker cannot process
            queue.open(connect_timeout=options.get("connect_timeout"))
            if queue._handlers.declared:  # noqa: SLF001
                queue._perform(queue._put_declared(), writes=True)  # noqa: SLF001
        pool, groups, grace = self._make_pool(options)
        with _preparing:
            if self._consuming is None or not self._consuming.running:
                driver = PoolDriver(pool, groups, NAME, grace=grace, **driver_options(options))
                self._consuming = Consuming(driver)
            return self._consuming


_preparing = threading.Lock()


class AsyncWorker(WorkerBase[AsyncBase[Any]]):
    """Consumes many queues with one pool of tasks in the event loop; see `Worker`."""

    _kind = AsyncBase
    _message_class = AsyncMessage
    _consuming: AsyncConsuming | None = None

    @mirrors(Worker.start_consume)
    async def start_consume(self, **options: Unpack[ConsumeOptions]) -> AsyncConsuming:
        running = self._consuming is not None and self._consuming.running
        self._check_run(options, running=running)
        for queue, _ in self._queues:
            queue._executor.check_loop()  # noqa: SLF001
            await queue.open(connect_timeout=options.get("connect_timeout"))
            if queue._handlers.declared:  # noqa: SLF001
                await queue._perform(queue._put_declared(), writes=True)  # noqa: SLF001
        if self._consuming is None or not self._consuming.running:
            pool, groups, grace = self._make_pool(options)
            driver = AsyncPoolDriver(pool, groups, NAME, grace=grace, **driver_options(options))
            self._consuming = AsyncConsuming(driver)
        return self._consuming

    @mirrors(Worker.stop_consume)
    async def stop_consume(self, grace: Duration | None = None) -> bool:
        check_grace(grace)
        consuming = self._consuming
        if consuming is None or not consuming.running:
            return True
        consuming.stop(grace)
        return await consuming.wait()

    @mirrors(Worker.run)
    async def run(self, **options: Unpack[ConsumeOptions]) -> None:
        await run_to_end_async(await self.start_consume(**options))
