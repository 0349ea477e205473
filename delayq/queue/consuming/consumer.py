"""Consumers that run in the background, in threads or in asyncio tasks, and the handles that users get."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypedDict

from delayq._parity import mirrors
from delayq.broker.context import EngineContext
from delayq.errors import ConfigurationError, ConsumerFailedError, DelayqError, StoppedByCallbackError, short_repr
from delayq.queue.consuming.loaded import load_all
from delayq.queue.consuming.stop_signals import StopSignals
from delayq.safe_log import SafeLog
from delayq.values.checks import check_bool, check_concurrency, check_options
from delayq.values.times import Duration, monotonic, to_millis
from delayq.worker.delivery.disposition import describe
from delayq.worker.drivers.async_driver import AsyncDriver
from delayq.worker.drivers.drivers import EXIT_WITHIN, ThreadDriver
from delayq.worker.drivers.health import OnHealthChange
from delayq.worker.drivers.own_threads import start_needed, start_task
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
    """Raise `ConfigurationError` for a wrong option of one run; those that settings have are checked with them."""
    check_options(options, ConsumeOptions.__annotations__)
    check_bool(options.get("burst", False), "burst")
    if (hook := options.get("on_health_change")) is not None and not callable(hook):
        raise ConfigurationError(f"on_health_change must be a function, not {short_repr(hook)}")
    if inspect.iscoroutinefunction(hook):
        raise ConfigurationError("on_health_change must not be a coroutine function: nothing would await it")


def context_of_run(context: EngineContext, options: ConsumeOptions) -> EngineContext:
    """Return the queue's context with the options of one run; raises `ConfigurationError` for a wrong one."""
    check_consume_options(options)
    settings = context.settings
    if (concurrency := options.get("concurrency")) is not None:
        settings = replace(settings, concurrency=check_concurrency(concurrency))
    if (grace := options.get("grace")) is not None:
        settings = replace(settings, grace=to_millis(grace, "grace"))
    return context if settings is context.settings else context.with_settings(settings)


def driver_options(options: ConsumeOptions) -> dict[str, Any]:
    """Return the options of one run that its driver takes."""
    return {"burst": options.get("burst", False), "on_health_change": options.get("on_health_change")}


def check_grace(grace: Duration | None) -> None:
    """Raise `ConfigurationError` if `grace` is not a duration."""
    if grace is not None:
        to_millis(grace, "grace")


_running: set[Consuming] = set()
"""The consumers that run in threads of this process."""


def _stop_at_exit() -> None:
    """Stop all consumers without grace because the process exits: what they have not started is released."""
    running = [consuming for consuming in list(_running) if consuming.running]  # none in a forked child
    for consuming in running:
        consuming._driver.stop_at_exit()  # noqa: SLF001
    end = monotonic() + EXIT_WITHIN
    for consuming in running:
        consuming._wait_until(end)  # noqa: SLF001


def check_burst(options: ConsumeOptions, *, running: bool) -> None:
    """Raise `ConfigurationError` for a burst while a consumer is running, which would not return."""
    if running and options.get("burst"):
        raise ConfigurationError("a consumer of this queue is running already: stop it before a burst")


