"""Workers: many queues, one pool of callbacks, shared by weight or in strict order.

Each queue keeps its own consumer loop; `worker.pool_loop` composes them, so one turn is one round trip for all queues
on the same server, and one blocking command waits for the wake-ups of all. `worker.pool` picks whose callback runs
next, and says how much each queue may claim. A loop runs for each server, so that one that is down holds up no other.
"""

from __future__ import annotations

import threading
from typing import Any, Unpack

from delayq._parity import mirrors
from delayq.broker.batches import batched
from delayq.queue.async_base import AsyncBase
from delayq.queue.base import SyncBase
from delayq.queue.consuming.consumer import (
    AsyncConsuming,
    ConsumeOptions,
    Consuming,
    check_grace,
    run_to_end,
    run_to_end_async,
)
from delayq.queue.pooling.opening_many import (
    OPENED_TOGETHER,
    ask_server,
    connect_deadline,
    declaring,
    opening_of_many,
    raise_first,
    read_opened,
    to_open,
)
from delayq.queue.pooling.worker_base import WorkerBase
from delayq.values.times import Duration
from delayq.worker.delivery.message import AsyncMessage, Message
from delayq.worker.pool.async_pool_driver import AsyncPoolDriver
from delayq.worker.pool.pool_driver import PoolDriver


class Worker(WorkerBase[SyncBase[Any]]):
    """Consumes many queues with one pool of threads: `Worker({critical: 6, default: 3, low: 1}, concurrency=20)`.

    While several queues have messages, their callbacks start in proportion to the weights: of any 10 starts, 6, 3 and
    1. A queue that is empty takes no part. With `strict=True` the order of the queues decides. The queues may be on
    different servers; each has its own callback, options and settlements, and one that Redis refuses holds up no other.
    """

    _kind = SyncBase
    _message_class = Message
    _consuming: Consuming | None = None

    def open(self, *, connect_timeout: Duration | None = None) -> None:
        """Open all queues, many of them in a round trip, and store the schedules that the program declares.

        Starting does this by itself. It raises `UnavailableError` if a server does not answer within `connect_timeout`;
        see `DelayQueue.open`.
        """
        deadline = connect_deadline(connect_timeout)
        for first, others in to_open(self._queues):
            first.open(connect_timeout=connect_timeout)
            for some in batched(others, OPENED_TOGETHER):
                raise_first(read_opened(some, first._executor.run(opening_of_many(some), deadline=deadline)))  # noqa: SLF001
        for first, queue in declaring(self._queues):
            first._perform(queue._put_declared(), writes=True)  # noqa: SLF001
        if self._unchecked is not None:
            (reply,) = self._unchecked._executor.run([ask_server()], deadline=deadline)  # noqa: SLF001
            self._read_server(reply)

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
        # Before the first consumes: it would take what the worker cannot process.
        self.open(connect_timeout=options.get("connect_timeout"))
        with _preparing:
            if self._consuming is None or not self._consuming.running:
                self._consuming = Consuming(self._make_driver(PoolDriver, options))
            return self._consuming


_preparing = threading.Lock()


class AsyncWorker(WorkerBase[AsyncBase[Any]]):
    """Consumes many queues with one pool of tasks in the event loop; see `Worker`."""

    _kind = AsyncBase
    _message_class = AsyncMessage
    _consuming: AsyncConsuming | None = None

    @mirrors(Worker.open)
    async def open(self, *, connect_timeout: Duration | None = None) -> None:
        deadline = connect_deadline(connect_timeout)
        for queue in self._all_queues():
            queue._executor.check_loop()  # noqa: SLF001
        for first, others in to_open(self._queues):
            await first.open(connect_timeout=connect_timeout)
            for some in batched(others, OPENED_TOGETHER):
                replies = await first._executor.run(opening_of_many(some), deadline=deadline)  # noqa: SLF001
                raise_first(read_opened(some, replies))
        for first, queue in declaring(self._queues):
            await first._perform(queue._put_declared(), writes=True)  # noqa: SLF001
        if self._unchecked is not None:
            (reply,) = await self._unchecked._executor.run([ask_server()], deadline=deadline)  # noqa: SLF001
            self._read_server(reply)

    @mirrors(Worker.start_consume)
    async def start_consume(self, **options: Unpack[ConsumeOptions]) -> AsyncConsuming:
        running = self._consuming is not None and self._consuming.running
        self._check_run(options, running=running)
        await self.open(connect_timeout=options.get("connect_timeout"))
        if self._consuming is None or not self._consuming.running:
            self._consuming = AsyncConsuming(self._make_driver(AsyncPoolDriver, options))
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
