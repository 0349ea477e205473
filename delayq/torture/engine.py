"""What an engine is to the torture: what it is judged by, and what the processes of a run ask of it."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, Self

from delayq.executor import Executor
from delayq.torture.history import Final, Recorder
from delayq.torture.process import Task
from delayq.torture.workload import Deed


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What the conductor has seen of a queue at one moment."""

    counts: Mapping[str, int]
    """Messages by state."""
    living: int
    """Messages that are still to be processed."""
    changes: int
    """Differs when something has happened since the last look."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """Messages ever sent, delivered and acked, where that is counted."""

    @classmethod
    def counted(cls, counts: Mapping[str, int], living: int) -> Self:
        """Return what was seen of a queue without totals: one that is empty waits for what is sent, and so goes on."""
        changes = hash(tuple(counts.values())) if living else time.monotonic_ns()
        return cls(counts=counts, living=living, changes=changes)


class Sender(Protocol):
    """What a producer sends with."""

    def attempt(self, deed: Deed, dues: list[int]) -> bool:
        """Do a deed, for due times of the server's (ms); False if that raised and is to be done again."""


class Inspector(Protocol):
    """What looks into a queue while others are at work on it."""

    def look(self, chance: random.Random) -> None:
        """Read whatever can be read; a `WrongCountError` if that cannot be."""


class WrongCountError(AssertionError):
    """What was read cannot be."""


class View(Protocol):
    """The conductor's view of a queue, over connections that no fault of the network touches."""

    def look(self) -> Looked | None:
        """Look; None if there is no answer at once."""

    def scan(self, *, own: bool) -> Final:
        """Read all that is held, while nobody is at work; on a server of our `own` all of its keys are looked at."""

    def remove(self) -> None:
        """Remove the queue."""


class Engine(Protocol):
    """A kind of queue."""

    does: frozenset[str]
    """The deeds of producers that it knows."""

    def sender(self, task: Task, recorder: Recorder) -> AbstractContextManager[Sender]:
        """Open the queue for a producer."""

    def inspector(self, task: Task, recorder: Recorder) -> AbstractContextManager[Inspector]:
        """Open the queue for an inspector."""

    def work(self, task: Task, recorder: Recorder) -> None:
        """Be a worker with threads until asked to end."""

    async def work_async(self, task: Task, recorder: Recorder) -> None:
        """Be a worker with tasks until asked to end."""

    def view(self, task: Task, direct: Executor) -> AbstractContextManager[View]:
        """Open the queue for the conductor; a scan goes over `direct`, which is more patient than a look."""
