"""Serve a queue in this process until it is drained or a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import operator
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from delayq.cli.app_loader import AnyQueue
from delayq.cli.exit_codes import Exit
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.consumer import AsyncConsuming, ConsumeOptions, Consuming
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.stop_signals import handle_signals
from delayq.streams import AsyncStreamQueue, StreamQueue
from delayq.text import format_duration
from delayq.times import to_millis

log = logging.getLogger("delayq.worker")

Notify = Callable[[], None]


def serve(queue: AnyQueue, options: ConsumeOptions, *, started: Notify, ended: Notify) -> None:
    """Consume until the queue is drained, a callback stops it, or a signal comes.

    Calls `started` once the consumer runs, and `ended` once it has ended. If callbacks were cut off, which may never
    end, the process exits.
    """
    run = _WorkerRun(queue, options, started, ended)
    with handle_signals(run.signalled):
        if isinstance(queue, AsyncDelayQueue | AsyncStreamQueue):
            asyncio.run(run.consume_async(queue))
        else:
            run.consume(queue)


class _WorkerRun:
    """Handles signals: the first drains the queue's callbacks, the second cuts them off, the third ends the process."""

    def __init__(self, queue: AnyQueue, options: ConsumeOptions, started: Notify, ended: Notify) -> None:
        self._name = queue.name
        self._concurrency = options.get("concurrency") or queue.settings.concurrency
        grace = options.get("grace")
        self._grace = (queue.settings.grace if grace is None else to_millis(grace, "grace")) / 1000
        self._options = options
        self._started = started
        self._ended = ended
        self._count = 0
        self._since = 0.0
        self._consuming: Consuming | AsyncConsuming | None = None
        self._call: Callable[..., Any] = operator.call

    def consume(self, queue: DelayQueue[Any] | StreamQueue[Any]) -> None:
        consuming = queue.start_consume(**self._options)
        self._begin(consuming, operator.call)
        consuming.wait()
        self._end()
        queue.close()

    async def consume_async(self, queue: AsyncDelayQueue[Any] | AsyncStreamQueue[Any]) -> None:
        consuming = await queue.start_consume(**self._options)
        self._begin(consuming, asyncio.get_running_loop().call_soon_threadsafe)
        await consuming.wait()
        self._end()
        await queue.close()

    def signalled(self, number: int, _: FrameType | None) -> None:
        self._count += 1
        self._since = self._since or time.monotonic()
        if self._count > 2:  # noqa: PLR2004
            os._exit(Exit.FAILURE)
        self._call(self._log, self._count, signal.Signals(number).name)
        self._call(self._stop, self._count)

    def _begin(self, consuming: Consuming | AsyncConsuming, call: Callable[..., Any]) -> None:
        """Stop this consumer when a signal comes; `call` runs a function in the consumer's event loop or thread."""
        what = "draining" if self._options.get("burst") else "consuming"
        log.info("%s %s, %d at a time", what, self._name, self._concurrency, extra={"queue": self._name})
        self._started()
        self._consuming, self._call = consuming, call
        if self._count:
            call(self._stop, self._count)

    def _log(self, count: int, name: str) -> None:
        if count == 1:
            text = "%s: finishing running callbacks for up to %s; another signal cuts them off"
            log.info(text, name, format_duration(self._grace))
        else:
            log.warning("%s: cutting off running callbacks", name)

    def _stop(self, count: int) -> None:
        if self._consuming is not None:
            self._consuming.stop(self._grace if count == 1 else 0)

    def _end(self) -> None:
        cut_off = self._count > 1 or (self._count == 1 and time.monotonic() - self._since >= self._grace)
        self._consuming, self._call = None, operator.call  # further signals have nothing to stop
        self._ended()
        if cut_off:
            log.error("stopped %s; messages that were cut off will be delivered again", self._name)
            sys.stdout.flush()
            logging.shutdown()
            os._exit(Exit.FAILURE)
        log.info("%s %s", "stopped" if self._count else "finished", self._name)
