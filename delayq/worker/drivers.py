"""The drivers of a consumer loop: one with threads, one with asyncio. They carry out its steps and decide nothing.

Callbacks run in workers: threads, or tasks of the event loop. A completion or a wake-up ends the loop's sleep.
Completions that arrive during a round trip are reported together after it.

One idle worker is signalled at a time, and it signals the next only if work remains. Quick callbacks thus wake no more
workers than they need.
"""

from __future__ import annotations

import asyncio
import threading
from inspect import isawaitable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from delayq.broker.context import EngineContext
from delayq.times import Duration, monotonic, to_millis
from delayq.worker.consumer_loop import ConsumerLoop
from delayq.worker.loop_steps import Cancel, RoundTrip, Run, Sleep, StepResult, Withdraw
from delayq.worker.message import AsyncMessage, InFlightDelivery, Message
from delayq.worker.wakeup import AsyncListener, Listener
from delayq.worker.work_buffer import Callback, WorkBuffer

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

MAX_LOOP_SHARE = 0.01
"""Seconds for which a worker task runs before it yields to the event loop: a callback may await nothing."""


class _Driver:
    """What both drivers share: the buffer, the stop, and how workers are started and signalled."""

    _worker_signal: SimpleQueue[None] | asyncio.Queue[None]
    _message_class: Any

    def __init__(self, executor: Any, context: EngineContext, callback: Callback, name: str, *, burst: bool) -> None:
        """Run `callback` on the messages that a loop claims; `name` is the start of its workers' names."""
        self._loop = ConsumerLoop(context, consumer_id=executor.client_name, batch=callback.batch, burst=burst)
        self._buffer = WorkBuffer(callback, self._message_class, context, executor)
        self._executor = executor
        self._context = context
        self.name = name
        self._stop_at: float | None = None
        """Time until which a stop waits for callbacks; None before a stop."""
        self._woken = False
        self._worker_signalled = False
        self._started = 0
        self._withdrawn: list[InFlightDelivery] = []

    def _stop_within(self, grace: Duration | None) -> None:
        """Further stops can only shorten the time."""
        at = monotonic() + (self._context.settings.grace if grace is None else to_millis(grace, "grace")) / 1000
        self._stop_at = at if self._stop_at is None else min(self._stop_at, at)

    def _should_retry(self) -> bool:
        return self._stop_at is None or monotonic() < self._stop_at

    def _report(self, result: StepResult) -> StepResult:
        """Add what has happened meanwhile to the result of a step."""
        result.now = monotonic()
        result.completions = self._buffer.drain()
        if self._woken:  # not swapped: the listener's thread may set it meanwhile
            self._woken, result.woken = False, True
        result.stop_at = self._stop_at
        return result

    def _start(self, deliveries: list[InFlightDelivery]) -> None:
        self._buffer.put(deliveries)
        in_flight = self._loop.in_flight
        wanted = min(self._context.settings.concurrency, len(in_flight.deliveries)) + in_flight.abandoned
        while self._started < wanted:
            self._started += 1
            self._start_worker(f"{self.name}-{self._started}")
        self._signal_worker()

    def _start_worker(self, name: str) -> None:
        raise NotImplementedError

    def _signal_worker(self) -> None:
        """Signal an idle worker, unless a signal is on its way."""
        if self._buffer.waiting and not self._worker_signalled:
            self._worker_signalled = True
            self._worker_signal.put_nowait(None)


class ThreadDriver(_Driver):
    """Drives a consumer with threads: one for the loop, and up to `concurrency` workers, started when needed."""

    _executor: Executor
    _message_class = Message
    _worker_signal: SimpleQueue[None]

    def __init__(
        self, executor: Executor, context: EngineContext, callback: Callback, name: str, *, burst: bool
    ) -> None:
        super().__init__(executor, context, callback, name, burst=burst)
        self._loop_signal: SimpleQueue[None] = SimpleQueue()
        self._loop_signalled = False
        self._worker_signal = SimpleQueue()
        self._ended = False
        self._workers: set[threading.Thread] = set()
        self._withdrawing = threading.RLock()  # a signal handler may stop while its own thread is doing so

    def stop(self, grace: Duration | None) -> None:
        """Stop within `grace`, by default the queue's; harmless when stopped already, and from inside a callback."""
        self._stop_within(grace)
        with self._withdrawing:
            self._buffer.withdraw(self._withdrawn)  # at once: no callback may start while the loop is busy
        self._signal_loop()

    def is_worker(self, thread: threading.Thread) -> bool:
        """Return whether a thread runs this driver's callbacks."""
        return thread in self._workers

    def run(self) -> None:
        """Run the loop to its end."""
        listener = Listener(self._executor, self._context.calls, self._on_wakeup)
        loop = self._loop.run()
        try:
            step = next(loop)
            while True:
                result = StepResult(0.0)
                if isinstance(step, RoundTrip):
                    result.replies = self._executor.run(step.calls, should_retry=self._should_retry)
                elif isinstance(step, Run):
                    self._start(step.deliveries)
                elif isinstance(step, Sleep):
                    listener.listen(on=step.listen)
                    self._sleep(step.seconds)
                elif isinstance(step, Withdraw):
                    with self._withdrawing:
                        self._buffer.withdraw(self._withdrawn)
                        result.withdrawn, self._withdrawn = self._withdrawn, []
                step = loop.send(self._report(result))
        except StopIteration:
            return
        finally:
            listener.close()
            if self._woken:  # the last wake-up came too late for the loop
                self._executor.run([self._context.calls.wake()], should_retry=lambda: False)
            self._ended = True
            for _ in list(self._workers):
                self._worker_signal.put(None)

    def _start_worker(self, name: str) -> None:
        worker = threading.Thread(target=self._work, name=name, daemon=True)
        self._workers.add(worker)
        worker.start()

    def _sleep(self, seconds: float) -> None:
        blocks = seconds > 0 and not self._buffer.finished
        try:
            self._loop_signal.get(block=blocks, timeout=seconds if blocks else None)
        except Empty:
            return
        self._loop_signalled = False

    def _signal_loop(self) -> None:
        if not self._loop_signalled:
            self._loop_signalled = True
            self._loop_signal.put(None)

    def _on_wakeup(self) -> None:
        self._woken = True
        self._signal_loop()

    def _work(self) -> None:
        buffer = self._buffer
        while not self._ended:
            taken = buffer.get()
            if taken is None:
                self._worker_signal.get()
                self._worker_signalled = False
                continue
            self._signal_worker()
            batch, deliveries, argument = taken
            if argument is not None:
                result: object = None
                error: BaseException | None = None
                try:
                    result = buffer.function(argument)
                except BaseException as raised:  # noqa: BLE001 - whatever a callback raises costs one retry only
                    error = raised
                buffer.complete(batch, deliveries, result, error)
            self._signal_loop()
            if not batch.conclude():  # overdue: another worker has replaced this one
                self._workers.discard(threading.current_thread())
                return


