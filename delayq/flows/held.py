"""What a consumer holds: how much more it may take, and whose leases are to be renewed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delayq.answers import Claimed
from delayq.calls import Calls, Receipt
from delayq.config import MOST_PREFETCH, Settings
from delayq.message import Holding
from delayq.script import MOST_IDS

log = logging.getLogger("delayq.consumer")

PREFETCHED_FOR = 0.1
"""Seconds of work that are prefetched by default: enough to keep the workers fed, little enough to hoard nothing."""


class Held:
    """The deliveries of one consumer from claim to settlement, by receipt."""

    def __init__(self, calls: Calls, settings: Settings) -> None:
        """Hold nothing yet."""
        self.holdings: dict[Receipt, Holding] = {}
        self.overdue: set[Receipt] = set()
        """Those whose callbacks have taken too long, until these end after all."""
        self.given_up = 0
        """How many there have been: so many workers have been, or are to be, replaced."""
        self.heartbeat_at = 0.0
        self._calls = calls
        self._settings = settings
        self._lease = settings.lease / 1000
        self._took: float | None = None

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self.holdings)

    def hold(self, claimed: Claimed, now: float) -> list[Holding]:
        """Take in what a claim brought at a local time."""
        if not self.holdings:
            self.heartbeat_at = now + self._lease / 3
        fresh = [
            Holding(delivery, claimed=now, server_now=claimed.now, deadline=now + self._lease)
            for delivery in claimed.deliveries
        ]
        for holding in fresh:
            self.holdings[holding.receipt] = holding
        return fresh

    def drop(self, receipt: Receipt) -> None:
        """Hold a delivery no longer."""
        self.holdings.pop(receipt, None)
        self.overdue.discard(receipt)

    def measure(self, took: float) -> None:
        """Learn how long callbacks take, for the prefetch."""
        self._took = took if self._took is None else 0.9 * self._took + 0.1 * took

    def room(self) -> int:
        """Return how many more messages may be held."""
        settings = self._settings
        if settings.prefetch is not None:
            prefetch = settings.prefetch
        elif self._took is None:
            prefetch = 1
        else:
            fitting = PREFETCHED_FOR * settings.concurrency / max(self._took, 1e-6)
            prefetch = max(1, min(MOST_PREFETCH, int(fitting)))
        most = settings.concurrency + prefetch
        if settings.fetch_limit is not None:
            most = min(most, settings.fetch_limit)
        return most - len(self.holdings) + len(self.overdue)

    def heartbeat(self, now: float) -> Iterator[tuple[Any, Callable[[str], None]]]:
        """Every third of a lease, yield the calls that renew the leases, each with the reader of its answer."""
        if now < self.heartbeat_at or not self.holdings:
            return
        self.heartbeat_at = now + self._lease / 3
        longest = self._settings.max_consume_duration / 1000
        for receipt, holding in self.holdings.items():
            if holding.started is not None and now - holding.started > longest and holding.conclude():
                self.overdue.add(receipt)
                self.given_up += 1
                log.warning(
                    "message %s has been processed for more than %g s", receipt.id, longest, extra={"id": receipt.id}
                )
        alive = [
            holding for receipt, holding in self.holdings.items() if not holding.settled and receipt not in self.overdue
        ]
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
