"""How a driver starts its workers, goes on with fewer where there is no room for more, and ends when one dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from delayq.errors import ConsumerFailedError
from delayq.values.times import Duration
from delayq.worker.delivery.disposition import describe
from delayq.worker.drivers.callback_context import StartContext
from delayq.worker.drivers.health import Health, OnHealthChange
from delayq.worker.drivers.own_threads import OwnThreads


class WorkerStarts:
    """The part of all drivers that concerns their own threads and tasks."""

    name: str
    stop: Callable[[Duration | None], None]

    def _prepare_starts(self, on_health_change: OnHealthChange | None) -> None:
        self.health = Health(on_health_change)
        self._own_threads = OwnThreads(self._on_death, self.health.report_room)
        self._contexts = StartContext()
        self._death: ConsumerFailedError | None = None
        """What has ended one of its threads or tasks, and so ends the consumer."""
        self._started = self._wanted = 0
        """Workers ever started, and how many were needed."""
        self._missing = 0
        """Workers of the full number for which there is no room."""

    def _on_death(self, name: str, error: BaseException) -> None:
        """End the consumer because one of its threads or tasks has died, which is logged."""
        if self._death is None:
            self._death = ConsumerFailedError(f"{name} has died: {describe(error)}")
            self._death.__cause__ = error
            self.health.fail(self._death)
            self.stop(None)

    def _raise_death(self) -> None:
        if self._death is not None:
            raise self._death

    def _start_workers(self, wanted: int = 0) -> None:
        """Start workers until there are so many; without room for one more, claim for those there are."""
        self._wanted = max(self._wanted, wanted)
        while self._started < self._wanted and self._start_worker(f"{self.name}-{self._started + 1}"):
            self._started += 1
        if self._missing or self._started < self._wanted:
            self._note_missing(self._started if self._started < self._wanted else None)

    def _fill_up(self) -> None:
        """Try again to start the workers for which there was no room."""
        if self._missing:
            self._start_workers()

    def _note_missing(self, started: int | None) -> None:
        """Claim for so many workers; None for the full number."""
        full, holder = self._full_number()
        self._missing = holder.missing = 0 if started is None else max(0, full - started)

    def _start_worker(self, name: str) -> bool:
        """Start a worker; returns False if there is no room for it."""
        raise NotImplementedError

    def _full_number(self) -> tuple[int, HasMissing]:
        """Return how many workers may be needed, and who is to know how many of them are missing."""
        raise NotImplementedError


class HasMissing(Protocol):
    """What decides how much to claim."""

    missing: int
