"""The settlements of a consumer or a lease that Redis has not confirmed yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

from delayq.broker.attributes import left_unhandled, snoozed
from delayq.broker.engine import EngineCalls, Feature
from delayq.broker.requests import Failure, Rejection, Release
from delayq.broker.results import Completed, Ending, completed
from delayq.broker.scripts import MAX_MOVED, MAX_SETTLED
from delayq.options import Settings, nack_wait
from delayq.safe_log import SafeLog
from delayq.text import pluralize
from delayq.worker.disposition import DONE, Completion, Disposition
from delayq.worker.error_texts import truncate
from delayq.worker.holding import scope_held
from delayq.worker.in_flight import InFlight
from delayq.worker.in_flight_delivery import InFlightDelivery
from delayq.worker.tally import Tally

log = SafeLog("delayq.consumer")

_ACK, _COMPLETE = Disposition.ACK, Disposition.COMPLETE
"""Looking up or hashing an enumeration member is slow before Python 3.12."""
MAX_RESULT_BYTES = 1 << 20
"""Bytes of results that one call stores; a single result may be larger."""
_NOTHING = (Ending.NOTHING, "", b"")
_RELEASES = {
    Disposition.RELEASE: None,
    Disposition.STOP: None,
    Disposition.SNOOZE: snoozed,
    Disposition.LEAVE: left_unhandled,
}
"""What releases a message, and how its attributes count that."""
_UNSTARTED = (Disposition.RELEASE, Disposition.LEAVE)
"""What releases a message whose callback has not started."""


class PendingSettlements:
    """Settlements to send, grouped by disposition, in batches of at most five hundred."""

    def __init__(self, calls: EngineCalls, settings: Settings, in_flight: InFlight | None = None) -> None:
        """Start empty; a lease has nothing `in_flight` that could start."""
        self._settings = settings
        self._in_flight = in_flight
        self.count: Callable[[Sequence[Completion]], None] | None = None
        """Counts what callbacks have ended with, in the thread of a worker and before `add`; None if nobody does."""
        self._queues: dict[Disposition, list[InFlightDelivery]] = {
            disposition: [] for disposition in Disposition if disposition is not Disposition.NOTHING
        }
        self._acked = self._queues[_ACK]
        self._count = 0
        self.cut_short = False
        """Whether a call has made fewer than it was asked for: large successors take several calls."""
        self._hold: Any = calls.hold if calls.capabilities.has(Feature.LIMITS) else None
        self._holds: dict[str | None, int] = {}
        """Names that are to be closed, None for the queue, and for how long (ms)."""
        self._details: dict[InFlightDelivery, Failure | Rejection | Release | Completed] = {}
        """What all but an ack sends besides the receipt."""
        self._late: dict[InFlightDelivery, Completion] = {}
        """Successes of callbacks that took too long: they are settled once Redis has replied to the nack."""
        self._calls: dict[Disposition, Callable[[list[Any]], Any]] = {
            Disposition.ACK: calls.ack,
            Disposition.DISCARD: calls.discard,
            Disposition.NACK: calls.nack,
            Disposition.REJECT: calls.reject,
            Disposition.RELEASE: calls.release,
            Disposition.STOP: calls.release,
            Disposition.SNOOZE: calls.release,
            Disposition.LEAVE: calls.release,
        }
        if calls.capabilities.has(Feature.EXPIRY):
            self._calls[Disposition.DROP] = calls.drop
        self._keeps_results = calls.capabilities.has(Feature.RESULTS)
        if self._keeps_results:
            self._calls[_COMPLETE] = calls.complete

    def __bool__(self) -> bool:
        return self._count > 0 or bool(self._holds)

    def __len__(self) -> int:
        return self._count

    @property
    def next(self) -> int:
        """How many settlements the next calls make at least: of large messages, one call may move a single one."""
        if len(self._acked) == self._count:
            return min(self._count, MAX_SETTLED)
        return sum(
            self._fitting(queue) if disposition is _COMPLETE else min(len(queue), _min_per_call(disposition))
            for disposition, queue in self._queues.items()
        )

    def _fitting(self, queue: list[InFlightDelivery]) -> int:
        """Return how many completions one call makes: at most `MAX_MOVED`, and about a mebibyte of results."""
        if len(queue) <= MAX_MOVED and len(queue) * self._settings.max_result <= MAX_RESULT_BYTES:
            return len(queue)
        total = 0
        for at, delivery in enumerate(queue[:MAX_MOVED]):
            total += len(cast(Completed, self._details[delivery])[-1])
            if at and total > MAX_RESULT_BYTES:
                return at
        return min(len(queue), MAX_MOVED)

    def add(self, completions: Iterable[Completion]) -> None:
        """Add settlements; messages settled by hand need none."""
        for deliveries, disposition, text, delay, _ in completions:
            queue = self._acked if disposition is _ACK else self._queues.get(disposition)
            for delivery in deliveries:
                if delivery.settled or queue is None:
                    under_way = delivery.timed_out and delivery in self._details and not delivery.by_hand
                    if under_way and disposition in DONE:
                        self._late[delivery] = Completion([delivery], disposition, text, delay)
                    continue
                delivery.settled = True
                self._count += 1
                if delivery.attributes.retention and self._keep(delivery, disposition, text):
                    continue
                queue.append(delivery)
                if disposition is not _ACK:
                    self._add_details(delivery, disposition, text, delay)

    def _keep(self, delivery: InFlightDelivery, disposition: Disposition, text: str) -> bool:
        """Add a completion with a result; returns False if the message has no retention, or is not done."""
        if disposition not in DONE or not self._keeps_results:
            return False
        packed = delivery.result or _NOTHING if disposition is _ACK else (Ending.DISCARDED, truncate(text), b"")
        done = completed(delivery.claimed, *packed)
        if done is None:
            return False
        self._queues[_COMPLETE].append(delivery)
        self._details[delivery] = done
        return True

    def _add_details(self, delivery: InFlightDelivery, disposition: Disposition, text: str, delay: int | None) -> None:
        if disposition is Disposition.NACK:
            policy = delivery.policy or self._settings.policy
            wait = policy.backoff.delay(delivery.claimed.attempt) if delay is None else delay
            self._details[delivery] = Failure(*delivery.receipt, nack_wait(wait / 1000), truncate(text), delivery.span)
        elif disposition is Disposition.REJECT:
            self._details[delivery] = Rejection(*delivery.receipt, truncate(text), "")
        elif disposition in _RELEASES:
            count = _RELEASES[disposition]
            attributes = b"" if count is None else count(delivery.claimed.attributes)
            wait = 0 if delay is None else nack_wait(delay / 1000)
            unstarted = disposition in _UNSTARTED
            self._details[delivery] = Release(*delivery.receipt, wait, attributes, unstarted)
            if self._hold and (name := scope_held(delivery, text)) != "":
                self._holds[name] = max(wait, self._holds.get(name, 0))
                if self._in_flight is not None:
                    self._in_flight.holds.close(name)

    def note_trials(self, trials: Iterable[tuple[str, str | None]]) -> None:
        """Note which messages of a claim are trials of a breaker; without breakers, nobody waits for their outcomes."""

    def settle(self) -> Iterator[tuple[Any, Callable[[str], None]]]:
        """Yield the calls that settle what is pending, each with the function for its reply."""
        if self._in_flight is not None and self._in_flight.holds:
            self._in_flight.recalled |= self._in_flight.holds.update(self._untold, self._in_flight.deliveries)
        for name, wait in self._holds.items():
            yield self._hold(name, wait), partial(self._on_held, name)
        for disposition, queue in self._queues.items():
            if queue:
                first = queue[: self._fitting(queue) if disposition is _COMPLETE else _max_per_call(disposition)]
                items = [self._details.get(one, one.receipt) for one in first]
                yield self._calls[disposition](items), partial(self._on_reply, disposition, len(items))

    @property
    def _untold(self) -> Collection[str | None]:
        """The names, and None for the queue, that Redis has yet to close."""
        return self._holds.keys()

    def _on_held(self, name: str | None, reply: str) -> None:
        wait = self._holds.pop(name, 0)
        if name is None and self._in_flight is not None:
            self._in_flight.recalled = True  # what has not started goes back, in its order
        if reply == "0":
            text = "%s is not closed for %d ms, as RateLimited asks: the queue has too many limits"
            log.warning(text, name or "the queue", wait, extra={"name_": name})

    def _on_reply(self, disposition: Disposition, sent: int, reply: str) -> None:
        queue = self._queues[disposition]
        self.cut_short |= len(reply) < sent
        settled = queue[: len(reply)]
        if self._in_flight is not None and self._in_flight.tally is not None:
            self._tally(self._in_flight.tally, disposition, settled, reply)
        del queue[: len(reply)]
        self._count -= len(settled)
        if self._details:
            for delivery in settled:
                self._details.pop(delivery, None)
                if delivery.timed_out and not delivery.by_hand:  # a callback that succeeds may still settle it
                    delivery.settled = False
                    if late_success := self._late.pop(delivery, None):
                        self.add([late_success])
        if "0" in reply:
            late = [delivery.claimed.id for delivery, status in zip(settled, reply, strict=True) if status == "0"]
            text = "%s settled elsewhere before this %s: %s"
            what = pluralize(len(late), "message")
            log.warning(text, what, disposition.name.lower(), ", ".join(late[:5]), extra={"ids": late})

    def _tally(self, tally: Tally, disposition: Disposition, settled: Sequence[InFlightDelivery], reply: str) -> None:
        if disposition is not _COMPLETE:
            tally.settle(disposition, len(reply) - reply.count("0"))
            return
        done = [self._details[one] for one, status in zip(settled, reply, strict=True) if status != "0"]
        discarded = sum(isinstance(one, Completed) and one.ending == Ending.DISCARDED for one in done)
        tally.settle(Disposition.DISCARD, discarded)
        tally.settle(_ACK, len(done) - discarded)


def _min_per_call(disposition: Disposition) -> int:
    return 1 if disposition in (Disposition.NACK, Disposition.REJECT) else _max_per_call(disposition)


def _max_per_call(disposition: Disposition) -> int:
    return MAX_MOVED if disposition is Disposition.REJECT or disposition in _RELEASES else MAX_SETTLED