class AsyncDriver(_Driver):
    """Drives a consumer with asyncio: the loop in one task, callbacks in up to `concurrency` tasks."""

    _executor: AsyncExecutor
    _message_class = AsyncMessage
    _worker_signal: asyncio.Queue[None]

    def __init__(
        self, executor: AsyncExecutor, context: EngineContext, callback: Callback, name: str, *, burst: bool
    ) -> None:
        super().__init__(executor, context, callback, name, burst=burst)
        self._loop_signal = asyncio.Event()
        self._worker_signal = asyncio.Queue()
        self._workers: set[asyncio.Task[Any]] = set()

    def stop(self, grace: Duration | None) -> None:
        """Stop within `grace`, by default the queue's; harmless when stopped already, and from inside a callback."""
        self._stop_within(grace)
        self._buffer.withdraw(self._withdrawn)  # at once: no callback may start while the loop is busy
        self._loop_signal.set()

    def is_worker(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether a task runs this driver's callbacks."""
        return task in self._workers

    async def run(self) -> None:
        """Run the loop to its end."""
        listener = AsyncListener(self._executor, self._context.calls, self._on_wakeup)
        loop = self._loop.run()
        try:
            step = next(loop)
            while True:
                result = StepResult(0.0)
                if isinstance(step, RoundTrip):
                    result.replies = await self._executor.run(step.calls, should_retry=self._should_retry)
                elif isinstance(step, Run):
                    self._start(step.deliveries)
                elif isinstance(step, Sleep):
                    listener.listen(on=step.listen)
                    await self._sleep(step.seconds)
                elif isinstance(step, Withdraw):
                    self._buffer.withdraw(self._withdrawn)
                    result.withdrawn, self._withdrawn = self._withdrawn, []
                elif isinstance(step, Cancel):
                    self._cancel()
                step = loop.send(self._report(result))
        except StopIteration:
            return
        finally:
            self._cancel()
            await listener.close()
            if self._woken:  # the last wake-up came too late for the loop
                await self._executor.run([self._context.calls.wake()], should_retry=lambda: False)

    def _start_worker(self, name: str) -> None:
        self._workers.add(asyncio.get_running_loop().create_task(self._work(), name=name))

    async def _sleep(self, seconds: float) -> None:
        if seconds > 0 and not self._buffer.finished:
            try:
                async with asyncio.timeout(seconds):
                    await self._loop_signal.wait()
            except TimeoutError:
                return
        self._loop_signal.clear()

    def _on_wakeup(self) -> None:
        self._woken = True
        self._loop_signal.set()

    def _cancel(self) -> None:
        workers, self._workers = self._workers, set()
        for worker in workers:
            worker.cancel()

    async def _work(self) -> None:
        buffer, me = self._buffer, cast("asyncio.Task[Any]", asyncio.current_task())
        now = resumed = monotonic()
        while True:
            if now - resumed > MAX_LOOP_SHARE:
                await asyncio.sleep(0)
                now = resumed = monotonic()
            taken = buffer.get()
            if taken is None:
                await self._worker_signal.get()
                self._worker_signalled = False
                now = resumed = monotonic()
                continue
            self._signal_worker()
            batch, deliveries, argument = taken
            if argument is not None:
                result: object = None
                error: BaseException | None = None
                try:
                    result = buffer.function(argument)
                    if isawaitable(result):
                        result = await result
                except BaseException as raised:  # noqa: BLE001 - whatever a callback raises costs one retry only
                    error = raised
                if me not in self._workers:
                    return
                now = buffer.complete(batch, deliveries, result, error)
            self._loop_signal.set()
            if not batch.conclude():  # overdue: another worker has replaced this one
                self._workers.discard(me)
                return
