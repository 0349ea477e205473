"""The driver with asyncio; see `drivers`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from delayq.safe_log import SafeLog
from delayq.values.times import Duration, monotonic
from delayq.worker.delivery.in_flight_delivery import Batch
from delayq.worker.delivery.message import AsyncMessage
from delayq.worker.drivers.callbacks import CallbackThreads, Ending, InContext
from delayq.worker.drivers.drivers import Driver
from delayq.worker.drivers.own_threads import start_task
from delayq.worker.drivers.served import EXIT_WITHIN, ServerLoop
from delayq.worker.drivers.wakeup import AsyncListener
from delayq.worker.loop.loop_steps import Cancel, RoundTrip, Run, Sleep, StepResult

log = SafeLog("delayq.consumer")

MAX_LOOP_SHARE = 0.01
"""Seconds for which a runner task runs before it yields to the event loop: a callback may await nothing."""


class AsyncDriver(Driver):
    """Drives with asyncio: each loop in one task, callbacks in as many tasks as run at a time."""

    message_class = AsyncMessage

    def __init__(self, work: Any, servers: list[ServerLoop], name: str, **options: Any) -> None:
        """See `Driver`."""
        super().__init__(work, servers, name, **options)
        self._threads = CallbackThreads(name, self._own_threads)
        self._signals = {server: asyncio.Event() for server in servers}
        self._all_signals = [*self._signals.values()]
        self._loops: set[asyncio.Task[Any]] = set()
        """The tasks of all loops but the first."""
        self._runner_signal = asyncio.Queue()
        self._runners: set[asyncio.Task[Any]] = set()
        self._batches: dict[asyncio.Task[Any], Batch] = {}
        """What the callbacks process that runners run."""
        self._event_loop = asyncio.get_running_loop()
        self._cancelled = False
        self._giving_up: list[asyncio.TimerHandle] = []
        self._closing: set[asyncio.Task[None]] = set()
        """Listeners that are needed no more."""

    def stop(self, grace: Duration | None) -> None:
        """Stop within `grace`, by default the driver's; harmless when stopped already, and from inside a callback."""
        self._stop_within(grace)
        if asyncio._get_running_loop() is self._event_loop:  # noqa: SLF001 - documented; None in another thread
            self._stop_work()
        else:
            with suppress(RuntimeError):  # the event loop is closed, and with it the consumer has ended
                self._event_loop.call_soon_threadsafe(self._stop_work)

    def is_runner(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether a task runs this driver's callbacks."""
        return task in self._runners

    async def run(self) -> None:
        """Run the loops to their end. If a task is cancelled, as at the end of `asyncio.run`, it stops without grace.

        Raises `StoppedByCallbackError` if a callback stopped them.
        """
        self._loops = {self._start_loop(server) for server in self.servers[1:]}
        try:
            await self._run_server(self.servers[0])
            while self._loops:
                try:
                    ended, _ = await asyncio.wait(self._loops)
                    self._loops -= ended
                except asyncio.CancelledError:
                    self._cancelled = True
                    self.stop(0)
        finally:
            runners, self._runners = self._runners, set()
            for runner in runners:
                runner.cancel()
            self._threads.close()
            for timer in self._giving_up:
                timer.cancel()
        if self._cancelled and self._failure is None:
            raise asyncio.CancelledError
        self._raise_stop()

    def add_server(self, server: ServerLoop) -> None:
        """See `Driver`."""
        self._connect(server, asyncio.Event())
        self._loops.add(self._start_loop(server))

    def _start_loop(self, server: ServerLoop) -> asyncio.Task[Any]:
        return start_task(partial(self._run_server, server), f"{self.name}-loop")

    async def _run_server(self, server: ServerLoop) -> None:
        try:
            await self._drive(server)
        except Exception as error:
            log.exception("the consumer ended")
            self._failure = self._failure or error
            self.stop(None)  # a consumer serves all of its queues or none
            with suppress(Exception):
                await server.executor.run(list(server.releases()), deadline=0)
        finally:
            self.health.end(server)
            for listener in server.listeners.values():
                await listener.close()
            if self._closing:
                await asyncio.wait(self._closing)
            if wakes := server.wakes():
                await server.executor.run(wakes, deadline=0)

    async def _drive(self, server: ServerLoop) -> None:
        loop, task = server.loop, cast("asyncio.Task[Any]", asyncio.current_task())
        loop.on_change = partial(self._listen, server)
        on_cancel = partial(self._on_cancel, server, task)
        executor, should_retry = server.executor, partial(self._retries, server)
        steps = loop.run()
        step = next(steps)
        while True:
            result = StepResult(0.0)
            if isinstance(step, RoundTrip):
                result.replies = await executor.run(step.calls, should_retry=should_retry, on_cancel=on_cancel)
                if not loop.looks_after_queues:
                    try:
                        await executor.check()
                    except asyncio.CancelledError:
                        on_cancel()
            elif isinstance(step, Run):
                self._start(len(step.deliveries))
                self._interrupt(step.interrupted)
            elif isinstance(step, Sleep):
                await self._sleep(server, step, on_cancel)
            elif isinstance(step, Cancel):
                self._cancel(server)
            try:
                step = steps.send(self._report(server, result))
            except StopIteration:
                return
            self._report_error(server, loop.error)

    def _listener(self, executor: Any, waits: Any, on_wakeup: Callable[[], object]) -> AsyncListener:
        return AsyncListener(executor, waits, on_wakeup, self._on_death)

    def _close(self, listener: AsyncListener) -> None:
        closing = start_task(listener.close, f"{self.name}-close", self._on_death)
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _on_cancel(self, server: ServerLoop, task: asyncio.Task[Any]) -> None:
        """Stop at once because the task was cancelled; the second time, which comes by itself, give up."""
        if server.cancelled:
            raise asyncio.CancelledError
        server.cancelled = self._cancelled = True
        self.stop(0)
        self._giving_up.append(asyncio.get_running_loop().call_later(EXIT_WITHIN, task.cancel))

    def _start_runner(self, name: str) -> bool:
        self._runners.add(start_task(self._work_on, name, self._on_death))
        return True

    def _fill_up(self) -> None:
        short = self._own_threads.short
        if short or self._missing:
            self._note_missing(self._threads.count if short else None)

    async def _sleep(self, server: ServerLoop, step: Sleep, on_cancel: Callable[[], None]) -> None:
        for listener in server.listeners.values():
            listener.listen(on=step.listen)
        signal = self._signals[server]
        if step.seconds > 0 and not server.loop.finished:
            try:
                async with asyncio.timeout(None if step.seconds == math.inf else step.seconds):
                    await signal.wait()
            except TimeoutError:
                return
            except asyncio.CancelledError:
                on_cancel()
        signal.clear()

    def _interrupt(self, batches: Sequence[Batch]) -> None:
        """Cancel the callbacks of these batches; one in a thread cannot be."""
        for task, batch in list(self._batches.items()) if batches else ():
            if batch in batches and task in self._runners and task not in self._threads.waiting:
                task.cancel()

    def _cancel(self, server: ServerLoop) -> None:
        """Cancel the callbacks of the queues of a server."""
        for task, batch in list(self._batches.items()):
            if server.loop.runs(batch):
                self._runners.discard(task)
                task.cancel()

    async def _work_on(self) -> None:
        buffer, me = self._buffer, cast("asyncio.Task[Any]", asyncio.current_task())
        signals = self._all_signals
        now = resumed = monotonic()
        while True:
            gives_way = now - resumed > MAX_LOOP_SHARE
            taken = None if gives_way else buffer.get()
            if taken is None:
                if not await self._goes_on(me, asyncio.sleep(0) if gives_way else self._runner_signal.get()):
                    return
                self._runner_signalled &= gives_way
                now = resumed = monotonic()
                continue
            self._signal_runner()
            batch, deliveries, argument = taken
            if argument is not None:
                result: object = None
                error: BaseException | None = None
                self._batches[me] = batch
                try:
                    result, error = await self._call(batch, argument)
                except BaseException as raised:  # noqa: BLE001 - whatever a callback raises costs one retry only
                    error = raised
                cancelled = issubclass(type(error), asyncio.CancelledError)  # `isinstance` asks the user's class
                if cancelled and me.cancelling():
                    await asyncio.sleep(0)  # `asyncio.run` cancels all tasks at once: the loop learns of it, too
                del self._batches[me]
                if me not in self._runners or (cancelled and self._cancelled):
                    return
                now = self._complete(batch, deliveries, result, error)
                self._forget_interrupt(me)
            for signal in signals:
                signal.set()
            if not batch.conclude():  # overdue: another runner has replaced this one
                self._runners.discard(me)
                return

    async def _call(self, batch: Batch, argument: Any) -> Ending:
        context, queue = self._contexts.copy(), self._work.queue_of(batch)
        if queue.blocks:
            return await self._threads.call(queue.callback, argument, context)
        return await InContext(context, queue.callback.function, argument), None

    async def _goes_on(self, runner: asyncio.Task[Any], waiting: Awaitable[object]) -> bool:
        """Wait in a runner, between two callbacks; returns False if the runner is to end.

        A cancellation meant a callback that has just ended, or it is that of all tasks at the end of `asyncio.run`.
        """
        try:
            await waiting
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # the loop learns of it, too
            if runner not in self._runners or self._cancelled:
                return False
            self._forget_interrupt(runner)
        return True

    def _forget_interrupt(self, runner: asyncio.Task[Any]) -> None:
        """Let the next callback of a runner be as if none before had been interrupted."""
        if runner.cancelling() and not self._cancelled:
            runner.uncancel()
