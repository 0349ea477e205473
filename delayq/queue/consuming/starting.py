"""Starting, stopping, and running to the end: the same for queues and for workers of many queues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Generic, TypeVar, Unpack

from delayq._parity import mirrors
from delayq.errors import ConfigurationError
from delayq.queue.consuming.consumer import (
    AsyncConsuming,
    ConsumeOptions,
    Consuming,
    TaskRun,
    ThreadRun,
    check_consume_options,
    check_grace,
    run_of,
)
from delayq.queue.consuming.loaded import load_all
from delayq.queue.consuming.stop_signals import StopSignals
from delayq.values.times import Duration
from delayq.worker.drivers.async_driver import AsyncDriver
from delayq.worker.drivers.drivers import ThreadDriver

C = TypeVar("C", Consuming, AsyncConsuming)
D = TypeVar("D", ThreadDriver, AsyncDriver)

_preparing = threading.RLock()  # a signal handler may start another consumer

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


def _check_refusal() -> None:
    if _refusal:
        raise ConfigurationError(_refusal)


class _Starts(Generic[C]):
    """What can start a consumer, and knows the last one."""

    _consuming: C | None = None

    def _check_consuming(self, options: ConsumeOptions) -> None:
        """Raise an error for wrong options of a run, or if there is no callback."""
        raise NotImplementedError

    def _make_driver(self, kind: type[D], options: ConsumeOptions) -> D:
        """Return the driver of a run."""
        raise NotImplementedError

    def _all_queues(self) -> Sequence[Any]:
        """Return the queue objects that it consumes."""
        raise NotImplementedError

    def lifespan(
        self, *, consume: bool = True, required: bool = True, **options: Unpack[ConsumeOptions]
    ) -> Callable[[object], AbstractAsyncContextManager[None]]:
        """Return the lifespan of an ASGI application, as in `FastAPI(lifespan=queue.lifespan())`.

        As the application starts, it opens what is consumed and begins to consume, in this process; with
        `consume=False` the application only sends. As it ends, it drains as `stop_consume` does, for up to `grace`, and
        closes the queues. Without Redis the start raises `UnavailableError` after `connect_timeout`. With
        `required=False` it tries for `connect_timeout`, then 1 s by default, lets the application start, and goes on
        trying. Takes the options of `start_consume` without `burst`. For asyncio and threads alike.
        """
        around = self._serving(options, consume=consume, required=required)
        return lambda _: around()

    def consuming(
        self, *, required: bool = True, **options: Unpack[ConsumeOptions]
    ) -> AbstractAsyncContextManager[None]:
        """Return a context manager for `async with` that consumes while it is entered; see `lifespan`.

        It composes with others: use it in a lifespan of your own.
        """
        return self._serving(options, consume=True, required=required)()

    def _serving(
        self, options: ConsumeOptions, *, consume: bool, required: bool
    ) -> Callable[[], AbstractAsyncContextManager[None]]:
        from delayq.asgi.application import serving  # only for web applications

        check_consume_options(options)
        return serving(self, self._all_queues, options, consume=consume, required=required)

    def _running(self, options: ConsumeOptions) -> C | None:
        """Return the consumer that is running, if there is one; raise `ConfigurationError` for a burst beside it."""
        if self._consuming is None or not self._consuming.running:
            return None
        if options.get("burst"):
            raise ConfigurationError(f"{self!r} is running already: stop it before a burst")
        return self._consuming


class Starts(_Starts[Consuming]):
    """What consumes in threads: a queue or a worker."""

    def _open_to_consume(self, connect_timeout: Duration | None) -> None:
        """Open what it consumes, and store the schedules that the program declares."""
        raise NotImplementedError

    def start_consume(self, **options: Unpack[ConsumeOptions]) -> Consuming:
        """Start to consume in the background; returns the running consumer if there is one already.

        The options apply to this run only and override those of the queue: `burst`, `concurrency`, `grace` and
        `connect_timeout`; see `ConsumeOptions`. A worker has by default the longest `grace` of its queues. A burst
        beside a running consumer is refused. If Redis cannot be reached within `connect_timeout`, this raises
        `UnavailableError`.
        """
        consuming = self._prepare_consuming(options)
        run_of(consuming).start()
        return consuming

    def stop_consume(self, grace: Duration | None = None) -> bool:
        """Stop the consumer and wait for it; returns whether it has ended.

        The consumer claims no more messages and releases those whose callbacks have not started. It waits up to `grace`
        (by default the queue's) for running callbacks; then it cuts them off and nacks their messages. Does nothing if
        no consumer is running. Inside a callback it does not wait.
        """
        check_grace(grace)
        consuming = self._consuming
        if consuming is None or not consuming.running:
            return True
        consuming.stop(grace)
        return consuming.wait()

    def run(self, **options: Unpack[ConsumeOptions]) -> None:
        """Consume until stopped; with `burst=True`, until nothing is due any more, in any queue of a worker.

        A burst waits for messages that come back within a tick, such as nacked ones, and leaves later ones. In the main
        thread, SIGTERM or SIGINT (Ctrl-C) stops like `stop_consume`, and a second one cuts running callbacks off and
        raises `SystemExit` or `KeyboardInterrupt`. A handler that the program has set for a signal stays. Takes the
        same options as `start_consume`.
        """
        _check_refusal()
        consuming = self._prepare_consuming(options)
        run_of(consuming).enter()  # as while it connects, a signal ends the program
        with StopSignals(consuming.stop, run_of(consuming).driver.grace).handled():  # before callbacks can start
            try:
                run_of(consuming).start()
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

    def _prepare_consuming(self, options: ConsumeOptions) -> Consuming:
        """Return the running consumer or a new one, which `stop_consume` finds before it starts."""
        self._check_consuming(options)
        if (running := self._running(options)) is None:
            self._open_to_consume(options.get("connect_timeout"))  # all: a worker could not process what it takes
            load_all()
            with _preparing:
                if (running := self._running(options)) is None:
                    self._consuming = running = Consuming(ThreadRun(self._make_driver(ThreadDriver, options)))
        return running


class AsyncStarts(_Starts[AsyncConsuming]):
    """What consumes in tasks of the event loop: a queue or a worker."""

    def _check_loop(self) -> None:
        """Raise `ConfigurationError` if it belongs to another event loop."""
        raise NotImplementedError

    async def _open_to_consume(self, connect_timeout: Duration | None) -> None:
        raise NotImplementedError

    @mirrors(Starts.start_consume)
    async def start_consume(self, **options: Unpack[ConsumeOptions]) -> AsyncConsuming:
        self._check_loop()  # before a task of this loop begins
        self._check_consuming(options)
        if (running := self._running(options)) is None:
            await self._open_to_consume(options.get("connect_timeout"))
            load_all()
            if (running := self._running(options)) is None:
                self._consuming = running = AsyncConsuming(TaskRun(self._make_driver(AsyncDriver, options)))
                await run_of(running).enter()
        return running

    @mirrors(Starts.stop_consume)
    async def stop_consume(self, grace: Duration | None = None) -> bool:
        check_grace(grace)
        consuming = self._consuming
        if consuming is None or not consuming.running:
            return True
        self._check_loop()
        consuming.stop(grace)
        return await consuming.wait()

    @mirrors(Starts.run)
    async def run(self, **options: Unpack[ConsumeOptions]) -> None:
        _check_refusal()
        consuming = await self.start_consume(**options)
        with StopSignals(consuming.stop, run_of(consuming).driver.grace).handled_by_loop():
            try:
                await consuming.wait()
            finally:  # also if the waiting task is cancelled
                consuming.stop()
                await consuming.wait()
