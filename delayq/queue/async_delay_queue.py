"""The delay queue for asyncio: `DelayQueue` with methods that are awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack, overload

from delayq._parity import awaited, mirrors
from delayq.options import QueueOptions
from delayq.queue.async_base import AsyncBase
from delayq.queue.base import ANY_PAYLOAD, R, T
from delayq.queue.dead_letter import AsyncDeadLetter
from delayq.queue.delay_base import DelayBase
from delayq.queue.delay_queue import DelayQueue, P
from delayq.queue.inspecting.event_log import EventReader, MessageEvent
from delayq.queue.inspecting.inspector import Inspector
from delayq.queue.sending.group_commit import AsyncGroupCommit
from delayq.queue.tasks.handlers import MISSING
from delayq.values.states import State
from delayq.worker.delivery.message import AsyncMessage

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from delayq.queue.control.limits import AsyncLimits
    from delayq.queue.results.result_waits import AsyncResultWaits
    from delayq.queue.scheduling.schedules import AsyncSchedules
    from delayq.queue.sweeps.selection import AsyncSelection
    from delayq.queue.tasks.task_options import TaskOptions
    from delayq.queue.tasks.tasks import AsyncTask


class AsyncDelayQueue(DelayBase[T, AsyncMessage[T]], AsyncBase[T]):
    """A reliable delay queue for asyncio; see `DelayQueue`. Callbacks are coroutine functions, or may block.

    Coroutine functions run in the event loop. Other functions run in threads, up to `concurrency` at a time; what they
    do with the event loop, such as setting its events, takes `call_soon_threadsafe`.

    A queue belongs to the event loop that uses it, until one of them is closed; another event loop is refused.
    """

    def __init__(
        self,
        name: str,
        *,
        payload_type: TypeForm[T] = ANY_PAYLOAD,
        callback: Callable[[AsyncMessage[T]], Awaitable[object] | object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        """Make a client for the queue `name`. It sends nothing to Redis before the first use."""
        super().__init__(name, payload_type, callback, options)
        self.sends = AsyncGroupCommit(self.producer, self._perform, self.executor)
        self._inspector = Inspector(self.context)
        self._dead = AsyncDeadLetter(self.context, self.executor, self.codec.encode)

    # Tasks

    @overload
    def task(self, function: Callable[P, R], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], AsyncTask[P, R]]: ...
    @mirrors(DelayQueue.task)
    def task(self, function: Any = MISSING, /, **options: Unpack[TaskOptions]) -> Any:
        from delayq.queue.tasks.tasks import AsyncTask

        return self._register_task(AsyncTask, function, options)

    # Sending

    send = awaited(DelayQueue[T].send)
    send_delay_msg = awaited(DelayQueue[T].send_delay_msg)
    send_schedule_msg = awaited(DelayQueue[T].send_schedule_msg)
    send_many = awaited(DelayQueue[T].send_many)
    send_into = awaited(DelayQueue[T].send_into)
    cancel = awaited(DelayQueue.cancel)
    kill = awaited(DelayQueue.kill)
    edit = awaited(DelayQueue[T].edit)
    forget = awaited(DelayQueue.forget)
    rekey = awaited(DelayQueue.rekey)
    reschedule = awaited(DelayQueue.reschedule)

    @mirrors(DelayQueue.select)
    def select(
        self,
        state: State | str | None = None,
        *,
        name: str | None = None,
        id_prefix: str | None = None,
        due_from: datetime | None = None,
        due_to: datetime | None = None,
    ) -> AsyncSelection:
        from delayq.queue.sweeps.selection import AsyncSelection, check_filter

        return AsyncSelection(self.context, self.executor, check_filter(state, name, id_prefix, due_from, due_to))

    # Results

    result = awaited(DelayQueue.result)

    @cached_property
    def _results(self) -> AsyncResultWaits:
        from delayq.queue.results.result_waits import AsyncResultWaits

        return AsyncResultWaits(self.context, self.executor)

    # Inspecting

    get = awaited(DelayQueue.get)
    why = awaited(DelayQueue.why)
    counts = awaited(DelayQueue.counts)
    stats = awaited(DelayQueue.stats)
    workers = awaited(DelayQueue.workers)
    history = awaited(DelayQueue.history)
    memory_usage = awaited(DelayQueue.memory_usage)
    list = awaited(DelayQueue.list)
    search = awaited(DelayQueue.search)
    forecast = awaited(DelayQueue.forecast)
    check = awaited(DelayQueue.check)

    @property
    def dead(self) -> AsyncDeadLetter:
        """The dead letter of this queue."""
        return self._dead

    @cached_property
    def schedules(self) -> AsyncSchedules:
        """The schedules of this queue."""
        from delayq.queue.scheduling.schedules import AsyncSchedules

        return AsyncSchedules(self.context, self.producer, self.handlers, self.executor)

    @cached_property
    def limits(self) -> AsyncLimits:
        """The limits of this queue and of its names."""
        from delayq.queue.control.limits import AsyncLimits

        return AsyncLimits(self.context, self.executor)

    # The event log

    @mirrors(DelayQueue.events)
    def events(self, after: int | str = 0, *, follow: bool = False) -> AsyncIterator[MessageEvent]:
        return EventReader(self.context, self.executor, after, follow=follow).iterate_async()

    # Runs of bulk sends

    runs = awaited(DelayQueue.runs)
    end_run = awaited(DelayQueue.end_run)
    forget_run = awaited(DelayQueue.forget_run)
    refusals = awaited(DelayQueue.refusals)

    # Administration

    pause = awaited(DelayQueue.pause)
    resume = awaited(DelayQueue.resume)
    purge = awaited(DelayQueue.purge)
    remove = awaited(DelayQueue.remove)
    examine = awaited(DelayQueue.examine)
    repair = awaited(DelayQueue.repair)
