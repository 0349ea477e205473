"""Serve queues in this process until they are drained or a signal stops them.

Every queue has a consumer of its own: in threads, or in the event loop of the main thread. A worker serves all of its
queues or none: if a consumer fails for good, the others drain and the worker ends with the error.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from delayq.cli.support.app_loader import AnyQueue
from delayq.cli.support.exit_codes import Exit, to_command_error
from delayq.cli.worker.worker_pool import PooledQueues
from delayq.errors import DelayqError
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.consuming.consumer import (
    SIGNALS_WITHIN,
    AsyncConsuming,
    ConsumeOptions,
    Consuming,
    run_of,
)
from delayq.queue.consuming.stop_signals import CUT_OFF, first_signal_text, handle_signals
from delayq.safe_log import SafeLog
from delayq.streams import AsyncStreamQueue
from delayq.values.times import HORIZON, to_millis
from delayq.worker.drivers.own_threads import OwnThreads, start_task

if TYPE_CHECKING:
    from delayq.cli.worker.service_manager import Watcher

log = SafeLog("delayq.worker")

Notify = Callable[[], None]


class Progress(NamedTuple):
    """What to call as a worker gets on: before the first queue consumes, once all do, and once all have ended."""

    opened: Notify
    started: Notify
    ended: Notify


IsOver = Callable[[int, float], bool]
"""Returns whether the process is to end, for the number of messages that it has claimed, and the seconds for which a
callback has run beyond its timeout: less than none if none has."""
LONGEST = HORIZON // 1000
"""Seconds to wait for callbacks that each have a timeout."""


def serve(
    queues: Sequence[AnyQueue | PooledQueues],
    options: ConsumeOptions,
    progress: Progress,
    *,
    is_over: IsOver = lambda *_: False,
    leaves_hung: bool = False,
    watchers: Sequence[Watcher] = (),
) -> None:
    """Consume until the queues are drained, callbacks stop them, or a signal comes; raise the worst of their errors.

    If callbacks were cut off, which may never end, the process exits. It also ends, as at a signal, once `is_over`
    returns True. With `leaves_hung` no stop waits for callbacks that have run beyond their timeouts: the process exits
    with them. The `watchers` get the consumers.
    """
    run = _WorkerRun(queues, options, progress, is_over)
    run.leaves_hung = leaves_hung
    for watcher in watchers:
        watcher.consumers = run.consumers
    with handle_signals(run.signalled):
        asyncio.run(run.consume())


class _ServedQueue:
    """A queue, its consumer, and how that ended."""

    def __init__(self, queue: AnyQueue | PooledQueues, options: ConsumeOptions) -> None:
        grace = options.get("grace")
        self.queue = queue
        self.name = queue.name
        self.concurrency = options.get("concurrency") or queue.settings.concurrency
        self.grace = (queue.settings.grace if grace is None else to_millis(grace, "grace")) / 1000
        self.consuming: Consuming | AsyncConsuming | None = None
        self.ended = False
        self.cut_off = False
        self.error: Exception | None = None

    @property
    def is_async(self) -> bool:
        if isinstance(self.queue, PooledQueues):
            return self.queue.is_async
        return isinstance(self.queue, AsyncDelayQueue | AsyncStreamQueue)

    @property
    def claimed(self) -> int:
        """How many messages its consumer has claimed."""
        return 0 if self.consuming is None else run_of(self.consuming).driver.claimed

    @property
    def hung_since(self) -> float:
        """Since when a callback runs beyond its timeout; infinite if none does."""
        return math.inf if self.consuming is None else run_of(self.consuming).driver.hung_since

    @property
    def stopped(self) -> bool:
        """Whether its consumer was stopped."""
        return self.consuming is not None and run_of(self.consuming).driver.stopped

    async def open(self, options: ConsumeOptions) -> None:
        opening = self.queue.open(connect_timeout=options.get("connect_timeout"))
        if opening is not None:
            await opening

    async def start(self, options: ConsumeOptions) -> None:
        if isinstance(self.queue, AsyncDelayQueue | AsyncStreamQueue | PooledQueues):
            self.consuming = await self.queue.start_consume(**options)
        else:
            self.consuming = self.queue.start_consume(**options)

    async def wait(self) -> None:
        """Wait until the consumer has ended; raise its error."""
        if isinstance(self.consuming, AsyncConsuming):
            await self.consuming.wait()
        elif self.consuming is not None:
            await _in_thread(self.consuming)

    async def close(self) -> None:
        closing = self.queue.close()
        if closing is not None:
            await closing


async def _in_thread(consuming: Consuming) -> None:
    """Wait for a consumer in a thread of its own: those of the event loop are for callbacks, and may all be taken."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def wait() -> None:
        with suppress(BaseException):  # raised below
            consuming.wait()
        with suppress(RuntimeError):  # the event loop is closed: the worker has ended with an error
            loop.call_soon_threadsafe(ended.set_result, None)

    if OwnThreads().start(wait, "delayq-wait") is not None:
        await ended
    while not consuming.wait(0):  # noqa: ASYNC110 - there was no room for the thread
        await asyncio.sleep(SIGNALS_WITHIN)


