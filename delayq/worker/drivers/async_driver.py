"""The driver of a consumer loop with asyncio; see `drivers`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from delayq.broker.context import EngineContext
from delayq.safe_log import SafeLog
from delayq.values.times import Duration, monotonic
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.delivery.message import AsyncMessage
from delayq.worker.drivers.callback_context import InContext
from delayq.worker.drivers.callback_threads import CallbackThreads, Ending, is_blocking
from delayq.worker.drivers.drivers import EXIT_WITHIN, Driver
from delayq.worker.drivers.own_threads import start_task
from delayq.worker.drivers.wakeup import AsyncListener
from delayq.worker.drivers.work_buffer import Callback
from delayq.worker.loop.loop_steps import Cancel, RoundTrip, Run, Sleep, StepResult, Withdraw

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor

log = SafeLog("delayq.consumer")

MAX_LOOP_SHARE = 0.01
"""Seconds for which a worker task runs before it yields to the event loop: a callback may await nothing."""


class AsyncDriver(Driver):
    """Drives a consumer with asyncio: the loop in one task, callbacks in up to `concurrency` tasks."""

    _executor: AsyncExecutor
    _message_class = AsyncMessage
    _worker_signal: asyncio.Queue[None]

    def __init__(
        self, executor: AsyncExecutor, context: EngineContext, callback: Callback, name: str, **options: Any
    ) -> None:
        super().__init__(executor, context, callback, name, **options)
        self._prepare_tasks()
        self._threads = CallbackThreads(name, self._own_threads)
        self._callback = callback
        self._blocks = is_blocking(callback.function)

    def _prepare_tasks(self) -> None:
        self._loop_signal = asyncio.Event()
        self._worker_signal = asyncio.Queue()
        self._workers: set[asyncio.Task[Any]] = set()
        self._batches: dict[asyncio.Task[Any], Batch] = {}
        """What each worker has taken last."""
        self._event_loop = asyncio.get_running_loop()
        self._cancelled = False
        self._giving_up: asyncio.TimerHandle | None = None

    def stop(self, grace: Duration | None) -> None:
        """Stop within `grace`, by default the queue's; harmless when stopped already, and from inside a callback."""
        self._stop_within(grace)
        if asyncio._get_running_loop() is self._event_loop:  # noqa: SLF001 - documented; None in another thread
            self._on_stop()
        else:
            with suppress(RuntimeError):  # the event loop is closed, and with it the consumer has ended
                self._event_loop.call_soon_threadsafe(self._on_stop)

    def _on_stop(self) -> None:
        self._buffer.withdraw(self._withdrawn)  # at once: no callback may start while the loop is busy
        self._loop_signal.set()

    def is_worker(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether a task runs this driver's callbacks."""
        return task in self._workers

    async def run(self) -> None:
        """Run the loop to its end. If its task is cancelled, as at the end of `asyncio.run`, it stops without grace.

        Raises `StoppedByCallbackError` if a callback stopped it.
        """
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        listener = AsyncListener(self._executor, self._context.calls, self._on_wakeup, self._on_death)
        try:
            await self._drive(listener)
        except Exception:
            log.exception("the consumer ended")
            with suppress(Exception):
                await self._executor.run(list(self._releases()), deadline=0)
            raise
        finally:
            self._cancel()
            self._threads.close()
            await listener.close()
            if self._woken:  # the last wake-up came too late for the loop
                await self._executor.run([self._context.calls.wake()], deadline=0)
            if self._giving_up is not None:
                self._giving_up.cancel()
        if self._cancelled:
            raise asyncio.CancelledError
        self._raise_stop()

    async def _drive(self, listener: AsyncListener) -> None:
        run = self._executor._run  # noqa: SLF001 - for `on_cancel`
        loop = self._loop.run()
        step = next(loop)
        while True:
            result = StepResult(0.0)
            if isinstance(step, RoundTrip):
                result.replies = await run(step.calls, self._should_retry, on_cancel=self._on_cancel)
                try:
                    await self._executor.check()
                except asyncio.CancelledError:
                    self._on_cancel()
            elif isinstance(step, Run):
                self._start(step.deliveries)
                self._interrupt(step.interrupted)
            elif isinstance(step, Sleep):
                listener.listen(on=step.listen)
                await self._sleep(step.seconds)
            elif isinstance(step, Withdraw):
                self._buffer.withdraw(self._withdrawn)
                result.withdrawn, self._withdrawn = self._withdrawn, []
            elif isinstance(step, Cancel):
                self._cancel()
            try:
                step = loop.send(self._report(result))
            except StopIteration:
                return
            self.health.report(self._loop.refusals.error)

    def _on_cancel(self) -> None:
        """Stop at once because the task was cancelled; the second time, which comes by itself, give up."""
        if self._cancelled:
            raise asyncio.CancelledError
        self._cancelled = True
        self.stop(0)
        self._giving_up = asyncio.get_running_loop().call_later(EXIT_WITHIN, self._task.cancel)

    def _start_worker(self, name: str) -> bool:
        self._workers.add(start_task(self._work, name, self._on_death))
        return True

    def _fill_up(self) -> None:
        short = self._own_threads.short
        if short or self._missing:
            self._note_missing(self._threads.count if short else None)

    async def _sleep(self, seconds: float) -> None:
        if seconds > 0 and not self._buffer.finished:
            try:
                async with asyncio.timeout(seconds):
                    await self._loop_signal.wait()
            except TimeoutError:
                return
            except asyncio.CancelledError:
                self._on_cancel()
        self._loop_signal.clear()

    def _on_wakeup(self) -> None:
        self._woken = True
        self._loop_signal.set()

    def _interrupt(self, batches: Sequence[Batch]) -> None:
        """Cancel the callbacks of these batches; one in a thread cannot be."""
        for task, batch in list(self._batches.items()) if batches else ():
            if batch in batches and task in self._workers and task not in self._threads.waiting:
                task.cancel()

    def _cancel(self) -> None:
        workers, self._workers = self._workers, set()
        for worker in workers:
            worker.cancel()

    async def _work(self) -> None:
        buffer, me = self._buffer, cast("asyncio.Task[Any]", asyncio.current_task())
        now = resumed = monotonic()
        while True:
            gives_way = now - resumed > MAX_LOOP_SHARE
            taken = None if gives_way else buffer.get()
            if taken is None:
                if not await self._goes_on(me, asyncio.sleep(0) if gives_way else self._worker_signal.get()):
                    return
                self._worker_signalled &= gives_way
                now = resumed = monotonic()
                continue
            self._signal_worker()
            batch, deliveries, argument = taken
            self._batches[me] = batch
            if argument is not None:
                result: object = None
                error: BaseException | None = None
                try:
                    result, error = await self._call(argument)
                except BaseException as raised:  # noqa: BLE001 - whatever a callback raises costs one retry only
                    error = raised
                cancelled = issubclass(type(error), asyncio.CancelledError)  # `isinstance` asks the user's class
                if cancelled and me.cancelling():
                    await asyncio.sleep(0)  # `asyncio.run` cancels all tasks at once: the loop learns of it, too
                if me not in self._workers or (cancelled and self._cancelled):
                    return
                now = self._complete(batch, deliveries, result, error)
                self._forget_interrupt(me)
            self._loop_signal.set()
            if not batch.conclude():  # overdue: another worker has replaced this one
                self._workers.discard(me)
                del self._batches[me]
                return

    async def _call(self, argument: Any) -> Ending:
        context = self._contexts.copy()
        if self._blocks:
            return await self._threads.call(self._callback, argument, context)
        return await InContext(context, self._buffer.function, argument), None

    async def _goes_on(self, worker: asyncio.Task[Any], waiting: Awaitable[object]) -> bool:
        """Wait in a worker, between two callbacks; returns False if the worker is to end.

        A cancellation meant a callback that has just ended, or it is that of all tasks at the end of `asyncio.run`.
        """
        try:
            await waiting
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # the loop learns of it, too
            if worker not in self._workers or self._cancelled:
                return False
            self._forget_interrupt(worker)
        return True

    def _forget_interrupt(self, worker: asyncio.Task[Any]) -> None:
        """Let the next callback of a worker be as if none before had been interrupted."""
        if worker.cancelling() and not self._cancelled:
            worker.uncancel()

    def _complete(
        self, batch: Batch, deliveries: list[InFlightDelivery], result: object, error: BaseException | None
    ) -> float:
        try:
            now = self._buffer.complete(batch, deliveries, result, error)
        except BaseException as failure:  # ours: it ends the consumer
            self._buffer.fail(batch, deliveries, failure)
            raise
        if self._buffer.stop_reason is not None:
            self.stop(None)
        return now
