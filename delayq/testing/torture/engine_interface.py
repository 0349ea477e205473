"""The interface of an engine under torture: how the processes of a run send to it, work on it and read from it."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from delayq.broker.transport.executor import Executor
from delayq.options import QueueOptions
from delayq.testing.torture.history import LimitRecord, Recorder, ScanRecord
from delayq.testing.torture.process_task import CALL_ERRORS, ProcessTask, tolerate
from delayq.testing.torture.workload import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """A queue as polled at one moment."""

    counts: Mapping[str, int]
    """Messages by state."""
    living: int
    """Messages that are not settled yet."""
    totals: Mapping[str, int] = field(default_factory=dict)
    """Messages ever sent, delivered and acked, for engines that count them."""

    def progress(self) -> int:
        """Return a number that differs from the last poll's if the queue made progress.

        Without totals, an empty queue waits for producers, so it always does.
        """
        if self.totals:
            return sum(self.totals.values())
        return hash(tuple(self.counts.values())) if self.living else time.monotonic_ns()


class WrongCountError(AssertionError):
    """The queue returned a count, page or message that is impossible."""


class Engine(ABC):
    """A kind of queue that can be put under torture. Methods with a `queue` get what `open` has yielded."""

    supported_actions = frozenset({"send"})
    """The producers' actions that it supports."""
    limits: Mapping[str, LimitRecord] = MappingProxyType({})
    """Limits of names that `prepare` sets."""

    @abstractmethod
    def open(
        self, task: ProcessTask, options: QueueOptions, recorder: Recorder | None = None
    ) -> AbstractContextManager[Any]:
        """Open the queue; with a recorder, what it does is recorded."""

    @abstractmethod
    def perform(self, queue: Any, action: Action, dues: list[int]) -> None:
        """Perform an action of a producer, with these due times (server time, ms)."""

    @abstractmethod
    def inspect(self, queue: Any, chance: random.Random) -> None:
        """Read whatever can be read; raise `WrongCountError` if a result is impossible."""

    @abstractmethod
    def work(self, task: ProcessTask, recorder: Recorder) -> None:
        """Process messages in threads until told to stop."""

    @abstractmethod
    async def work_async(self, task: ProcessTask, recorder: Recorder) -> None:
        """Process messages in asyncio tasks until told to stop."""

    @abstractmethod
    def poll(self, queue: Any) -> QueueSnapshot:
        """Return a snapshot of the queue."""

    @abstractmethod
    def scan(self, task: ProcessTask, direct: Executor, *, own: bool) -> ScanRecord:
        """Read everything the queue holds, while nobody works on it; on our `own` server check all keys."""

    @abstractmethod
    def remove(self, task: ProcessTask, direct: Executor) -> None:
        """Delete the queue."""

    def plant(self, task: ProcessTask, direct: Executor) -> None:
        """Write into every key of the queue what no process of ours would, under new ids: see `planted_id`."""
        raise NotImplementedError

    def pause(self, task: ProcessTask, direct: Executor, seconds: float, name: str) -> None:
        """Pause the queue, or a name if there is one, for so many seconds at most; resume it if there are none."""
        raise NotImplementedError

    def trip(self, task: ProcessTask, direct: Executor, recorder: Recorder, seconds: float) -> None:
        """Trip the breaker of the queue, with a pause of so many seconds, and record it."""
        raise NotImplementedError

    def prepare(self, queue: Any) -> None:  # noqa: B027 - optional
        """Set what a round begins with."""

    def repair(self, queue: Any) -> None:  # noqa: B027 - optional
        """Remove what was planted, if the queue can repair itself; otherwise its scan tolerates it."""

    def record_failure(self, queue: Any, error: Exception) -> None:  # noqa: B027 - optional
        """Record that a call raised, if the queue does not do so itself."""

    def attempt(self, do: Callable[..., None], queue: Any, *args: Any) -> bool:
        """Perform or inspect; return False if it raised what a fault explains."""
        try:
            do(queue, *args)
        except CALL_ERRORS as error:
            self.record_failure(queue, error)
            tolerate(error)
            return False
        return True
