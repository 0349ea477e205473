"""The driver of an asyncio worker with several queues: a loop for each server, and one pool of tasks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, cast

from delayq.safe_log import SafeLog
from delayq.worker.drivers.async_driver import AsyncDriver
from delayq.worker.drivers.callback_context import InContext
from delayq.worker.drivers.callback_threads import CallbackThreads, Ending, is_blocking
from delayq.worker.drivers.drivers import EXIT_WITHIN
from delayq.worker.drivers.health import OnHealthChange
from delayq.worker.drivers.own_threads import OwnThreads, start_task
from delayq.worker.drivers.wakeup import AsyncListener
from delayq.worker.loop.loop_steps import Cancel, RoundTrip, Run, Sleep, StepResult
from delayq.worker.pool.pool import Pool
from delayq.worker.pool.pool_driver import PoolState, ServerLoop
from delayq.worker.pool.pool_queue import PoolQueue
from delayq.worker.pool.shared_wakeup import SharedAsyncListener, SharedWaits

log = SafeLog("delayq.consumer")


class _AllTasks:
    """The signal of a callback's end, which is for all loops: its place is free for the queues of any server."""

    def __init__(self, signals: Sequence[asyncio.Event]) -> None:
        self._signals = signals

    def set(self) -> None:
        """End the sleep of all loops."""
        for signal in self._signals:
            signal.set()


class _Calls:
    """Calls the callbacks of all queues: coroutine functions in the worker's task, others in threads."""

    def __init__(self, name: str, own_threads: OwnThreads) -> None:
        self._threads = CallbackThreads(name, own_threads)
        self.tasks: dict[asyncio.Task[Any], PoolQueue] = {}
        """The tasks that run callbacks."""
        self._blocks: dict[PoolQueue, bool] = {}
        self.waiting = self._threads.waiting
        """The tasks that wait for a callback in a thread."""

    @property
    def count(self) -> int:
        """How many threads there are."""
        return self._threads.count

    async def call(self, _: object, argument: tuple[PoolQueue, Any], context: Context) -> Ending:
        """Return what the callback of a queue returned or raised."""
        queue, message = argument
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        blocks = self._blocks.get(queue)
        if blocks is None:
            blocks = self._blocks[queue] = is_blocking(queue.callback.function)
        self.tasks[task] = queue
        try:
            if blocks:
                return await self._threads.call(queue.callback, message, context)
            return await InContext(context, queue.callback.function, message), None
        finally:
            del self.tasks[task]

    def close(self) -> None:
        """End the threads, each after the function that it runs."""
        self._threads.close()