class Consuming:
    """A consumer that runs in the background, as returned by `start_consume`."""

    def __init__(self, driver: ThreadDriver) -> None:
        """Prepare to consume in a thread, which `_start` starts."""
        load_all()
        self._driver = driver
        self._starting = threading.RLock()
        self._started = False
        self._starter: int | None = threading.get_ident()
        """The thread that is to start the consumer, until it has."""
        self._begun = False
        self._pid = os.getpid()
        self._ended = False
        self._alive = threading.Lock()
        """Held until the consumer has ended."""
        self._alive.acquire()
        self._error: Exception | None = None

    @property
    def running(self) -> bool:
        """Whether the consumer is running in this process."""
        return not self._ended and self._pid == os.getpid()

    @property
    def healthy(self) -> bool:
        """Whether the consumer is running with all the threads that it needs, and Redis answers and refuses no calls.

        An unhealthy consumer retries until it is healthy again or is stopped.
        """
        return self.running and self._driver.health.error is None

    def stop(self, grace: Duration | None = None) -> None:
        """Request a stop and return at once; see `DelayQueue.stop_consume`."""
        self._driver.stop(grace)

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until the consumer has ended, at most for `timeout`; returns whether it has ended.

        Inside one of its own callbacks it returns False at once, and so it does in a signal handler that interrupts the
        start of this consumer. If an error ended the consumer, raises that error.
        """
        seconds = None if timeout is None else to_millis(timeout, "timeout") / 1000
        if self._driver.is_worker(threading.current_thread()) or self._is_starting():
            return False
        self._wait_until(None if seconds is None else monotonic() + seconds)
        if self._error is not None:
            raise self._error
        return self._ended

    def _is_starting(self) -> bool:
        return self._starter == threading.get_ident() and not self._begun

    def _wait_until(self, end: float | None) -> None:
        # A signal handler may wait while the same thread waits already. An Event could deadlock: its lock may be taken.
        while not self._ended and (end is None or monotonic() < end):
            if self._alive.acquire(timeout=_slice(end)):
                self._alive.release()

    def _start(self) -> None:
        """Start the thread unless it was started. A Ctrl-C meanwhile may come when callbacks are running already."""
        with self._starting:
            if not self._started:
                self._started = True
                _running.add(self)
                atexit.unregister(_stop_at_exit)
                atexit.register(_stop_at_exit)  # anew: before what the program has registered meanwhile
                try:
                    start_needed(self._run, self._driver.name)
                except DelayqError:
                    self._end()
                    raise
                finally:
                    self._starter = None

    def _run(self) -> None:
        self._begun = True
        try:
            self._driver.run()
        except (StoppedByCallbackError, ConsumerFailedError) as error:  # the driver has logged it
            self._error = error
        except BaseException as error:
            log.exception("the consumer ended")
            died = ConsumerFailedError(f"{self._driver.name} has died: {describe(error)}")
            died.__cause__ = error
            self._error = error if isinstance(error, Exception) else died
        finally:
            self._end()

    def _end(self) -> None:
        self._ended = True
        _running.discard(self)
        self._alive.release()


def _slice(end: float | None) -> float:
    return SIGNALS_WITHIN if end is None else max(0.0, min(SIGNALS_WITHIN, end - monotonic()))


class AsyncConsuming:
    """A consumer that runs in tasks of the event loop; see `Consuming`."""

    def __init__(self, driver: AsyncDriver) -> None:
        """Start consuming in a task."""
        load_all()
        self._driver = driver
        self._task = start_task(driver.run, driver.name)

    @property
    def running(self) -> bool:
        """Whether the consumer is running."""
        return not self._task.done() and not self._task.get_loop().is_closed()

    @property
    @mirrors(Consuming.healthy)
    def healthy(self) -> bool:
        return self.running and self._driver.health.error is None

    @mirrors(Consuming.stop)
    def stop(self, grace: Duration | None = None) -> None:
        self._driver.stop(grace)

    @mirrors(Consuming.wait)
    async def wait(self, timeout: Duration | None = None) -> bool:  # noqa: ASYNC109 - mirrors the blocking method
        seconds = None if timeout is None else to_millis(timeout, "timeout") / 1000
        if self._driver.is_worker(asyncio.current_task()):
            return False
        ended, _ = await asyncio.wait([self._task], timeout=seconds)
        if ended:
            self._task.result()
        return bool(ended)


def claimed_by(consuming: Consuming | AsyncConsuming) -> int:
    """Return how many messages a consumer has claimed."""
    return consuming._driver.claimed  # noqa: SLF001


def hung_since(consuming: Consuming | AsyncConsuming) -> float:
    """Return the local time since when a callback of a consumer runs that has taken too long; infinite for none."""
    return consuming._driver.hung_since  # noqa: SLF001


def leave_hung(consuming: Consuming | AsyncConsuming) -> None:
    """Let a stop of this consumer not wait for callbacks that have taken too long."""
    consuming._driver.leave_hung()  # noqa: SLF001


class QueueMeter(NamedTuple):
    """What a consumer counts of one queue, and what it holds of it."""

    queue: str
    meter: Meter
    held: int
    """Messages that it has claimed and not completed."""
    running: int
    """Callbacks that run, without those that have taken too long."""


def meters_of(consuming: Consuming | AsyncConsuming) -> list[QueueMeter]:
    """Return what a consumer counts of each queue that it serves, if `start_counting` was called before it started."""
    found = []
    for loop in consuming._driver._loops():  # noqa: SLF001
        held = [*loop.in_flight.deliveries.copy()]
        running = {one.batch for one in held if one.batch is not None and one.batch.running}
        if meter := loop.parts.find(Meter):
            found.append(QueueMeter(loop.context.queue, meter, len(held), len(running)))
    return found


def silent_for(consuming: Consuming | AsyncConsuming) -> float:
    """Return for how many seconds a loop of a consumer has not turned, beyond its tick; none turns if it is held up."""
    driver = consuming._driver  # noqa: SLF001
    tick = max((loop.context.settings.tick for loop in driver._loops()), default=0)  # noqa: SLF001
    return monotonic() - driver.health.turned_at - tick / 1000


def was_stopped(consuming: Consuming | AsyncConsuming) -> bool:
    """Return whether a stop of this consumer was requested."""
    return consuming._driver.stopped  # noqa: SLF001


_refusal = ""
"""Why nothing may run to its end now; '' if it may."""


@contextmanager
def refusing_to_run(why: str) -> Iterator[None]:
    """Let `run` of queues and workers raise `ConfigurationError` for a while: their module is being imported."""
    global _refusal  # noqa: PLW0603 - of the process, whose main thread imports
    _refusal = why
    try:
        yield
    finally:
        _refusal = ""


def run_to_end(consuming: Consuming) -> None:
    """Start a consumer and wait for it; the first signal lets running callbacks finish, the second cuts them off.

    So does an exception of a handler of the program itself; it is raised at the end unless it is a `KeyboardInterrupt`.
    """
    if _refusal:
        raise ConfigurationError(_refusal)
    with StopSignals(consuming.stop, consuming._driver.grace).handled():  # noqa: SLF001 - before callbacks can start
        try:
            consuming._start()  # noqa: SLF001
            consuming.wait()
        except BaseException as error:
            try:
                if consuming.running:
                    consuming.stop()
                    consuming.wait()
            except BaseException:
                consuming.stop(0)
                consuming.wait()
                raise
            if not isinstance(error, KeyboardInterrupt):
                raise


async def run_to_end_async(consuming: AsyncConsuming) -> None:
    """Wait for a consumer; stop it at a signal, or if the waiting task is cancelled."""
    if _refusal:
        consuming.stop()
        raise ConfigurationError(_refusal)
    with StopSignals(consuming.stop, consuming._driver.grace).handled_by_loop():  # noqa: SLF001
        try:
            await consuming.wait()
        finally:
            consuming.stop()
            await consuming.wait()