class _WorkerRun:
    """Handles signals: the first drains the callbacks of all queues, the second cuts them off, the third exits.

    While the queues are opened, the first ends the worker at once.
    """

    def __init__(
        self,
        queues: Sequence[AnyQueue | PooledQueues],
        options: ConsumeOptions,
        progress: Progress,
        is_over: IsOver,
    ) -> None:
        self._served = [_ServedQueue(queue, options) for queue in queues]
        self._options = options
        self._burst = bool(options.get("burst"))
        self._progress = progress
        self._is_over = is_over
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = True
        self._count = 0
        self._stopped_at: float | None = None
        self.leaves_hung = False
        self._waits_for_others = False
        """Whether it stops because a callback hangs, once the others have ended."""

    def consumers(self) -> list[Consuming | AsyncConsuming | None]:
        return [one.consuming for one in self._served]

    async def consume(self) -> None:
        self._loop = asyncio.get_running_loop()
        for one in self._served:  # before the first consumes: it would take messages that the worker cannot process
            await one.open(self._options)
        self._opening = False
        self._progress.opened()
        more = await self._round(self._served)
        # In a burst, callbacks may have sent messages to a queue that had drained before.
        while more and self._burst and len(self._served) > 1 and self._stopped_at is None:
            more = await self._round([one for one in self._served if not one.stopped])
        self._loop = None  # further signals have nothing to stop
        self._progress.ended()
        errors = sorted((one.error for one in self._served if one.error), key=_exit_code)
        if any(one.cut_off for one in self._served):
            sys.stdout.flush()
            logging.shutdown()
            os._exit(max([Exit.FAILURE, *map(_exit_code, errors)]))
        if errors:
            raise errors[-1]
        for one in self._served:
            if self._burst and self._stopped_at is None:
                log.info("finished %s", one.name)
            await one.close()
        if self.leaves_hung and any(one.hung_since < math.inf for one in self._served):
            log.warning("callbacks that hang end with this process")
            sys.stdout.flush()
            logging.shutdown()
            os._exit(Exit.OK)  # they may never end, and their threads keep others from it
        for (
            thread
        ) in threading.enumerate():  # one that is about to end keeps the program's globals, and their open files
            if thread.daemon and thread is not threading.current_thread():
                thread.join(0.1)

    def signalled(self, number: int, _: FrameType | None) -> None:
        if self._opening:  # nothing has begun, and the event loop may be blocked
            os._exit(Exit.OK)  # an exception could be raised in any code, and be ignored there, as in a `__del__`
        self._count += 1
        if self._count > CUT_OFF:
            os._exit(Exit.FAILURE)
        if self._waits_for_others:  # for as long as these take; from now on the grace counts
            self._stopped_at, self._waits_for_others = None, False
        self._stopped_at = self._stopped_at or time.monotonic()
        for one in self._served:
            if not one.is_async:  # at once: a callback may keep the event loop busy
                self._stop(one)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._on_signal, self._count, number)

    def _on_signal(self, count: int, number: int) -> None:
        if count < CUT_OFF:
            log.info("%s", first_signal_text(number, max(one.grace for one in self._served)))
        else:
            log.warning("%s: cutting off running callbacks", signal.Signals(number).name)
        self._stop_all()

    def _stop_all(self) -> None:
        self._stopped_at = self._stopped_at or time.monotonic()
        for one in self._served:
            self._stop(one)

    def _stop(self, one: _ServedQueue) -> None:
        if one.consuming is not None:
            grace = LONGEST if self._waits_for_others else one.grace
            one.consuming.stop(grace if self._count < CUT_OFF else 0)

    async def _round(self, served: Sequence[_ServedQueue]) -> bool:
        """Consume these queues until their consumers have ended; return whether there were any messages."""
        # Those in threads start first: their start blocks the event loop.
        ordered = sorted(served, key=lambda one: one.is_async)
        running = {start_task(partial(self._serve, one), one.name) for one in ordered}
        while running:  # in slices, between which handlers of signals run
            _, running = await asyncio.wait(running, timeout=SIGNALS_WITHIN)
            self._stop_if_over()
        return any(one.claimed for one in served)

    def _stop_if_over(self) -> None:
        if self._stopped_at is not None or any(one.consuming is None for one in self._served):
            return
        hung_for = time.monotonic() - min(one.hung_since for one in self._served)
        if self._is_over(sum(one.claimed for one in self._served), hung_for):
            self._waits_for_others = self.leaves_hung and hung_for > 0
            self._stop_all()

    async def _serve(self, one: _ServedQueue) -> None:
        first, one.ended = one.consuming is None, False
        try:
            if self._stopped_at is None:
                await one.start(self._options)
                if self.leaves_hung and one.consuming is not None:
                    run_of(one.consuming).driver.leave_hung()
                if first:
                    self._on_started(one)
            if self._stopped_at is not None:
                self._stop(one)
            await one.wait()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - raised when all have ended
            self._on_failed(one, error)
        one.ended = True
        if one.error is None:
            self._on_ended(one)

    def _on_started(self, one: _ServedQueue) -> None:
        what = "draining" if self._burst else "consuming"
        log.info("%s %s, %d at a time", what, one.name, one.concurrency, extra={"queue": one.name})
        if all(other.consuming is not None for other in self._served):
            self._progress.started()

    def _on_failed(self, one: _ServedQueue, error: BaseException) -> None:
        one.error = error if isinstance(error, Exception) else DelayqError(f"the consumer of {one.name} was cancelled")
        if len(self._served) > 1:
            text = "%s failed: %s; stopping the worker, which serves all of its queues or none"
            log.error(text, one.name, one.error, extra={"queue": one.name})
            self._stop_all()

    def _on_ended(self, one: _ServedQueue) -> None:
        if self._stopped_at is not None:
            over = time.monotonic() - self._stopped_at >= one.grace and not self._waits_for_others
            late = self._count >= CUT_OFF or over
            one.cut_off = late and one.consuming is not None
            if one.cut_off:
                log.error("stopped %s; messages that were cut off will be delivered again", one.name)
            else:
                log.info("stopped %s", one.name)
        elif not self._burst:  # by the program
            others = [other.name for other in self._served if not other.ended]
            log.info("finished %s%s", one.name, f"; still consuming {', '.join(others)}" if others else "")


def _exit_code(error: Exception) -> int:
    return to_command_error(error).code
