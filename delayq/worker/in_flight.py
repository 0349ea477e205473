"""What a consumer has in flight: how many more it may claim, which leases to renew, and the settlements to send."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from delayq.broker.batches import batched
from delayq.broker.engine import EngineCalls
from delayq.broker.replies import ClaimReply
from delayq.broker.requests import Failure, Rejection
from delayq.broker.scripts import MAX_IDS, MAX_MOVED
from delayq.options import MAX_PREFETCH, Settings, nack_wait
from delayq.worker.disposition import Completion, Disposition
from delayq.worker.message import InFlightDelivery, log_label, truncate

log = logging.getLogger("delayq.consumer")

PREFETCH_SECONDS = 0.1
"""Seconds of work to prefetch by default: enough to keep the workers busy, too little to hoard messages."""
_ACK = Disposition.ACK
"""The most frequent one; looking up or hashing an enumeration member is slow before Python 3.12."""


class InFlight:
    """The deliveries of one consumer from claim to settlement, in the order of their claims."""

    def __init__(self, calls: EngineCalls, settings: Settings, batch: int) -> None:
        """Start empty; a callback takes up to `batch` messages at a time."""
        self.deliveries: dict[InFlightDelivery, None] = {}
        self.overdue: set[InFlightDelivery] = set()
        """Deliveries whose callbacks have taken too long, until these end after all."""
        self.abandoned = 0
        """How many such callbacks there have been: as many workers need a replacement."""
        self.heartbeat_at = 0.0
        self._calls = calls
        self._settings = settings
        self._batch = batch
        self._lease = settings.lease / 1000
        self._took: float | None = None

    def __bool__(self) -> bool:
        return bool(self.deliveries)

    def add(self, claimed: ClaimReply, now: float) -> list[InFlightDelivery]:
        """Add the messages of a claim made at a local time; returns their deliveries."""
        if not self.deliveries:
            self.heartbeat_at = now + self._lease / 3
        server_now, deadline = claimed.now, now + self._lease
        added = [InFlightDelivery(message, now, server_now, deadline) for message in claimed.messages]
        self.deliveries |= dict.fromkeys(added)
        return added

    def remove(self, deliveries: Sequence[InFlightDelivery]) -> None:
        """Remove settled deliveries."""
        for delivery in deliveries:
            self.deliveries.pop(delivery, None)
        if self.overdue:
            self.overdue.difference_update(deliveries)

    def measure(self, completions: Iterable[Completion]) -> None:
        """Update the average time a callback takes, which sets the prefetch."""
        average = self._took
        for *_, took in completions:
            if took is not None:
                average = took if average is None else 0.9 * average + 0.1 * took
        self._took = average

    def capacity(self) -> int:
        """Return how many more messages may be claimed."""
        settings = self._settings
        if settings.prefetch is not None:
            prefetch = settings.prefetch
        elif self._took is None:
            prefetch = 1
        else:
            fitting = PREFETCH_SECONDS * settings.concurrency * self._batch / max(self._took, 1e-6)
            prefetch = max(1, min(MAX_PREFETCH, int(fitting)))
        limit = settings.concurrency * self._batch + prefetch
        if settings.fetch_limit is not None:
            limit = min(limit, settings.fetch_limit)
        return limit - len(self.deliveries) + len(self.overdue)

    def heartbeat(self, now: float) -> Iterator[tuple[Any, Callable[[str], None]]]:
        """Every third of a lease, yield the calls that renew the leases, each with the function for its reply."""
        if now < self.heartbeat_at or not self.deliveries:
            return
        self.heartbeat_at = now + self._lease / 3
        max_seconds = self._settings.max_consume_duration / 1000
        for batch in dict.fromkeys(delivery.batch for delivery in self.deliveries):
            if batch is not None and now - batch.started > max_seconds and batch.conclude():
                late = [delivery for delivery in self.deliveries if delivery.batch is batch]
                self.overdue.update(late)
                self.abandoned += 1
                name, fields = log_label(late)
                log.warning("%s has been processed for more than %g s", name, max_seconds, extra=fields)
        alive = [delivery for delivery in self.deliveries if not delivery.settled and delivery not in self.overdue]
        for part in batched(alive, MAX_IDS):
            call = self._calls.extend([delivery.receipt for delivery in part], lease=self._settings.lease)
            yield call, partial(self._on_extended, part, now + self._lease)

    def _on_extended(self, deliveries: list[InFlightDelivery], deadline: float, reply: str) -> None:
        for delivery, status in zip(deliveries, reply, strict=True):
            if status == "1":
                delivery.deadline = deadline
            elif not delivery.settled and not delivery.lost:
                delivery.lost = True
                log.warning("lease lost: %s", delivery.claimed.id, extra={"id": delivery.claimed.id})


class PendingSettlements:
    """Settlements to send, grouped by disposition, in batches of at most a thousand."""

    def __init__(
        self, calls: EngineCalls, settings: Settings, on_settled: Callable[[Sequence[InFlightDelivery]], None]
    ) -> None:
        """Start empty; `on_settled` is called with deliveries that are no longer in flight."""
        self._settings = settings
        self._on_settled = on_settled
        self._queues: dict[Disposition, list[InFlightDelivery]] = {
            disposition: [] for disposition in Disposition if disposition is not Disposition.NOTHING
        }
        self._acked = self._queues[_ACK]
        self._details: dict[InFlightDelivery, Failure | Rejection] = {}
        """What a nack or reject sends besides the receipt."""
        self._calls: dict[Disposition, Callable[[list[Any]], Any]] = {
            Disposition.ACK: calls.ack,
            Disposition.DISCARD: calls.discard,
            Disposition.NACK: calls.nack,
            Disposition.REJECT: calls.reject,
            Disposition.RELEASE: calls.release,
        }

    def __bool__(self) -> bool:
        return any(self._queues.values())

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def next(self) -> int:
        """How many settlements the next calls carry."""
        return sum(min(len(queue), _max_per_call(disposition)) for disposition, queue in self._queues.items())

    def add(self, completions: Iterable[Completion]) -> None:
        """Add settlements; messages settled by hand need none."""
        for deliveries, disposition, text, delay, _ in completions:
            queue = self._acked if disposition is _ACK else self._queues.get(disposition)
            for delivery in deliveries:
                if delivery.settled or queue is None:
                    self._on_settled([delivery])
                    continue
                delivery.settled = True
                queue.append(delivery)
                if disposition is not _ACK:
                    self._add_details(delivery, disposition, text, delay)

    def _add_details(self, delivery: InFlightDelivery, disposition: Disposition, text: str, delay: int | None) -> None:
        if disposition is Disposition.NACK:
            wait = self._settings.backoff.delay(delivery.claimed.attempt) if delay is None else delay
            self._details[delivery] = Failure(*delivery.receipt, nack_wait(wait / 1000), truncate(text))
        elif disposition is Disposition.REJECT:
            self._details[delivery] = Rejection(*delivery.receipt, truncate(text), "")

    def settle(self) -> Iterator[tuple[Any, Callable[[str], None]]]:
        """Yield the calls that settle what is pending, each with the function for its reply."""
        for disposition, queue in self._queues.items():
            if queue:
                first = queue[: _max_per_call(disposition)]
                detailed = disposition in (Disposition.NACK, Disposition.REJECT)
                items = [self._details[one] if detailed else one.receipt for one in first]
                yield self._calls[disposition](items), partial(self._on_reply, disposition)

    def _on_reply(self, disposition: Disposition, reply: str) -> None:
        queue = self._queues[disposition]
        settled = queue[: len(reply)]
        del queue[: len(reply)]
        if self._details:
            for delivery in settled:
                self._details.pop(delivery, None)
        self._on_settled(settled)
        if "0" in reply:
            late = [delivery.claimed.id for delivery, status in zip(settled, reply, strict=True) if status == "0"]
            text = "%d messages were settled elsewhere before this %s: %s"
            log.warning(text, len(late), disposition.name.lower(), ", ".join(late[:5]), extra={"ids": late})


def _max_per_call(disposition: Disposition) -> int:
    return MAX_MOVED if disposition in (Disposition.REJECT, Disposition.RELEASE) else MAX_IDS
