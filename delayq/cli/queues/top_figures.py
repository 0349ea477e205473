"""What `delayq top` shows: the figures of queues, read in turn, so that Redis is asked for little."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from delayq.cli.support.session import Session
from delayq.errors import DelayqError, ServerError
from delayq.queue.inspecting.readings import Readings
from delayq.queue.inspecting.workers import PAGE, WorkerInfo

MAX_COUNTED = 8
"""Queues whose messages are counted at a time."""
NAMES_EVERY = 10.0
"""Seconds between two readings of the names of the queues."""


class RunningNow(NamedTuple):
    """A message in a callback."""

    id: str
    worker: str
    """Host and process id."""
    lasts: timedelta


@dataclass(slots=True)
class TopRow(Readings):
    """What was read of a queue."""

    error: str = ""
    """Why it could not be read."""


class TopFigures:
    """The figures of the queues that are shown, and who works on the selected one."""

    def __init__(self, session: Session, read_names: Callable[[], list[str]]) -> None:
        """Read over the connections of a session; nothing is read yet."""
        self._session = session
        self._read_names = read_names
        self._names_due = 0.0
        self._turn = 0
        self.names: list[str] = []
        self.queues: dict[str, TopRow] = {}
        self.workers: list[WorkerInfo] = []
        """Those of the queue that was selected when they were read."""
        self.error = ""
        """Why nothing could be read."""
        self.is_read = False
        """Whether the names have been read."""

    def read(self, choose: Callable[[], tuple[str, Sequence[str]]]) -> int:
        """Read the names if it is time, then the selected queue, and of the visible ones those whose turn it is.

        `choose` returns the selected one and the visible ones of the names; this returns how many commands that took.
        """
        try:
            commands = self._read_names_in_time()
            selected, visible = choose()
            if selected:
                commands += self._read_selected(selected)
            return commands + self._count([name for name in visible if name != selected])
        except DelayqError as error:  # shown until Redis answers again
            self.error = str(error)
            return 1

    def _read_names_in_time(self) -> int:
        if time.monotonic() < self._names_due:
            self.error = ""
            return 0
        self.names, self.error, self.is_read = self._read_names(), "", True
        self._names_due = time.monotonic() + NAMES_EVERY
        self.queues = {name: self.queues.get(name, TopRow()) for name in self.names}
        return 1

    def _read_selected(self, name: str) -> int:
        queue, figures = self._session.queue(name, codec="bytes"), self.queues[name]
        try:
            figures.update(queue.stats())
            figures.error = ""
            self.workers = queue.workers()
        except ServerError as error:
            figures.error, self.workers = str(error), []
        has_objective = figures.stats is not None and figures.stats.slo is not None
        return 3 + has_objective + len(self.workers) // PAGE

    def _count(self, names: Sequence[str]) -> int:
        first = self._turn % len(names) if len(names) > MAX_COUNTED else 0
        some = [*names[first:], *names[:first]][:MAX_COUNTED]
        self._turn = first + len(some)
        for name, found in self._session.stats(some).items():
            if isinstance(found, ServerError):
                self.queues[name].error = str(found)
            else:
                self.queues[name].update(found)
                self.queues[name].error = ""
        return len(some)

    def running(self) -> list[RunningNow]:
        """Return what runs in the callbacks of the selected queue, the longest first, as workers last reported."""
        found = [
            RunningNow(message.id, f"{worker.host}:{worker.pid}", worker.reported + worker.age - message.since)
            for worker in self.workers
            if worker.state != "silent"
            for message in worker.running
        ]
        return sorted(found, key=lambda one: one.lasts, reverse=True)
