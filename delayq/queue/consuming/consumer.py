"""Consumers that run in the background, in threads or in asyncio tasks, and the handles that users get."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict, cast

from delayq._parity import mirrors
from delayq.errors import ConfigurationError, ConsumerFailedError, DelayqError, StoppedByCallbackError, short_repr
from delayq.safe_log import SafeLog
from delayq.values.checks import check_bool, check_concurrency, check_options
from delayq.values.times import Duration, monotonic, to_millis
from delayq.worker.delivery.disposition import describe
from delayq.worker.drivers.async_driver import AsyncDriver
from delayq.worker.drivers.drivers import ThreadDriver
from delayq.worker.drivers.health import OnHealthChange
from delayq.worker.drivers.own_threads import start_needed, start_task
from delayq.worker.drivers.served import EXIT_WITHIN
from delayq.worker.parts.meter import Meter

log = SafeLog("delayq.consumer")

SIGNALS_WITHIN = 0.5
"""Seconds within which the main thread handles a signal while it waits for a consumer. If a signal arrives just before
the wait, or in another thread, Python runs the handler only when the wait ends. So it waits in slices."""


class ConsumeOptions(TypedDict, total=False):
    """Options of `start_consume` and `run`, which apply to one run. None means the same as leaving one out."""

    burst: bool
    """Return when nothing is due any more."""
    concurrency: int | None
    """Callbacks that run at a time; by default the queue's `concurrency`."""
    grace: Duration | None
    """How long a stop waits for running callbacks; by default the queue's `grace`."""
    connect_timeout: Duration | None
    """How long to try to reach Redis before the run starts; by default the queue's `deadline`."""
    on_health_change: OnHealthChange | None
    """Called with the error when Redis fails, threads have no room or the consumer fails, and with None when all is
    well again; in one of the consumer's threads or its event loop, so it must return quickly."""


def check_consume_options(options: ConsumeOptions) -> None:
    """Raise `ConfigurationError` for a wrong option of one run."""
    check_options(options, ConsumeOptions.__annotations__)
    check_bool(options.get("burst", False), "burst")
    if (concurrency := options.get("concurrency")) is not None:
        check_concurrency(concurrency)
    check_grace(options.get("grace"))
    if (hook := options.get("on_health_change")) is not None and not callable(hook):
        raise ConfigurationError(f"on_health_change must be a function, not {short_repr(hook)}")
    if inspect.iscoroutinefunction(hook):
        raise ConfigurationError("on_health_change must not be a coroutine function: nothing would await it")


def check_grace(grace: Duration | None) -> None:
    """Raise `ConfigurationError` if `grace` is not a duration."""
    if grace is not None:
        to_millis(grace, "grace")


_running: set[ThreadRun] = set()
"""The consumers that run in threads of this process."""


def _stop_at_exit() -> None:
    """Stop all consumers without grace because the process exits: what they have not started is released."""
    running = [run for run in list(_running) if run.running]  # none in a forked child
    for run in running:
        run.driver.stop_at_exit()
    end = monotonic() + EXIT_WITHIN
    for run in running:
        run.wait_until(end)


