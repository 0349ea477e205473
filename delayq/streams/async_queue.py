"""A task queue on a Redis stream for asyncio: `StreamQueue` with async methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Unpack

from delayq._parity import awaited
from delayq.options import QueueOptions
from delayq.queue.async_base import AsyncBase
from delayq.queue.base import ANY_PAYLOAD, T
from delayq.streams.dead_letter import AsyncStreamDeadLetter
from delayq.streams.queue import StreamBase, StreamQueue
from delayq.worker.delivery.message import AsyncMessage

if TYPE_CHECKING:
    from typing_extensions import TypeForm


class AsyncStreamQueue(StreamBase[T, AsyncMessage[T]], AsyncBase[T]):
    """A task queue on one Redis stream for asyncio; see `StreamQueue`. Callbacks are coroutine functions, or may block.

    A queue belongs to the event loop that uses it, until one of them is closed; another event loop is refused.
    """

    def __init__(
        self,
        stream: str,
        *,
        group: str = "workers",
        payload_type: TypeForm[T] = ANY_PAYLOAD,
        callback: Callable[[AsyncMessage[T]], Awaitable[object] | object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        """Create a queue on a stream; it connects to Redis on first use."""
        self._join(group, options)
        super().__init__(stream, payload_type, callback, options)
        self._dead = AsyncStreamDeadLetter(self._context, self._calls, self._executor)

    # Sending

    send = awaited(StreamQueue[T].send)
    send_many = awaited(StreamQueue[T].send_many)

    # Inspecting

    counts = awaited(StreamQueue.counts)
    get = awaited(StreamQueue.get)
    list = awaited(StreamQueue.list)
    groups = awaited(StreamQueue.groups)

    @property
    def dead(self) -> AsyncStreamDeadLetter:
        """The dead letter of this queue."""
        return self._dead
