"""Which messages of one consumer are asked to stop, because somebody cancels them while they run.

Redis counts the calls that ask for this. Each promotion returns the count, and a consumer promotes once per tick. If
the count has changed, it looks which of its messages are meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delayq.broker.batches import batched
from delayq.broker.engine import EngineCalls
from delayq.broker.scripts import MAX_IDS
from delayq.worker.in_flight import InFlight
from delayq.worker.in_flight_delivery import Batch, InFlightDelivery


class StopRequests:
    """What one consumer knows of the requests to stop."""

    def __init__(self, calls: EngineCalls, in_flight: InFlight) -> None:
        """Start with none."""
        self._calls = calls
        self._in_flight = in_flight
        self._count = 0
        """The count of calls that the last look has found or that preceded it."""
        self._told: set[InFlightDelivery] = set()
        """The deliveries in flight whose callbacks know of it."""

    def note(self, count: int) -> None:
        """Note the count of calls that a promotion has returned; 0 if it does not know."""
        if count and count != self._count:
            self._count, self._in_flight.stop_asked = count, True

    @property
    def pending(self) -> bool:
        """Whether to look which messages are asked to stop."""
        return self._in_flight.stop_asked

    def plan(self, on_asked: Callable[[list[Batch]], None]) -> Iterator[tuple[Any, Callable[[list[int]], None]]]:
        """Yield the calls that look; `on_asked` gets the batches whose callbacks are to be interrupted."""
        if not self.pending:
            return
        self._in_flight.stop_asked = False
        deliveries = list(self._in_flight.deliveries)
        self._told.intersection_update(deliveries)
        for part in batched([one for one in deliveries if not one.settled], MAX_IDS):
            call = self._calls.is_stopping([delivery.claimed.id for delivery in part])
            yield call, partial(self._on_reply, part, on_asked)

    def _on_reply(
        self, deliveries: list[InFlightDelivery], on_asked: Callable[[list[Batch]], None], tokens: list[int]
    ) -> None:
        asked = [one for one, token in zip(deliveries, tokens, strict=True) if token == one.claimed.token]
        new = [one for one in asked if one not in self._told]
        self._told.update(new)
        for delivery in new:
            delivery.cancel_requested = True
            self._in_flight.recalled |= delivery.batch is None  # which returns it
        batches = dict.fromkeys(one.batch for one in new if one.batch is not None and one.batch.running)
        on_asked([batch for batch in batches if self._is_asked_as_a_whole(batch)])

    def _is_asked_as_a_whole(self, batch: Batch) -> bool:
        return all(one.cancel_requested for one in self._in_flight.deliveries if one.batch is batch)
