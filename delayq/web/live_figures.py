"""Figures that are sent to browsers as they change: one reader asks Redis, however many look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

from starlette.concurrency import run_in_threadpool

from delayq.errors import DelayqError
from delayq.safe_log import SafeLog
from delayq.web.queue_source import QueueSource, Snapshot
from delayq.worker.drivers.own_threads import start_task

log = SafeLog("delayq.web")

EVERY = 2.0
"""Seconds between two readings."""
MAX_QUEUES = 50
"""Queues that are read a second: of more, less often."""


@dataclass(slots=True)
class LiveReading:
    """What was read at a time, and the parts of pages that were made of it, which equal viewers share."""

    snapshot: Snapshot | None
    """None if Redis did not answer."""
    parts: dict[Hashable, str] = field(default_factory=dict)

    def part(self, key: Hashable, make: Callable[[Snapshot], str]) -> str:
        """Return the part of a page that was made with this key, or make it; '' if Redis did not answer."""
        if self.snapshot is None:
            return ""
        if key not in self.parts:
            self.parts[key] = make(self.snapshot)
        return self.parts[key]


class LiveFigures:
    """Reads all queues, or one, every two seconds while anybody watches, and passes each reading on to all who do.

    It starts with the first watcher and ends with the last, so that an app that nobody looks at asks Redis nothing.
    """

    def __init__(self, source: QueueSource, queue: str | None = None) -> None:
        """Read from this source, all queues by default; starts nothing."""
        self._source = source
        self._read_figures = source.snapshot if queue is None else partial(source.read, [queue])
        self.watchers = 0
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._latest: LiveReading | None = None
        self._next: asyncio.Future[None] | None = None
        self._interval = EVERY
        self._changes = 0

    def forget(self) -> None:
        """Show nobody what was read before: an action has changed a queue."""
        self._changes += 1
        self._latest = None

    def snapshot(self) -> Snapshot:
        """Read all queues for a page; while somebody watches, take what was read for them."""
        is_running = self._task is not None and not self._task.done()
        return self._source.snapshot(self._interval if is_running else 0.0)

    async def watch(self) -> AsyncGenerator[LiveReading, None]:
        """Yield the latest reading, then each new one; for one event loop."""
        self.watchers += 1
        try:
            self._start()
            seen = None
            while True:
                if self._latest is not None and self._latest is not seen:
                    seen = self._latest
                    yield seen
                elif self._next is not None:
                    await asyncio.shield(self._next)
        finally:
            self.watchers -= 1

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is loop and self._task is not None and not self._task.done():
            return
        self._loop, self._latest, self._next = loop, None, loop.create_future()
        self._task = start_task(self._read, "delayq-web-figures")

    async def _read(self) -> None:
        while self.watchers:
            changes = self._changes
            try:
                snapshot = await run_in_threadpool(self._read_figures)
                self._interval = max(EVERY, len(snapshot.queues) / MAX_QUEUES)
                self._latest = LiveReading(snapshot)
            except DelayqError:
                self._latest = LiveReading(None)
            except Exception:  # else those who watch would wait for ever
                log.exception("the figures cannot be read")
                self._latest = LiveReading(None)
            if changes != self._changes:  # an action came meanwhile
                self._latest = None
                continue
            told, self._next = self._next, asyncio.get_running_loop().create_future()
            if told is not None and not told.done():
                told.set_result(None)
            await asyncio.sleep(self._interval)


class LiveQueues:
    """The figures of all queues, and of each that somebody watches alone: these do not wait for all others."""

    def __init__(self, source: QueueSource) -> None:
        """Read from this source; starts nothing."""
        self.all = LiveFigures(source)
        self._source = source
        self._watched: dict[str, LiveFigures] = {}

    def of(self, queue: str) -> LiveFigures:
        """Return the figures of one queue, which all who watch it share."""
        self._watched = {name: figures for name, figures in self._watched.items() if figures.watchers or name == queue}
        return self._watched.setdefault(queue, LiveFigures(self._source, queue))

    def forget(self) -> None:
        """Show nobody what was read before: an action has changed a queue."""
        for figures in (self.all, *self._watched.values()):
            figures.forget()
