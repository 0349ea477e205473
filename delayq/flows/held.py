"""What a consumer holds: how much more it may take, and whose leases are to be renewed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from delayq.answers import Claimed
from delayq.calls import Calls
from delayq.config import MOST_PREFETCH, Settings
from delayq.message import Holding, named
from delayq.script import MOST_IDS
from delayq.verdict import Completion

log = logging.getLogger("delayq.consumer")

PREFETCHED_FOR = 0.1
"""Seconds of work that are prefetched by default: enough to keep the workers fed, little enough to hoard nothing."""


class Held:
    """The deliveries of one consumer from claim to settlement, in the order of their claims."""

    def __init__(self, calls: Calls, settings: Settings, batch: int) -> None:
        """Hold nothing yet; a callback takes up to `batch` messages at a time."""
        self.holdings: dict[Holding, None] = {}
        self.overdue: set[Holding] = set()
        """Those whose callbacks have taken too long, until these end after all."""
        self.given_up = 0
        """How many such callbacks there have been: so many workers have been, or are to be, replaced."""
        self.heartbeat_at = 0.0
        self._calls = calls
        self._settings = settings
        self._batch = batch
        self._lease = settings.lease / 1000
        self._took: float | None = None

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self.holdings)

    def hold(self, claimed: Claimed, now: float) -> list[Holding]:
        """Take in what a claim brought at a local time."""
        if not self.holdings:
            self.heartbeat_at = now + self._lease / 3
        server_now, deadline = claimed.now, now + self._lease
        fresh = [Holding(delivery, now, server_now, deadline) for delivery in claimed.deliveries]
        self.holdings |= dict.fromkeys(fresh)
        return fresh

    def drop(self, holdings: Sequence[Holding]) -> None:
        """Hold these no longer."""
        for holding in holdings:
            self.holdings.pop(holding, None)
        if self.overdue:
            self.overdue.difference_update(holdings)

    def measure(self, completions: Iterable[Completion]) -> None:
        """Learn how long a callback takes, for the prefetch."""
        known = self._took
        for *_, took in completions:
            if took is not None:
                known = took if known is None else 0.9 * known + 0.1 * took
        self._took = known

    def room(self) -> int:
        """Return how many more messages may be held."""
        settings = self._settings
        if settings.prefetch is not None:
            prefetch = settings.prefetch
        elif self._took is None:
            prefetch = 1
        else:
            fitting = PREFETCHED_FOR * settings.concurrency * self._batch / max(self._took, 1e-6)
            prefetch = max(1, min(MOST_PREFETCH, int(fitting)))
        most = settings.concurrency * self._batch + prefetch
        if settings.fetch_limit is not None:
            most = min(most, settings.fetch_limit)
        return most - len(self.holdings) + len(self.overdue)

    def heartbeat(self, now: float) -> Iterator[tuple[Any, Callable[[str], None]]]:
        """Every third of a lease, yield the calls that renew the leases, each with the reader of its answer."""
        if now < self.heartbeat_at or not self.holdings:
            return
        self.heartbeat_at = now + self._lease / 3
        longest = self._settings.max_consume_duration / 1000
        for batch in dict.fromkeys(holding.batch for holding in self.holdings):
            if batch is not None and now - batch.started > longest and batch.conclude():
                late = [holding for holding in self.holdings if holding.batch is batch]
                self.overdue.update(late)
                self.given_up += 1
                name, marks = named(late)
                log.warning("%s has been processed for more than %g s", name, longest, extra=marks)
        alive = [holding for holding in self.holdings if not holding.settled and holding not in self.overdue]
        for first in range(0, len(alive), MOST_IDS):
            slice_ = alive[first : first + MOST_IDS]
            call = self._calls.extend([holding.receipt for holding in slice_], lease=self._settings.lease)
            yield call, partial(self._extended, slice_, now + self._lease)

    def _extended(self, holdings: list[Holding], deadline: float, answer: str) -> None:
        for holding, digit in zip(holdings, answer, strict=True):
            if digit == "1":
                holding.deadline = deadline
            elif not holding.settled and not holding.lost:
                holding.lost = True
                log.warning("lease lost: %s", holding.delivery.id, extra={"id": holding.delivery.id})
