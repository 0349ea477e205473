"""Calls of the hooks that are told how attempts have ended, apart from the consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, NamedTuple, get_args

from delayq.safe_log import SafeLog
from delayq.worker.drivers.own_threads import OwnThreads, start_task

log = SafeLog("delayq.consumer")

MAX_WAITING = 10_000
"""How many calls wait at most; the next ones are not made, and this is logged."""
LAST_CALLS = 2.0
"""Seconds that a consumer that ends gives to the calls that wait."""

Ending = Literal["acked", "failed", "dead", "discarded"]
ENDINGS: tuple[Ending, ...] = get_args(Ending)


class Ended(NamedTuple):
    """How an attempt has ended."""

    event: Ending
    queue: str
    id: str
    name: str
    """'' for none."""
    attempt: int
    """From 1."""
    retries_left: int
    """How often the message is delivered again if it goes on failing."""
    error: str
    """The text that is stored of what has failed; '' for none, and if a callback has settled it by hand."""


Function = Callable[[Ended], Any]


class HookCalls:
    """The functions of one consumer: called in a thread, one after the other, coroutine functions in tasks."""

    def __init__(self, functions: Mapping[Ending, Sequence[Function]], queue: str) -> None:
        """Start nothing yet."""
        self.events = functions
        self._queue = queue
        self._waiting: SimpleQueue[tuple[Function, Ended] | None] = SimpleQueue()
        self._threads = OwnThreads()
        self._thread: Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._left_out = 0

    def tell(self, ended: Ended) -> None:
        """Have the functions of the event called."""
        for function in self.events[ended.event]:
            if self._waiting.qsize() + len(self._tasks) >= MAX_WAITING:
                self._leave_out()
            elif iscoroutinefunction(function):
                self._tasks.add(task := start_task(partial(_await, function, ended), f"delayq-{self._queue}-hook"))
                task.add_done_callback(self._tasks.discard)
            else:
                self._waiting.put((function, ended))
                if self._thread is None:
                    self._thread = self._threads.start(self._work, f"delayq-{self._queue}-hooks")

    def finish(self) -> None:
        """Wait a moment for the last calls, and log how many are not made."""
        thread, self._thread = self._thread, None
        left_out, self._left_out = self._left_out, 0
        if thread is not None:
            self._waiting.put(None)
            thread.join(LAST_CALLS)
            if thread.is_alive():
                left_out += self._waiting.qsize()
        if left_out:
            log.error("%d calls of hooks of queue %s were not made", left_out, self._queue)

    def _leave_out(self) -> None:
        if not self._left_out:
            text = "the hooks of queue %s are too slow: %d calls wait, and the next ones are not made"
            log.error(text, self._queue, MAX_WAITING)
        self._left_out += 1

    def _work(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            function, ended = waiting
            try:
                function(ended)
            except BaseException as error:  # noqa: BLE001 - whatever a hook raises is its own affair
                _log_failure(ended, error)


async def _await(function: Function, ended: Ended) -> None:
    try:
        await function(ended)
    except Exception as error:  # noqa: BLE001 - as above
        _log_failure(ended, error)


def _log_failure(ended: Ended, error: BaseException) -> None:
    fields = {"queue": ended.queue, "id": ended.id, "event": ended.event}
    log.error("a hook for %s failed, with message %s", ended.event, ended.id, exc_info=error, extra=fields)
