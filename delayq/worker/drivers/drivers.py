"""The drivers of a consumer loop carry out its steps and decide nothing: here their base, and the one with threads.

Callbacks run in workers: threads, or tasks of the event loop (`async_driver`). A completion or a wake-up ends the
loop's sleep. Completions that arrive during a round trip are reported together after it.

One idle worker is signalled at a time, and it signals the next only if work remains. Quick callbacks thus wake no more
workers than they need.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from delayq.broker.batches import batched
from delayq.broker.context import EngineContext
from delayq.broker.requests import Release
from delayq.broker.scripts import MAX_MOVED
from delayq.errors import ConsumerFailedError, StoppedByCallbackError
from delayq.safe_log import SafeLog
from delayq.values.times import Duration, monotonic, to_millis
from delayq.worker.delivery.disposition import describe
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery
from delayq.worker.delivery.message import Message
from delayq.worker.drivers.callback_context import StartContext
from delayq.worker.drivers.health import Health, OnHealthChange
from delayq.worker.drivers.own_threads import OwnThreads
from delayq.worker.drivers.wakeup import Listener, check_connections
from delayq.worker.drivers.work_buffer import Callback, WorkBuffer
from delayq.worker.loop.consumer_loop import ConsumerLoop
from delayq.worker.loop.loop_steps import RoundTrip, Run, Sleep, StepResult, Withdraw
from delayq.worker.parts.presence import Presence

if TYPE_CHECKING:
    import asyncio

    from delayq.broker.transport.executor import Executor


class WorkerStarts:
    """The part of all drivers that concerns their own threads and tasks."""

    name: str
    stop: Callable[[Duration | None], None]

    def _prepare_starts(self, on_health_change: OnHealthChange | None) -> None:
        self.health = Health(on_health_change)
        self._own_threads = OwnThreads(self._on_death, self.health.report_room)
        self._contexts = StartContext()
        self._death: ConsumerFailedError | None = None
        """What has ended one of its threads or tasks, and so ends the consumer."""
        self._started = self._wanted = 0
        """Workers ever started, and how many were needed."""
        self._missing = 0
        """Workers of the full number for which there is no room."""

    def _on_death(self, name: str, error: BaseException) -> None:
        """End the consumer because one of its threads or tasks has died, which is logged."""
        if self._death is None:
            self._death = ConsumerFailedError(f"{name} has died: {describe(error)}")
            self._death.__cause__ = error
            self.health.fail(self._death)
            self.stop(None)

    def _raise_death(self) -> None:
        if self._death is not None:
            raise self._death

    def _start_workers(self, wanted: int = 0) -> None:
        """Start workers until there are so many; without room for one more, claim for those there are."""
        self._wanted = max(self._wanted, wanted)
        while self._started < self._wanted and self._start_worker(f"{self.name}-{self._started + 1}"):
            self._started += 1
        if self._missing or self._started < self._wanted:
            self._note_missing(self._started if self._started < self._wanted else None)

    def _fill_up(self) -> None:
        """Try again to start the workers for which there was no room."""
        if self._missing:
            self._start_workers()

    def _note_missing(self, started: int | None) -> None:
        """Claim for so many workers; None for the full number."""
        full, holder = self._full_number()
        self._missing = holder.missing = 0 if started is None else max(0, full - started)

    def _start_worker(self, name: str) -> bool:
        """Start a worker; returns False if there is no room for it."""
        raise NotImplementedError

    def _full_number(self) -> tuple[int, HasMissing]:
        """Return how many workers may be needed, and who is to know how many of them are missing."""
        raise NotImplementedError


class HasMissing(Protocol):
    """What decides how much to claim."""

    missing: int


class ThreadSignal:
    """A signal for one thread, which may be sent from a signal handler too.

    `SimpleQueue.get` is no substitute: once its timeout has passed while an earlier item left its lock free, it waits
    for an item without any timeout, for example after the process was stopped and continued.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._sent = False

    def send(self) -> None:
        """End the sleep of the thread, or its next one."""
        if not self._sent:
            self._sent = True
            with suppress(RuntimeError):  # another thread has sent it at the same time
                self._lock.release()

    def sleep(self, seconds: float) -> None:
        """Sleep until the signal is sent, at most `seconds`; 0 or less only takes a signal that was sent."""
        if self._lock.acquire(timeout=max(seconds, 0.0)):
            self._sent = False


class ThreadSignals:
    """The signals of several threads as one, such as that of a callback's end: its place is free for any loop."""

    def __init__(self, signals: Sequence[ThreadSignal]) -> None:
        """Send all of these."""
        self._signals = signals

    def send(self) -> None:
        """End the sleep of all threads."""
        for signal in self._signals:
            signal.send()


STOP_LOG = "delayq.consumer.stop"
"""The logger of a stop by a callback, whose error is raised as well."""
stop_log = SafeLog(STOP_LOG)

