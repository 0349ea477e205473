"""The drivers of consumers carry out the steps of loops and decide nothing: here their base, and the one with threads.

A driver has one loop for each server, and runners for the callbacks of all queues: threads, or tasks of the event loop
(`async_driver`). A completion or a wake-up ends a loop's sleep. Completions that arrive during a round trip are
reported together after it.

One idle runner is signalled at a time, and it signals the next only if work remains. Quick callbacks thus wake no more
runners than they need.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

from delayq.errors import ConsumerFailedError, StoppedByCallbackError
from delayq.safe_log import SafeLog
from delayq.values.times import Duration, monotonic, to_millis
from delayq.worker.delivery.disposition import describe
from delayq.worker.delivery.in_flight_delivery import Batch, InFlightDelivery
from delayq.worker.delivery.message import Message
from delayq.worker.drivers.callbacks import StartContext
from delayq.worker.drivers.health import Health, OnHealthChange
from delayq.worker.drivers.own_threads import OwnThreads
from delayq.worker.drivers.served import ServedQueue, ServerLoop
from delayq.worker.drivers.wakeup import Listener, SharedWaits
from delayq.worker.loop.consumer_loop import ConsumerLoop
from delayq.worker.loop.loop_steps import RoundTrip, Run, Sleep, StepResult

STOP_LOG = "delayq.consumer.stop"
"""The logger of a stop by a callback, whose error is raised as well."""
stop_log = SafeLog(STOP_LOG)


class ThreadSignal:
    """A signal for one thread, which may be sent from a signal handler too.

    `SimpleQueue.get` is no substitute: once its timeout has passed while an earlier item left its lock free, it waits
    for an item without any timeout, for example after the process was stopped and continued.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._sent = False

    def set(self) -> None:
        """End the sleep of the thread, or its next one."""
        if not self._sent:
            self._sent = True
            with suppress(RuntimeError):  # another thread has sent it at the same time
                self._lock.release()

    def sleep(self, seconds: float) -> None:
        """Sleep until the signal is sent, at most `seconds`; 0 or less only takes a signal that was sent."""
        if self._lock.acquire(timeout=max(seconds, 0.0)):
            self._sent = False