class ThreadRun:
    """A consumer in a thread of its own."""

    def __init__(self, driver: ThreadDriver) -> None:
        """Prepare to consume in the thread, which `start` starts."""
        self.driver = driver
        self.ended = False
        self.error: Exception | None = None
        """What has ended it."""
        self._starting = threading.RLock()
        self._started = self._entered = self._entering = False
        self._starter: int | None = threading.get_ident()
        """The thread that is to start the consumer, until it has."""
        self._begun = False
        self._pid = os.getpid()
        self._alive = threading.Lock()
        """Held until the consumer has ended."""
        self._alive.acquire()

    @property
    def running(self) -> bool:
        """Whether it has not ended, in this process."""
        return not self.ended and self._pid == os.getpid()

    def is_own_thread(self) -> bool:
        """Return whether the calling thread runs a callback, or starts the consumer and is interrupted by a signal."""
        starts = self._starter == threading.get_ident() and not self._begun
        return starts or self.driver.is_runner(threading.current_thread())

    def wait_until(self, end: float | None) -> None:
        """Wait for the end of the consumer until a local time."""
        # A signal handler may wait while the same thread waits already. An Event could deadlock: its lock may be taken.
        while not self.ended and (end is None or monotonic() < end):
            left = SIGNALS_WITHIN if end is None else max(0.0, min(SIGNALS_WITHIN, end - monotonic()))
            if self._alive.acquire(timeout=left):
                self._alive.release()

    def enter(self) -> None:
        """Enter its lifespans in the calling thread, unless they were; an error ends the consumer before it starts."""
        with self._starting:
            if self._entered or self.driver.lifespans is None:
                return
            self._entered = self._entering = True
            try:
                self.driver.lifespans.__enter__()
            except BaseException as error:
                self._started, self._starter = True, None
                self.error = error if isinstance(error, Exception) else None
                self._end()
                raise
            finally:
                self._entering = False

    def _leave(self) -> None:
        if self.driver.lifespans is None:
            return
        failed = self.driver.lifespans.leave()
        if failed is not None and self.error is None:
            self.error = failed if isinstance(failed, Exception) else self._died(failed)

    def _died(self, error: BaseException) -> ConsumerFailedError:
        died = ConsumerFailedError(f"{self.driver.name} has died: {describe(error)}")
        died.__cause__ = error
        return died

    def start(self) -> None:
        """Start the thread unless it was started. A Ctrl-C meanwhile may come when callbacks are running already."""
        with self._starting:
            self.enter()
            if not self._started and not self._entering:  # a lifespan may start its own consumer
                self._started = True
                _running.add(self)
                atexit.unregister(_stop_at_exit)
                atexit.register(_stop_at_exit)  # anew: before what the program has registered meanwhile
                try:
                    start_needed(self._run, self.driver.name)
                except DelayqError:
                    self._leave()
                    self._end()
                    raise
                finally:
                    self._starter = None

    def _run(self) -> None:
        self._begun = True
        try:
            self.driver.run()
        except (StoppedByCallbackError, ConsumerFailedError) as error:  # the driver has logged it
            self.error = error
        except BaseException as error:
            log.exception("the consumer ended")
            self.error = error if isinstance(error, Exception) else self._died(error)
        finally:
            self._leave()
            self._end()

    def _end(self) -> None:
        self.ended = True
        _running.discard(self)
        self._alive.release()


