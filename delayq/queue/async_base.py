"""Base class of delay queues and stream queues for asyncio: `SyncBase` with methods that are awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, overload

from delayq._parity import mirrors
from delayq.broker.shared_calls import preload
from delayq.broker.transport.operation import together
from delayq.options import QueueOptions
from delayq.queue.base import QueueBase, SyncBase, T
from delayq.queue.consuming.lease import AsyncLease
from delayq.queue.consuming.starting import AsyncStarts
from delayq.values.times import Duration, to_millis
from delayq.worker.delivery.message import AsyncMessage

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from delayq.broker.transport.executor import AsyncExecutor


class AsyncBase(QueueBase[T, AsyncMessage[T]], AsyncStarts):
    """Base of queues whose methods are awaited."""

    executor: AsyncExecutor
    awaits = True

    def __init__(self, name: str, payload_type: TypeForm[T], callback: Any, options: QueueOptions) -> None:
        from delayq.broker.transport.executor import open_async_executor

        super().__init__(name, payload_type, callback, options)
        self.executor = open_async_executor(options, self.settings)
        self.executor.opening, self.executor.checking = self.open, self._reopen_if_lost
        self._perform = self.executor.perform

    @mirrors(SyncBase.open)
    async def open(self, *, connect_timeout: Duration | None = None) -> None:
        deadline = None if connect_timeout is None else to_millis(connect_timeout, "connect_timeout") / 1000
        if self.executor.opening:
            self._check(await self.executor.run(self._opening(), deadline=deadline))

    def _check_loop(self) -> None:
        self.executor.check_loop()

    async def _open_to_consume(self, connect_timeout: Duration | None) -> None:
        await self.open(connect_timeout=connect_timeout)
        if self.handlers.declares:
            await self._perform(self._put_declared(), writes=True)

    @mirrors(SyncBase.close)
    async def close(self) -> None:
        await self.stop_consume()
        await self.executor.close()

    @overload
    def lease(
        self, duration: Duration | None = None, *, n: None = None, block: Duration = 0
    ) -> AsyncLease[T, AsyncMessage[T] | None]: ...
    @overload
    def lease(
        self, duration: Duration | None = None, *, n: int, block: Duration = 0
    ) -> AsyncLease[T, list[AsyncMessage[T]]]: ...
    @mirrors(SyncBase.lease)
    def lease(
        self, duration: Duration | None = None, *, n: int | None = None, block: Duration = 0
    ) -> AsyncLease[T, Any]:
        return AsyncLease(self.context, self.executor, duration, n, block=block)

    async def __aenter__(self) -> Self:
        """Return the queue; leaving closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @mirrors(SyncBase.preload)
    async def preload(self) -> int:
        return len(await self.executor.perform(together(preload(self._scripts))))