class Driver:
    """What both drivers share: their own threads and tasks, health, the stop, how runners start and are signalled."""

    lifespans: Any = None
    """What is entered before it runs and left after its end; None for nothing."""
    _runner_signal: Any
    _signals: dict[ServerLoop, Any]
    """What ends the sleep of each loop; the end of a callback those of all: its place is free for any of them."""
    _all_signals: list[Any]
    """The same; runners go through it while a loop is added."""

    def __init__(
        self,
        work: Any,
        servers: list[ServerLoop],
        name: str,
        *,
        grace: float,
        on_health_change: OnHealthChange | None = None,
    ) -> None:
        """Run the loops of these servers, and their work: an `OneQueue` or a `Pool`.

        A stop waits for running callbacks for `grace` seconds unless it says otherwise. The names of runners start
        with `name`.
        """
        self.name, self.grace = name, grace
        self.servers = servers
        self._work, self._buffer = work, work.buffer
        self.health = Health(on_health_change)
        self._own_threads = OwnThreads(self._on_death, self.health.report_room)
        self._contexts = StartContext()
        self._death: ConsumerFailedError | None = None
        """What has ended one of its threads or tasks, and so ends the consumer."""
        self._failure: BaseException | None = None
        """What has ended one of its loops."""
        self._started = self._wanted = 0
        """Runners ever started, and how many were needed."""
        self._missing = 0
        """Runners of the full number for which there is no room."""
        self._runner_signalled = False
        self._stop_at: float | None = None
        """Time until which a stop waits for callbacks; None before a stop."""
        self.claimed = 0
        """Messages claimed so far."""

    # Its threads and tasks

    def _on_death(self, name: str, error: BaseException) -> None:
        """End the consumer because one of its threads or tasks has died, which is logged."""
        if self._death is None:
            self._death = ConsumerFailedError(f"{name} has died: {describe(error)}")
            self._death.__cause__ = error
            self.health.fail(self._death)
            self.stop(None)

    def _start_runners(self, wanted: int = 0) -> None:
        """Start runners until there are so many; without room for one more, claim for those there are."""
        self._wanted = max(self._wanted, wanted)
        while self._started < self._wanted and self._start_runner(f"{self.name}-{self._started + 1}"):
            self._started += 1
        if self._missing or self._started < self._wanted:
            self._note_missing(self._started if self._started < self._wanted else None)

    def _start_runner(self, name: str) -> bool:
        """Start a runner; returns False if there is no room for it."""
        raise NotImplementedError

    def _fill_up(self) -> None:
        """Try again to start that for which there was no room."""
        raise NotImplementedError

    def _note_missing(self, started: int | None) -> None:
        """Claim for so many runners; None for the full number."""
        self._missing = 0 if started is None else max(0, self._work.most_runners - started)
        self._work.set_missing(self._missing)

    def _start(self, count: int) -> None:
        """Start as many runners as the deliveries need that were claimed, and signal one."""
        self.claimed += count
        if self._stop_at is None:
            self._start_runners(self._work.runners)
            self._signal_runner()

    def _signal_runner(self) -> None:
        """Signal an idle runner, unless a signal is on its way."""
        if self._buffer.waiting and not self._runner_signalled:
            self._runner_signalled = True
            self._runner_signal.put_nowait(None)

    def _complete(
        self, batch: Batch, deliveries: list[InFlightDelivery], result: object, error: BaseException | None
    ) -> float:
        """Complete what a runner has taken by how the callback ended; returns the local time."""
        try:
            now: float = self._buffer.complete(batch, deliveries, result, error)
        except BaseException as failure:  # ours: it ends the consumer
            self._buffer.fail(batch, deliveries, failure)
            raise
        if self._buffer.stop_reason is not None:
            self.stop(None)
        return now

    # What is known of it, and its stop

    @property
    def stopped(self) -> bool:
        """Whether a stop was requested."""
        return self._stop_at is not None

    @property
    def loops(self) -> list[ConsumerLoop]:
        """The loops of its queues; any thread may ask."""
        found: list[ConsumerLoop] = self._work.loops()
        return found

    @property
    def hung_since(self) -> float:
        """When the first of the callbacks that have taken too long was noticed; infinite if none runs."""
        return min((loop.in_flight.limits.hung_since for loop in self.loops), default=math.inf)

    def add_server(self, server: ServerLoop) -> None:
        """Run one more loop, from a turn of another one: for a server that is new."""
        raise NotImplementedError

    def _connect(self, server: ServerLoop, signal: Any) -> None:
        self._signals[server] = signal
        self._all_signals.append(signal)
        self.servers.append(server)

    def leave_hung(self) -> None:
        """Let a stop not wait for callbacks that have taken too long: the process ends with them."""
        self._work.leave_hung()

    def stop(self, grace: Duration | None) -> None:
        """Stop within `grace`, by default the driver's; harmless when stopped already, and from inside a callback."""
        raise NotImplementedError

    def _stop_within(self, grace: Duration | None) -> None:
        """Further stops can only shorten the time."""
        at = monotonic() + (self.grace if grace is None else to_millis(grace, "grace") / 1000)
        self._stop_at = at if self._stop_at is None else min(self._stop_at, at)

    def _stop_work(self) -> None:
        self._work.stop()  # at once: no callback may start while a loop is busy
        for signal in [*self._all_signals]:
            signal.set()

    def _raise_stop(self) -> None:
        """Raise what has ended the consumer; log that a callback has stopped it: perhaps nobody waits for its end."""
        if error := self._failure or self._death:
            raise error
        if (queue := self._work.stopped_by) is not None:
            name, reason = queue.context.queue, queue.buffer.stop_reason
            stop_log.error("a callback stopped the consumer of %s: %s", name, reason, extra={"queue": name})
            raise StoppedByCallbackError(reason)

    # What it reports to a loop

    def _report(self, server: ServerLoop, result: StepResult) -> StepResult:
        """Add what has happened meanwhile to the result of a step."""
        result.now = monotonic()
        self.health.turn(result.now, server)
        self._fill_up()
        if self._stop_at is None and self._work.stopped_by is not None:
            self.stop(None)
        result.stop_at = None if self._stop_at is None else min(self._stop_at, server.give_up_at)
        return result

    def _report_error(self, server: ServerLoop, error: Exception | None) -> None:
        """Report the health of the consumer: the error of any server."""
        if error is not server.error or error is not None:
            server.error = error
            self.health.report(next((one.error for one in self.servers if one.error), None))

    def _retries(self, server: ServerLoop, error: Exception) -> bool:
        """Retry whatever the error is: a later try may succeed."""
        self._report_error(server, error)
        self.health.turn(monotonic(), server)
        return server.waits_for_server(self._stop_at)

    def _listen(self, server: ServerLoop) -> None:
        """Listen for the wake-ups of the queues that the loop of a server has now."""
        executor, wake_loop = server.executor, self._signals[server].set

        def woken(queue: ServedQueue) -> None:
            queue.wake()
            wake_loop()

        def make(source: ServedQueue | SharedWaits) -> Any:
            if isinstance(source, SharedWaits):  # it wakes the queues itself
                return self._listener(executor, source, wake_loop)
            return self._listener(executor, source.context.calls, partial(woken, source))

        for listener in server.listen(make):
            self._close(listener)

    def _listener(self, executor: Any, waits: Any, on_wakeup: Callable[[], object]) -> Any:
        """Return what listens for wake-ups."""
        raise NotImplementedError

    def _close(self, listener: Any) -> None:
        """Close a listener that is needed no more."""
        raise NotImplementedError


