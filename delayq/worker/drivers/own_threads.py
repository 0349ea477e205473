"""The threads and tasks of a consumer itself: how they start, where there is room, and who learns that one has died."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from delayq.errors import TooManyThreadsError
from delayq.safe_log import SafeLog
from delayq.values.times import monotonic

log = SafeLog("delayq.consumer")

T = TypeVar("T")

TRY_EVERY = 1.0
"""Seconds between two tries to start a thread while there is no room for one more."""
START_WITHIN = 10.0
"""Seconds in which a thread must start that nothing can go on without."""
_NO_ROOM = (RuntimeError, MemoryError)
"""What `Thread.start` raises if the system gives no thread: a limit of processes or memory is reached, or at exit."""

OnDeath = Callable[[str, BaseException], object]
"""Called with the name of a thread or task that an error has ended, and the error."""


class OwnThreads:
    """Starts threads, and says once that there is no room for one more, and once that there is again."""

    def __init__(
        self, on_death: OnDeath | None = None, on_room: Callable[[Exception | None], object] | None = None
    ) -> None:
        """Call `on_death` in a thread that has died, and `on_room` with an error when there is no room, else None."""
        self._on_death = on_death
        self._on_room = on_room
        self._try_at = 0.0
        self.short = False
        """Whether the last start has failed."""

    def start(self, target: Callable[[], object], name: str) -> threading.Thread | None:
        """Start a daemon thread; None if there is no room, or was none a moment ago."""
        if self.short and monotonic() < self._try_at:
            return None
        thread = threading.Thread(target=self._run, args=(target, name), name=name, daemon=True)
        try:
            thread.start()
        except _NO_ROOM as error:
            self._try_at = monotonic() + TRY_EVERY
            self._note(error)
            return None
        self._note(None)
        return thread

    def sleeping(self, seconds: float) -> float:
        """Return for how long to sleep instead of so many seconds: no longer than until the next try."""
        return min(seconds, TRY_EVERY) if self.short else seconds

    def _note(self, error: BaseException | None) -> None:
        if self.short == (error is not None):
            return
        self.short = error is not None
        if error is None:
            log.warning("there is room for threads again")
        else:
            text = "no room for one more thread (%s): going on with those there are, trying again every %g s"
            log.warning(text, error, TRY_EVERY)
        if self._on_room is not None:
            self._on_room(None if error is None else TooManyThreadsError(f"no room for one more thread: {error}"))

    def _run(self, target: Callable[[], object], name: str) -> None:
        try:
            target()
        except BaseException as error:
            log.exception("thread %s has died", name)
            if self._on_death is not None:
                self._on_death(name, error)


def start_needed(target: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread that nothing can go on without, trying for 10 s; raises `TooManyThreadsError`."""
    threads, end = OwnThreads(), monotonic() + START_WITHIN
    while (thread := threads.start(target, name)) is None:
        if monotonic() >= end:
            raise TooManyThreadsError(f"no room for thread {name}: raise the limit of processes or of memory")
        time.sleep(TRY_EVERY)
    return thread


def start_task(
    function: Callable[[], Coroutine[Any, Any, T]], name: str, on_death: OnDeath | None = None
) -> asyncio.Task[T]:
    """Start a task that calls a coroutine function, once the caller has noted the task: also if it is eager.

    Calls `on_death` if an error ends it; without that, the error is for who awaits the task.
    """

    async def begin() -> T:
        await asyncio.sleep(0)  # with an eager task factory, `create_task` runs until here
        return await function()

    def ended(task: asyncio.Task[T]) -> None:
        if on_death is not None and not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s has died", name, exc_info=error)
            on_death(name, error)

    task = asyncio.get_running_loop().create_task(begin(), name=name)
    task.add_done_callback(ended)
    return task