EXIT_WITHIN = 2.0
"""Seconds to settle and release messages if Redis does not answer: when a process or event loop ends, and in a stop."""


class Driver(WorkerStarts):
    """What both drivers share: the buffer, the stop, and how workers are started and signalled."""

    _worker_signal: SimpleQueue[None] | asyncio.Queue[None]
    _message_class: Any

    def __init__(
        self,
        executor: Any,
        context: EngineContext,
        callback: Callback,
        name: str,
        *,
        burst: bool = False,
        on_health_change: OnHealthChange | None = None,
    ) -> None:
        """Run `callback` on the messages that a loop claims; `name` is the start of its workers' names."""
        check_connections(executor)
        of_callback: dict[str, Any] = {
            "batch": callback.batch,
            "limited": callback.limited,
            "breakers": callback.breakers,
            "more": callback.parts,
        }
        presence = partial(Presence, context, executor.consumer_id, burst=burst)
        self._loop = ConsumerLoop(context, executor.consumer_id, burst=burst, presence=presence, **of_callback)
        self._buffer = WorkBuffer(callback, self._message_class, context, executor)
        self._buffer.connect(self._loop)
        self._executor = executor
        self._context = context
        self._prepare(name, on_health_change)

    def _prepare(self, name: str, on_health_change: OnHealthChange | None) -> None:
        """Set what no driver takes from its queue."""
        self.name = name
        self._prepare_starts(on_health_change)
        self._stop_at: float | None = None
        """Time until which a stop waits for callbacks; None before a stop."""
        self._idle_since: float | None = None
        """When a stop found that no callback runs while Redis does not answer."""
        self._give_up_at = math.inf
        """Time until which a stop waits for Redis once no callback runs; only the loop writes it."""
        self._woken = False
        self._worker_signalled = False
        self._withdrawn: list[InFlightDelivery] = []
        self.claimed = 0
        """Messages claimed so far."""

    @property
    def stopped(self) -> bool:
        """Whether a stop was requested."""
        return self._stop_at is not None

    @property
    def grace(self) -> float:
        """Seconds that a stop waits for running callbacks unless it says otherwise."""
        return self._context.settings.grace / 1000

    def _loops(self) -> list[ConsumerLoop]:
        return [self._loop]

    @property
    def hung_since(self) -> float:
        """When the first of the callbacks that have taken too long was noticed; infinite if none runs."""
        return min((loop.in_flight.limits.hung_since for loop in self._loops()), default=math.inf)

    def leave_hung(self) -> None:
        """Let a stop not wait for callbacks that have taken too long: the process ends with them."""
        for loop in self._loops():
            loop.leaves_hung = True

    @property
    def _ends_at(self) -> float:
        """Time at which a stop ends at the latest; infinite before a stop."""
        return min(math.inf if self._stop_at is None else self._stop_at, self._give_up_at)

    def _stop_within(self, grace: Duration | None) -> None:
        """Further stops can only shorten the time."""
        at = monotonic() + (self.grace if grace is None else to_millis(grace, "grace") / 1000)
        self._stop_at = at if self._stop_at is None else min(self._stop_at, at)

    def _raise_stop(self) -> None:
        """Log and raise the error of a consumer that a callback has stopped: perhaps nobody waits for its end."""
        self._raise_death()
        reason = self._buffer.stop_reason
        if reason is not None:
            queue = self._context.queue
            stop_log.error("a callback stopped the consumer of %s: %s", queue, reason, extra={"queue": queue})
            raise StoppedByCallbackError(reason)

    def _should_retry(self, error: Exception) -> bool:
        """Retry whatever the error is: a later try may succeed.

        A stop waits for running callbacks, but not for Redis.
        """
        now = monotonic()
        self.health.report(error)
        self.health.turn(now)
        if self._stop_at is None:
            return True
        if self._loop.in_flight.any_running():
            self._idle_since = None
        else:
            self._idle_since = self._idle_since or now
            self._give_up_at = min(self._give_up_at, self._idle_since + EXIT_WITHIN)
        return now < self._ends_at

    def _report(self, result: StepResult) -> StepResult:
        """Add what has happened meanwhile to the result of a step."""
        result.now = monotonic()
        self.health.turn(result.now)
        self._fill_up()
        result.completions = self._buffer.drain()
        if self._buffer.stop_reason is not None and self._stop_at is None:
            self._stop_within(None)
        if self._woken:  # not swapped: the listener's thread may set it meanwhile
            self._woken, result.woken = False, True
        result.stop_at = self._ends_at if self.stopped else None
        return result

    def _releases(self) -> Iterator[Any]:
        """Yield the calls that release what no worker has taken, after the loop has failed."""
        self._buffer.withdraw(self._withdrawn)
        for part in batched([Release(*delivery.receipt, unstarted=True) for delivery in self._withdrawn], MAX_MOVED):
            yield self._context.calls.release(part)

    def _start(self, deliveries: list[InFlightDelivery]) -> None:
        self.claimed += len(deliveries)
        if self._stop_at is not None:  # stopped during the claim: no callback may start any more
            self._withdrawn.extend(deliveries)
            return
        self._buffer.put(deliveries)
        in_flight = self._loop.in_flight
        self._start_workers(min(self._context.settings.concurrency, len(in_flight.deliveries)) + in_flight.abandoned)
        self._signal_worker()

    def _full_number(self) -> tuple[int, HasMissing]:
        in_flight = self._loop.in_flight
        return self._context.settings.concurrency + in_flight.abandoned, in_flight

    def _signal_worker(self) -> None:
        """Signal an idle worker, unless a signal is on its way."""
        if self._buffer.waiting and not self._worker_signalled:
            self._worker_signalled = True
            self._worker_signal.put_nowait(None)