class ThreadDriver(Driver):
    """Drives with threads: one for each loop, and runners, started when needed."""

    message_class = Message

    def __init__(self, work: Any, servers: list[ServerLoop], name: str, **options: Any) -> None:
        """See `Driver`."""
        super().__init__(work, servers, name, **options)
        self._signals = {server: ThreadSignal() for server in servers}
        self._all_signals = [*self._signals.values()]
        self._runner_signal = SimpleQueue()
        self._ended = False
        self._exiting = False
        self._runners: set[threading.Thread] = set()
        self._starting = threading.Lock()
        self._loops_to_start = [*servers[1:]]
        self._loop_threads: list[threading.Thread] = []

    def stop(self, grace: Duration | None) -> None:
        """Stop within `grace`, by default the driver's; harmless when stopped already, and from inside a callback."""
        self._stop_within(grace)
        self._stop_work()

    def stop_at_exit(self) -> None:
        """Stop without grace because the process ends: what the listener takes must be returned before."""
        self._exiting = True
        self.stop(0)

    def is_runner(self, thread: threading.Thread) -> bool:
        """Return whether a thread runs this driver's callbacks."""
        return thread in self._runners

    def run(self) -> None:
        """Run the loops to their end; raises `StoppedByCallbackError` if a callback stopped them."""
        with self._starting:
            self._start_loops()
        self._run_server(self.servers[0])
        while (server := self._next_to_start()) is not None:  # there was no room for its thread
            self._run_server(server)
        for thread in self._loop_threads:  # also those that are added meanwhile
            thread.join()
        self._ended = True
        for _ in list(self._runners):
            self._runner_signal.put(None)
        self._raise_stop()

    def _start_loops(self) -> None:
        """Start the loops of the other servers, as far as there is room for their threads; for who holds the lock."""
        while self._loops_to_start and not self.stopped:
            server = self._loops_to_start.pop()
            thread = self._own_threads.start(partial(self._run_server, server), f"{self.name}-loop")
            if thread is None:
                self._loops_to_start.append(server)
                return
            self._loop_threads.append(thread)

    def add_server(self, server: ServerLoop) -> None:
        """See `Driver`; its thread starts with the next turn of any loop."""
        with self._starting:
            self._connect(server, ThreadSignal())
            self._loops_to_start.append(server)

    def _next_to_start(self) -> ServerLoop | None:
        with self._starting:
            return self._loops_to_start.pop() if self._loops_to_start else None

    def _fill_up(self) -> None:
        if self._missing or self._loops_to_start:
            with self._starting:
                self._start_loops()
                self._start_runners()

    def _run_server(self, server: ServerLoop) -> None:
        try:
            self._drive(server)
        except BaseException as error:  # noqa: BLE001 - raised by `run`
            self._failure = self._failure or error
            self.stop(None)  # a consumer serves all of its queues or none
        finally:
            self.health.end(server)

    def _drive(self, server: ServerLoop) -> None:
        executor, loop = server.executor, server.loop
        loop.on_change = partial(self._listen, server)
        should_retry = partial(self._retries, server)
        steps = loop.run()
        try:
            step = next(steps)
            while True:
                result = StepResult(0.0)
                if isinstance(step, RoundTrip):
                    result.replies = executor.run(step.calls, should_retry=should_retry)
                    if not loop.looks_after_queues:
                        executor.check()
                elif isinstance(step, Run):
                    with self._starting:
                        self._start(len(step.deliveries))
                elif isinstance(step, Sleep):
                    self._sleep(server, step)
                step = steps.send(self._report(server, result))
                self._report_error(server, loop.error)
        except StopIteration:
            return
        except BaseException:
            with suppress(Exception):
                executor.run(list(server.releases()), deadline=0)
            raise
        finally:
            for listener in server.listeners.values():
                listener.close(wait=self._exiting)
            if wakes := server.wakes():
                executor.run(wakes, deadline=0)

    def _sleep(self, server: ServerLoop, step: Sleep) -> None:
        for listener in server.listeners.values():
            listener.listen(on=step.listen)
        self._signals[server].sleep(0 if server.loop.finished else self._own_threads.sleeping(step.seconds))

    def _listener(self, executor: Any, waits: Any, on_wakeup: Callable[[], object]) -> Listener:
        return Listener(executor, waits, on_wakeup, self._own_threads)

    def _close(self, listener: Listener) -> None:
        listener.close()

    def _start_runner(self, name: str) -> bool:
        return self._own_threads.start(self._work_on, name) is not None

    def _work_on(self) -> None:
        work, buffer, context_of_start = self._work, self._buffer, self._contexts
        signals = self._all_signals
        self._runners.add(threading.current_thread())
        while not self._ended:
            taken = buffer.get()
            if taken is None:
                self._runner_signal.get()
                self._runner_signalled = False
                continue
            if not self._runner_signalled:
                self._signal_runner()
            batch, deliveries, argument = taken
            if argument is not None:
                result: object = None
                error: BaseException | None = None
                try:
                    result = context_of_start.copy().run(work.queue_of(batch).callback.function, argument)
                except BaseException as raised:  # noqa: BLE001 - whatever a callback raises costs one retry only
                    error = raised
                self._complete(batch, deliveries, result, error)
            for signal in signals:
                signal.set()
            if not batch.conclude():  # overdue: another runner has replaced this one
                self._runners.discard(threading.current_thread())
                return
