"""Serving a queue in this process until it is drained, or a signal says so."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from types import FrameType
from typing import Any, NoReturn

from delayq.cli.failure import Exit
from delayq.cli.target import AnyQueue
from delayq.cli.text import span
from delayq.consumer import AsyncConsuming, Consuming
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.streams import AsyncStreamQueue, StreamQueue

log = logging.getLogger("delayq.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How a queue is to be served; what is None is left as the queue says."""

    concurrency: int | None
    grace: timedelta | None
    burst: bool
    patience: float
    """Seconds that Redis is waited for at the start; later it is waited for as long as it takes."""
    started: Callable[[], None]
    """Called once the queue is being consumed."""
    end: Callable[[], None]
    """Called when it no longer is, also where callbacks were cut off."""


def serve(queue: AnyQueue, service: Service) -> Exit:
    """Consume until a burst is drained, a callback stops the queue, or a signal comes; returns the exit code."""
    # The queue was made by the user's module; who starts it has the last word on how.
    settings = queue.settings
    grace = settings.grace if service.grace is None else round(service.grace / timedelta(milliseconds=1))
    settings = replace(settings, concurrency=service.concurrency or settings.concurrency, grace=grace)
    queue.settings = queue._tools.settings = settings  # noqa: SLF001
    if isinstance(queue, AsyncDelayQueue | AsyncStreamQueue):
        return asyncio.run(_serve_async(queue, service))
    return _serve_blocking(queue, service)


def _serve_blocking(queue: DelayQueue[Any] | StreamQueue[Any], service: Service) -> Exit:
    with _signals(queue, service) as stopping:
        with _impatient(queue, service.patience):
            consuming = queue._start(burst=service.burst)  # noqa: SLF001 - `start_consume` knows no burst
        _started(queue, service)
        stopping.begin(consuming, _now)
        consuming.wait()
        code = stopping.end()
    queue.close()
    return code


async def _serve_async(queue: AsyncDelayQueue[Any] | AsyncStreamQueue[Any], service: Service) -> Exit:
    with _signals(queue, service) as stopping:
        with _impatient(queue, service.patience):
            consuming = await queue._start(burst=service.burst)  # noqa: SLF001 - see above
        _started(queue, service)
        stopping.begin(consuming, asyncio.get_running_loop().call_soon_threadsafe)
        await consuming.wait()
        code = stopping.end()
    await queue.close()
    return code


def _started(queue: AnyQueue, service: Service) -> None:
    what = "draining" if service.burst else "consuming"
    log.info("%s %s, %d at a time", what, queue.name, queue.settings.concurrency, extra={"queue": queue.name})
    service.started()


class _Stopping:
    """What signals do: the first drains, the second cuts off, a third ends the process as it is."""

    def __init__(self, queue: AnyQueue, service: Service) -> None:
        self._queue = queue
        self._service = service
        self._grace = queue.settings.grace / 1000
        self._count = 0
        self._since = 0.0
        self._consuming: Consuming | AsyncConsuming | None = None
        self._call: Callable[..., Any] = _now

    def begin(self, consuming: Consuming | AsyncConsuming, call: Callable[..., Any]) -> None:
        """From now on there is something to stop; `call` runs a function where the consumer can be told."""
        self._consuming, self._call = consuming, call
        if self._count:
            call(self._act, self._count)

    def signalled(self, number: int, _: FrameType | None) -> None:
        """Take a signal."""
        self._count += 1
        self._since = self._since or time.monotonic()
        if self._count > 2:  # noqa: PLR2004
            os._exit(Exit.FAILURE)
        self._call(self._say, self._count, signal.Signals(number).name)
        self._call(self._act, self._count)

    def _say(self, count: int, name: str) -> None:
        if count == 1:
            log.info("%s: finishing what runs, for up to %s; once more cuts it off", name, span(self._grace))
        else:
            log.warning("%s: cutting off what runs", name)

    def _act(self, count: int) -> None:
        if self._consuming is not None:
            self._consuming.stop(self._grace if count == 1 else 0)

    def end(self) -> Exit:
        """Say how it ended; does not return if callbacks were cut off, for they may go on for ever."""
        cut_off = self._count > 1 or (self._count == 1 and time.monotonic() - self._since >= self._grace)
        self._service.end()
        if cut_off:
            log.error("stopped %s; what was cut off will be delivered again", self._queue.name)
            _leave(Exit.FAILURE)
        log.info("%s %s", "stopped" if self._count else "finished", self._queue.name)
        return Exit.OK


def _now(function: Callable[..., None], *arguments: Any) -> None:
    function(*arguments)


def _leave(code: Exit) -> NoReturn:
    sys.stdout.flush()
    logging.shutdown()
    os._exit(code)


@contextmanager
def _signals(queue: AnyQueue, service: Service) -> Iterator[_Stopping]:
    stopping = _Stopping(queue, service)
    before = {number: signal.signal(number, stopping.signalled) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _impatient(queue: AnyQueue, patience: float) -> Iterator[None]:
    """Give up soon if Redis is not there at the start: whoever starts a worker wants to know."""
    conversation = queue._executor.conversation  # noqa: SLF001 - as above
    usual, conversation.deadline = conversation.deadline, min(patience, conversation.deadline)
    try:
        yield
    finally:
        conversation.deadline = usual