class AsyncPoolDriver(PoolState, AsyncDriver):
    """Drives the queues of a worker with asyncio: one task a server, and up to `concurrency` tasks for callbacks."""

    def __init__(
        self,
        pool: Pool,
        servers: Sequence[ServerLoop],
        name: str,
        *,
        grace: float,
        on_health_change: OnHealthChange | None = None,
    ) -> None:
        """Drive the queues of a pool, which are on these servers."""
        self.pool, self.servers = pool, servers
        self._grace = grace
        self._buffer: Any = pool
        self._prepare(name, on_health_change)
        self._prepare_tasks()
        self._threads: Any = _Calls(name, self._own_threads)
        self._callback: Any = None
        self._blocks = True  # `_Calls` knows which do
        self._signals = {server: asyncio.Event() for server in self.servers}
        self._loop_signal: Any = _AllTasks([*self._signals.values()])
        self._failure: BaseException | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._closing: set[asyncio.Task[None]] = set()
        """Listeners that are needed no more."""

    def _on_stop(self) -> None:
        self.pool.withdraw()  # at once: no callback may start while a loop is busy
        self._loop_signal.set()

    async def run(self) -> None:
        """Run the loops to their end; a cancellation of a task stops without grace, see `AsyncDriver.run`."""
        others = {start_task(partial(self._run_server, server), f"{self.name}-loop") for server in self.servers[1:]}
        try:
            await self._run_server(self.servers[0])
            while others:
                try:
                    _, others = await asyncio.wait(others)
                except asyncio.CancelledError:
                    self._cancelled = True
                    self.stop(0)
        finally:
            self._cancel()
            self._threads.close()
            for timer in self._timers:
                timer.cancel()
        if self._failure is not None:
            raise self._failure
        if self._cancelled:
            raise asyncio.CancelledError
        self._raise_stop()

    async def _run_server(self, server: ServerLoop) -> None:
        try:
            await self._drive_server(server)
        except Exception as error:
            log.exception("the worker ended")
            self._failure = self._failure or error
            self.stop(None)  # a worker serves all of its queues or none
            with suppress(Exception):
                await server.executor.run(list(server.releases()), deadline=0)

    async def _drive_server(self, server: ServerLoop) -> None:
        server.loop.on_change = partial(self._listen, server)
        steps = server.loop.run()
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        on_cancel = partial(self._on_cancel_of, server, task)
        try:
            step = next(steps)
            while True:
                result = StepResult(0.0)
                if isinstance(step, RoundTrip):
                    result.replies = await self._exchange(server, step.calls, on_cancel)
                elif isinstance(step, Run):
                    self._start(step.deliveries)
                    self._interrupt(step.interrupted)
                elif isinstance(step, Sleep):
                    for listener in server.listeners.values():
                        listener.listen(on=step.listen)
                    await self._sleep_of(server, step.seconds, on_cancel)
                elif isinstance(step, Cancel):
                    self._cancel_of(server)
                try:
                    step = steps.send(self._report_of(server, result))
                except StopIteration:
                    return
                self._report_error(server, server.loop.error)
        finally:
            self.health.end(server)
            await self._close(server)

    async def _close(self, server: ServerLoop) -> None:
        for listener in server.listeners.values():
            await listener.close()
        if self._closing:
            await asyncio.wait(self._closing)
        if wakes := server.wakes():
            await server.executor.run(wakes, deadline=0)

    def _listen(self, server: ServerLoop) -> None:
        """Listen for the wake-ups of the queues that the loop has now."""
        signal, executor = self._signals[server], server.executor

        def make(source: PoolQueue | SharedWaits) -> AsyncListener:
            if isinstance(source, SharedWaits):
                return SharedAsyncListener(executor, source, signal.set, self._on_death)
            on_wakeup = partial(self._on_queue_woken, source, signal)
            return AsyncListener(executor, source.context.calls, on_wakeup, self._on_death)

        over = server.listen(make)
        for listener in over:
            closing = start_task(listener.close, f"{self.name}-close", self._on_death)
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _exchange(self, server: ServerLoop, calls: list[Any], on_cancel: Callable[[], None]) -> list[Any]:
        run = server.executor._run  # noqa: SLF001 - for `on_cancel`
        return list(await run(calls, partial(self._retries, server), on_cancel=on_cancel))

    async def _sleep_of(self, server: ServerLoop, seconds: float, on_cancel: Callable[[], None]) -> None:
        signal = self._signals[server]
        if seconds > 0 and not server.loop.finished:
            try:
                async with asyncio.timeout(None if seconds == math.inf else seconds):
                    await signal.wait()
            except TimeoutError:
                return
            except asyncio.CancelledError:
                on_cancel()
        signal.clear()

    def _on_cancel_of(self, server: ServerLoop, task: asyncio.Task[Any]) -> None:
        """Stop at once because the task was cancelled; the second time, which comes by itself, give up."""
        if server.cancelled:
            raise asyncio.CancelledError
        server.cancelled = self._cancelled = True
        self.stop(0)
        self._timers.append(asyncio.get_running_loop().call_later(EXIT_WITHIN, task.cancel))

    def _cancel_of(self, server: ServerLoop) -> None:
        """Cancel the callbacks of the queues of one server."""
        for task, queue in [*self._threads.tasks.items()]:
            if queue in server.loop.parts:
                self._workers.discard(task)
                task.cancel()

    def _on_queue_woken(self, queue: PoolQueue, signal: asyncio.Event) -> None:
        queue.wake()
        signal.set()