class Consuming:
    """A consumer that runs in the background, as returned by `start_consume`."""

    def __init__(self, run: ThreadRun) -> None:
        """Stand for a consumer that may have started."""
        self._run = run

    @property
    def running(self) -> bool:
        """Whether the consumer is running in this process."""
        return self._run.running

    @property
    def healthy(self) -> bool:
        """Whether the consumer is running with all the threads that it needs, and Redis answers and refuses no calls.

        An unhealthy consumer retries until it is healthy again or is stopped.
        """
        return self.running and self._run.driver.health.error is None

    def stop(self, grace: Duration | None = None) -> None:
        """Request a stop and return at once; see `DelayQueue.stop_consume`."""
        self._run.driver.stop(grace)

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until the consumer has ended, at most for `timeout`; returns whether it has ended.

        Inside one of its own callbacks it returns False at once, and so it does in a signal handler that interrupts the
        start of this consumer. If an error ended the consumer, raises that error.
        """
        seconds = None if timeout is None else to_millis(timeout, "timeout") / 1000
        if self._run.is_own_thread():
            return False
        self._run.wait_until(None if seconds is None else monotonic() + seconds)
        if self._run.error is not None:
            raise self._run.error
        return self._run.ended


class TaskRun:
    """A consumer in a task of its own."""

    def __init__(self, driver: AsyncDriver) -> None:
        """Start consuming."""
        self.driver = driver
        self._entered = asyncio.get_running_loop().create_future() if driver.lifespans is not None else None
        self.task = start_task(driver.run if self._entered is None else self._run, driver.name)

    async def _run(self) -> None:
        async with self.driver.lifespans:
            cast("asyncio.Future[None]", self._entered).set_result(None)
            await self.driver.run()

    async def enter(self) -> None:
        """Wait until its task has entered its lifespans; raises why it cannot. If cancelled, ends the consumer."""
        if self._entered is None:
            return
        try:
            await asyncio.wait([self._entered, self.task], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.task.cancel()
            await asyncio.wait([self.task])
            raise
        if not self._entered.done():
            self.task.result()


class AsyncConsuming:
    """A consumer that runs in tasks of the event loop; see `Consuming`."""

    def __init__(self, run: TaskRun) -> None:
        """Stand for a consumer that has started."""
        self._run = run

    @property
    def running(self) -> bool:
        """Whether the consumer is running."""
        return not self._run.task.done() and not self._run.task.get_loop().is_closed()

    @property
    @mirrors(Consuming.healthy)
    def healthy(self) -> bool:
        return self.running and self._run.driver.health.error is None

    @mirrors(Consuming.stop)
    def stop(self, grace: Duration | None = None) -> None:
        self._run.driver.stop(grace)

    @mirrors(Consuming.wait)
    async def wait(self, timeout: Duration | None = None) -> bool:  # noqa: ASYNC109 - mirrors the blocking method
        seconds = None if timeout is None else to_millis(timeout, "timeout") / 1000
        if self._run.driver.is_runner(asyncio.current_task()):
            return False
        ended, _ = await asyncio.wait([self._run.task], timeout=seconds)
        if ended:
            self._run.task.result()
        return bool(ended)


AnyConsuming = Consuming | AsyncConsuming


def run_of(consuming: AnyConsuming) -> Any:
    """Return what is behind a consumer: a `ThreadRun` or a `TaskRun`."""
    return consuming._run  # noqa: SLF001 - no name that a program sees


class QueueMeter(NamedTuple):
    """What a consumer counts of one queue, and what it holds of it."""

    queue: str
    meter: Meter
    held: int
    """Messages that it has claimed and not completed."""
    running: int
    """Callbacks that run, without those that have taken too long."""


def meters_of(consuming: AnyConsuming) -> list[QueueMeter]:
    """Return what a consumer counts of each queue that it serves, if `start_counting` was called before it started."""
    found = []
    for loop in run_of(consuming).driver.loops:
        held = [*loop.in_flight.deliveries.copy()]
        running = {one.batch for one in held if one.batch is not None and one.batch.running}
        if meter := loop.parts.find(Meter):
            found.append(QueueMeter(loop.context.queue, meter, len(held), len(running)))
    return found


def silent_for(consuming: AnyConsuming) -> float:
    """Return for how many seconds a loop of a consumer has not turned, beyond its tick; none turns if it is held up."""
    driver: ThreadDriver | AsyncDriver = run_of(consuming).driver
    tick = max((loop.context.settings.tick for loop in driver.loops), default=0)
    return monotonic() - driver.health.turned_at - tick / 1000


# What probes say


def dead_loop(consumers: Sequence[AnyConsuming | None], within: float) -> str:
    """Return which loop does not go on, '' if all do; while a worker drains, its loops may wait for callbacks.

    A loop does not go on if it has not turned `within` so many seconds, beyond its tick.
    """
    for consuming in consumers:
        if consuming is None or not consuming.running or run_of(consuming).driver.stopped:
            continue
        if (seconds := silent_for(consuming)) > within:
            return f"the loop of a consumer has not turned for {seconds:.0f} s"
    return ""


def why_unready(consumers: Sequence[AnyConsuming | None]) -> str:
    """Return why these do not consume all of their queues, '' if they do; None is one that has not started."""
    if not consumers or any(one is None for one in consumers):
        return "starting"
    for consuming in consumers:
        if consuming is None or not consuming.running or run_of(consuming).driver.stopped:
            return "draining"
        if not consuming.healthy:
            return "Redis does not answer a consumer, or refuses its calls"
    return ""