class ThreadDriver(Driver):
    """Drives a consumer with threads: one for the loop, and up to `concurrency` workers, started when needed."""

    _executor: Executor
    _message_class = Message
    _worker_signal: SimpleQueue[None]

    def __init__(
        self, executor: Executor, context: EngineContext, callback: Callback, name: str, **options: Any
    ) -> None:
        super().__init__(executor, context, callback, name, **options)
        self._prepare_threads()

    def _prepare_threads(self) -> None:
        self._loop_signal = ThreadSignal()
        self._worker_signal = SimpleQueue()
        self._ended = False
        self._exiting = False
        self._workers: set[threading.Thread] = set()
        self._withdrawing = threading.RLock()  # a signal handler may stop while its own thread is doing so

    def stop(self, grace: Duration | None) -> None:
        """Stop within `grace`, by default the queue's; harmless when stopped already, and from inside a callback."""
        self._stop_within(grace)
        with self._withdrawing:
            self._buffer.withdraw(self._withdrawn)  # at once: no callback may start while the loop is busy
        self._signal_loop()

    def stop_at_exit(self) -> None:
        """Stop without grace because the process ends: what the listener takes must be returned before."""
        self._exiting = True
        self.stop(0)

    def is_worker(self, thread: threading.Thread) -> bool:
        """Return whether a thread runs this driver's callbacks."""
        return thread in self._workers

    def run(self) -> None:
        """Run the loop to its end; raises `StoppedByCallbackError` if a callback stopped it."""
        self._run_loop()
        self._raise_stop()

    def _run_loop(self) -> None:
        listener = Listener(self._executor, self._context.calls, self._on_wakeup, self._own_threads)
        loop = self._loop.run()
        try:
            step = next(loop)
            while True:
                result = StepResult(0.0)
                if isinstance(step, RoundTrip):
                    result.replies = self._executor.run(step.calls, should_retry=self._should_retry)
                    self._executor.check()
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
                self.health.report(self._loop.refusals.error)
        except StopIteration:
            return
        except BaseException:
            with suppress(Exception):
                self._executor.run(list(self._releases()), deadline=0)
            raise
        finally:
            listener.close(wait=self._exiting)
            if self._woken:  # the last wake-up came too late for the loop
                self._executor.run([self._context.calls.wake()], deadline=0)
            self._ended = True
            for _ in list(self._workers):
                self._worker_signal.put(None)

    def _start_worker(self, name: str) -> bool:
        return self._own_threads.start(self._work, name) is not None

    def _sleep(self, seconds: float) -> None:
        self._loop_signal.sleep(0 if self._buffer.finished else self._own_threads.sleeping(seconds))

    def _signal_loop(self) -> None:
        self._loop_signal.send()

    def _on_wakeup(self) -> None:
        self._woken = True
        self._signal_loop()

    def _work(self) -> None:
        buffer, loop_signal, context_of_start = self._buffer, self._loop_signal, self._contexts
        self._workers.add(threading.current_thread())
        while not self._ended:
            taken = buffer.get()
            if taken is None:
                self._worker_signal.get()
                self._worker_signalled = False
                continue
            if not self._worker_signalled:
                self._signal_worker()
            batch, deliveries, argument = taken
            if argument is not None:
                result: object = None
                error: BaseException | None = None
                try:
                    result = context_of_start.copy().run(buffer.function, argument)
                except BaseException as raised:  # noqa: BLE001 - whatever a callback raises costs one retry only
                    error = raised
                try:
                    buffer.complete(batch, deliveries, result, error)
                except BaseException as failure:  # ours: it ends the consumer
                    buffer.fail(batch, deliveries, failure)
                    raise
                if buffer.stop_reason is not None:
                    self.stop(None)
            loop_signal.send()
            if not batch.conclude():  # overdue: another worker has replaced this one
                self._workers.discard(threading.current_thread())
                return
