"""The settlements of a consumer or a lease that Redis has not confirmed yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from delayq.broker.attributes import snoozed
from delayq.broker.engine import EngineCalls
from delayq.broker.requests import Failure, Rejection, Release
from delayq.broker.scripts import MAX_IDS, MAX_MOVED
from delayq.options import Settings, nack_wait
from delayq.worker.disposition import Completion, Disposition
from delayq.worker.message import InFlightDelivery, truncate

log = logging.getLogger("delayq.consumer")

_ACK = Disposition.ACK
"""The most frequent one; looking up or hashing an enumeration member is slow before Python 3.12."""


class PendingSettlements:
    """Settlements to send, grouped by disposition, in batches of at most a thousand."""

    def __init__(self, calls: EngineCalls, settings: Settings) -> None:
        """Start empty."""
        self._settings = settings
        self._queues: dict[Disposition, list[InFlightDelivery]] = {
            disposition: [] for disposition in Disposition if disposition is not Disposition.NOTHING
        }
        self._acked = self._queues[_ACK]
        self._count = 0
        self._details: dict[InFlightDelivery, Failure | Rejection | Release] = {}
        """What all but an ack sends besides the receipt."""
        self._calls: dict[Disposition, Callable[[list[Any]], Any]] = {
            Disposition.ACK: calls.ack,
            Disposition.DISCARD: calls.discard,
            Disposition.NACK: calls.nack,
            Disposition.REJECT: calls.reject,
            Disposition.RELEASE: calls.release,
            Disposition.SNOOZE: calls.release,
        }

    def __bool__(self) -> bool:
        return self._count > 0

    def __len__(self) -> int:
        return self._count

    @property
    def next(self) -> int:
        """How many settlements the next calls make at least: of large messages, one call may move a single one."""
        if len(self._acked) == self._count:
            return min(self._count, MAX_IDS)
        return sum(min(len(queue), _min_per_call(disposition)) for disposition, queue in self._queues.items())

    def add(self, completions: Iterable[Completion]) -> None:
        """Add settlements; messages settled by hand need none."""
        for deliveries, disposition, text, delay, _ in completions:
            queue = self._acked if disposition is _ACK else self._queues.get(disposition)
            for delivery in deliveries:
                if delivery.settled or queue is None:
                    continue
                delivery.settled = True
                queue.append(delivery)
                self._count += 1
                if disposition is not _ACK:
                    self._add_details(delivery, disposition, text, delay)

    def _add_details(self, delivery: InFlightDelivery, disposition: Disposition, text: str, delay: int | None) -> None:
        if disposition is Disposition.NACK:
            policy = delivery.policy or self._settings.policy
            wait = policy.backoff.delay(delivery.claimed.attempt) if delay is None else delay
            self._details[delivery] = Failure(*delivery.receipt, nack_wait(wait / 1000), truncate(text))
        elif disposition is Disposition.REJECT:
            self._details[delivery] = Rejection(*delivery.receipt, truncate(text), "")
        elif disposition in (Disposition.RELEASE, Disposition.SNOOZE):
            attributes = snoozed(delivery.claimed.attributes) if disposition is Disposition.SNOOZE else b""
            wait = 0 if delay is None else nack_wait(delay / 1000)
            self._details[delivery] = Release(*delivery.receipt, wait, attributes)

    def settle(self) -> Iterator[tuple[Any, Callable[[str], None]]]:
        """Yield the calls that settle what is pending, each with the function for its reply."""
        for disposition, queue in self._queues.items():
            if queue:
                first = queue[: _max_per_call(disposition)]
                items = [self._details.get(one, one.receipt) for one in first]
                yield self._calls[disposition](items), partial(self._on_reply, disposition)

    def _on_reply(self, disposition: Disposition, reply: str) -> None:
        queue = self._queues[disposition]
        settled = queue[: len(reply)]
        del queue[: len(reply)]
        self._count -= len(settled)
        if self._details:
            for delivery in settled:
                self._details.pop(delivery, None)
        if "0" in reply:
            late = [delivery.claimed.id for delivery, status in zip(settled, reply, strict=True) if status == "0"]
            text = "%d messages were settled elsewhere before this %s: %s"
            log.warning(text, len(late), disposition.name.lower(), ", ".join(late[:5]), extra={"ids": late})


def _min_per_call(disposition: Disposition) -> int:
    return 1 if disposition in (Disposition.NACK, Disposition.REJECT) else _max_per_call(disposition)


def _max_per_call(disposition: Disposition) -> int:
    return MAX_MOVED if disposition in (Disposition.REJECT, Disposition.RELEASE, Disposition.SNOOZE) else MAX_IDS
