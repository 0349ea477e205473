"""The settlements of a consumer or a lease that Redis has not confirmed yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, cast

from delayq.broker.calls import Calls
from delayq.broker.context import EngineCalls
from delayq.broker.engine import Feature
from delayq.broker.message.attributes import left_unhandled, snoozed
from delayq.broker.requests import Failure, Rejection, Release
from delayq.broker.results import Completed, Ending, completed
from delayq.broker.scripts import MAX_MOVED, MAX_SETTLED
from delayq.errors import DelayqError
from delayq.options import Settings
from delayq.safe_log import SafeLog
from delayq.values.text import pluralize
from delayq.worker.delivery.disposition import DONE, Completion, Disposition
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery, truncate
from delayq.worker.delivery.joining import Joined, join_call, joined
from delayq.worker.parts.breakers import ClosedScopes, scope_closed
from delayq.worker.parts.part import ERROR_WAIT, Call, LoopPart, Stage

log = SafeLog("delayq.consumer")

_ACK, _COMPLETE = Disposition.ACK, Disposition.COMPLETE
"""Looking up or hashing an enumeration member is slow before Python 3.12."""
MAX_SENT_BYTES = 1 << 20
"""Bytes of results, or of payloads, that one call stores; a single one may be larger."""
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


class PendingSettlements(LoopPart):
    """Settlements to send, grouped by disposition, in batches of at most five hundred."""

    stage = Stage.SETTLE

    def __init__(self, calls: EngineCalls, settings: Settings, scopes: ClosedScopes | None = None) -> None:
        """Start empty; what closes a scope is told to `scopes`."""
        self._settings = settings
        self._scopes = scopes
        self.on_settled_by: Sequence[Callable[[Disposition, Sequence[InFlightDelivery]], None]] = ()
        """Who learns what Redis has settled."""
        self._queues: dict[Disposition, list[InFlightDelivery]] = {
            disposition: [] for disposition in Disposition if disposition is not Disposition.NOTHING
        }
        self._acked = self._queues[_ACK]
        self._count = 0
        self.plain = False
        """Whether the loop makes the calls for acknowledgements, see `acks`."""
        self.acks: list[InFlightDelivery] = []
        """What the loop is to acknowledge in this turn."""
        self.cut_short = False
        """Whether a call has made fewer than it was asked for: large successors take several calls."""
        self._details: dict[InFlightDelivery, Failure | Rejection | Release | Joined | Completed] = {}
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
        if calls.capabilities.has(Feature.COLLECT):
            self._calls[Disposition.JOIN] = partial(join_call, cast("Calls", calls), settings.max_payload)
        if calls.capabilities.has(Feature.EXPIRY):
            self._calls[Disposition.DROP] = calls.drop
        self._largest = {_COMPLETE: settings.max_result, Disposition.JOIN: settings.max_payload}
        """The most bytes that a settlement stores, of those that store something."""
        self._keeps_results = calls.capabilities.has(Feature.RESULTS)
        if self._keeps_results:
            self._calls[_COMPLETE] = calls.complete

    def pending(self) -> bool:
        """Return whether there is anything to settle."""
        return self._count > 0

    def __len__(self) -> int:
        return self._count

    @property
    def next(self) -> int:
        """How many settlements the next calls make at least: of large messages, one call may move a single one."""
        if len(self._acked) == self._count:
            return min(self._count, MAX_SETTLED)
        return sum(
            self._fitting(disposition) if disposition is _COMPLETE else min(len(queue), _min_per_call(disposition))
            for disposition, queue in self._queues.items()
        )

    def _fitting(self, disposition: Disposition) -> int:
        """Return how many settlements one call makes, of those that store something: about a mebibyte at most."""
        queue, largest = self._queues[disposition], self._largest.get(disposition)
        if largest is None:
            return min(len(queue), _max_per_call(disposition))
        if len(queue) <= MAX_MOVED and len(queue) * largest <= MAX_SENT_BYTES:
            return len(queue)
        total = 0
        for at, delivery in enumerate(queue[:MAX_MOVED]):
            total += len(cast("Completed | Joined", self._details[delivery])[-1])
            if at and total > MAX_SENT_BYTES:
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
        policy = delivery.policy or self._settings.policy
        if disposition is Disposition.NACK:
            wait = policy.wait(delivery.claimed.attempt, delay)
            self._details[delivery] = Failure(*delivery.receipt, wait, truncate(text), delivery.span)
        elif disposition is Disposition.REJECT:
            self._details[delivery] = Rejection(*delivery.receipt, truncate(text), "")
        elif disposition is Disposition.JOIN:
            self._details[delivery] = joined(delivery)
        elif disposition in _RELEASES:
            count = _RELEASES[disposition]
            attributes = b"" if count is None else count(delivery.claimed.attributes)
            exact = delay is None or disposition is Disposition.RELEASE  # what was held until it is due
            wait = delay or 0 if exact else policy.wait(delivery.claimed.attempt, delay)
            unstarted = disposition in _UNSTARTED
            self._details[delivery] = Release(*delivery.receipt, wait, attributes, unstarted)
            if self._scopes is not None and (name := scope_closed(delivery, text)) != "":
                self._scopes.tell(name, wait)

    def plan(self, _: float) -> Iterator[Call]:
        """Yield the calls that settle what is pending, but for acknowledgements of a plain queue."""
        self.acks = self._acked[:MAX_SETTLED] if self.plain else []
        for disposition, queue in self._queues.items():
            if queue and not (self.plain and disposition is _ACK):
                first = queue[: self._fitting(disposition)]
                items = [self._details.get(one, one.receipt) for one in first]
                yield self._calls[disposition](items), partial(self._on_reply, disposition, len(items))

    @property
    def only_acks(self) -> bool:
        """Whether nothing but acknowledgements is pending, of messages whose results nobody keeps."""
        return len(self._acked) == self._count

    def read_acks(self, acks: list[InFlightDelivery], statuses: str) -> None:
        """Read the statuses of acknowledgements; those that only `ack` can settle, marked `?`, stay here."""
        left = [one for one, status in zip(acks, statuses, strict=True) if status == "?"]
        if left:
            settled = [one for one, status in zip(acks, statuses, strict=True) if status != "?"]
            self._acked[: len(acks)] = [*settled, *left]
            self.cut_short = True
        self._on_reply(_ACK, len(acks) - len(left), statuses.replace("?", ""))

    def _on_reply(self, disposition: Disposition, sent: int, reply: str) -> None:
        queue = self._queues[disposition]
        self.cut_short |= len(reply) < sent
        settled = queue[: len(reply)]
        if self.on_settled_by:
            self._tell_settled(disposition, settled, reply)
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

    def _tell_settled(self, disposition: Disposition, settled: list[InFlightDelivery], reply: str) -> None:
        if "0" in reply:
            settled = [one for one, status in zip(settled, reply, strict=True) if status != "0"]
        outcomes = {disposition: settled}
        if disposition is _COMPLETE:
            outcomes = {_ACK: [], Disposition.DISCARD: []}
            for one in settled:
                is_discarded = cast(Completed, self._details[one]).ending == Ending.DISCARDED
                outcomes[Disposition.DISCARD if is_discarded else _ACK].append(one)
        for tell in self.on_settled_by:
            for outcome, deliveries in outcomes.items():
                tell(outcome, deliveries)


def _min_per_call(disposition: Disposition) -> int:
    return 1 if disposition in (Disposition.NACK, Disposition.REJECT, Disposition.JOIN) else _max_per_call(disposition)


def _max_per_call(disposition: Disposition) -> int:
    return MAX_MOVED if disposition is Disposition.REJECT or disposition in _RELEASES else MAX_SETTLED


class Refusals:
    """The calls that Redis has refused lately. Times are local and monotonic, in seconds."""

    def __init__(self) -> None:
        self.error: DelayqError | None = None
        """What Redis refused in the last turn; None if nothing."""
        self.wait_until = 0.0
        """When to try again."""
        self.of_settlements = False
        """Whether settlements are refused: what starts meanwhile could not be settled either."""

    def read_settlements(self, replies: Sequence[Any]) -> None:
        """Note the replies to the settlements of a turn."""
        refused = any(isinstance(reply, DelayqError) for reply in replies)
        if replies and refused != self.of_settlements:
            self.of_settlements = refused
            if not refused:
                log.info("Redis accepts settlements again")

    def read_turn(self, error: DelayqError | None, now: float, *, stopping: bool) -> None:
        """Note the first error of a turn, None for none."""
        if error:
            self.wait_until = now + ERROR_WAIT
            if not stopping and str(error) != str(self.error):
                meanwhile = ", claiming nothing meanwhile" if self.of_settlements else ""
                log.error("Redis refused a call, retrying every %g s%s: %s", ERROR_WAIT, meanwhile, error)
        if now >= self.wait_until or error:  # a turn during the pause may have asked nothing that fails
            if self.error and not error:
                log.warning("Redis refuses no call any more")
            self.error = error
