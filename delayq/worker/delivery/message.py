"""Delivered messages, as callbacks and leases receive them, with the methods that settle them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from delayq._parity import awaited
from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.message.attributes import NONE, snoozed
from delayq.broker.message.collected import decode_collected
from delayq.broker.message.ids import time_of
from delayq.broker.requests import Failure, Rejection, Release, ScriptCall
from delayq.broker.results import completed
from delayq.broker.transport.operation import Operation
from delayq.errors import UndecodableError, short_repr
from delayq.values.codec import decode_headers
from delayq.values.other_names import MESSAGE_METHODS, Hinting
from delayq.values.times import Duration, from_millis, monotonic, to_millis
from delayq.worker.delivery.attempt_log import log_by_hand
from delayq.worker.delivery.disposition import Disposition
from delayq.worker.delivery.in_flight_delivery import SNOOZED_OUT, WITHHELD, InFlightDelivery, truncate

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

T = TypeVar("T")

BY_HAND = {
    "ack": Disposition.ACK,
    "complete": Disposition.ACK,
    "nack": Disposition.NACK,
    "reject": Disposition.REJECT,
    "release": Disposition.SNOOZE,
}
"""What a settlement by hand is, by the name of its script."""


class _BaseMessage(Hinting, Generic[T]):
    """What both kinds of message share: the properties, and the operations behind the methods."""

    __slots__ = ("_handed", "_headers", "context", "delivery", "executor", "payload")
    _other_names = MESSAGE_METHODS

    payload: T
    """The payload, decoded; of a message that was sent with `collect`, the list of its payloads."""

    def __init__(self, delivery: InFlightDelivery, context: EngineContext, executor: Any, handed: float) -> None:
        """Wrap a delivery handed over at a local time; raises `UndecodableError` if the payload cannot be decoded."""
        claimed = delivery.claimed
        payload: Any = claimed.payload
        if payload.__class__ is int:
            raise UndecodableError(WITHHELD.format(payload))
        if claimed.unreadable:
            raise UndecodableError(f"undecodable: {claimed.unreadable}")
        try:
            self._headers = decode_headers(claimed.headers) if claimed.headers else None
        except Exception as error:
            raise UndecodableError(f"undecodable headers: {short_repr(error)}") from error
        try:
            attributes = delivery.attributes
            is_single = attributes is NONE or not attributes.collect
            decoded: Any = context.decode(payload) if is_single else decode_collected(payload, context.decode)
            self.payload = decoded
        except UndecodableError:
            raise
        except Exception as error:
            raise UndecodableError(f"undecodable: {short_repr(error)}") from error
        self.delivery = delivery
        self.context = context
        self.executor = executor
        self._handed = handed

    def __repr__(self) -> str:
        """Show the message without its payload, which may be private."""
        return f"<{type(self).__name__} {self.id} attempt={self.attempt} retries_left={self.retries_left}>"

    @property
    def id(self) -> str:
        """The message's id: the same for all attempts."""
        return self.delivery.claimed.id

    @property
    def queue(self) -> str:
        """The name of the queue, or the key of the stream."""
        return self.context.queue

    @property
    def attempt(self) -> int:
        """The number of this delivery, from 1; released ones are not counted."""
        return self.delivery.claimed.attempt

    @property
    def retries_left(self) -> int:
        """How many more times the message is delivered if this attempt and the next ones fail."""
        return self.delivery.claimed.retries_left

    @property
    def due(self) -> datetime:
        """When the message was due, in UTC."""
        return from_millis(self.delivery.claimed.due)

    @property
    def sent(self) -> datetime | None:
        """When the message was sent, in UTC, by the sender's clock; None for a message with an id of your own.

        The ids that delayq makes contain it. Redis does not store it; only a stream does, by the server's clock.
        """
        claimed = self.delivery.claimed
        if claimed.sent is not None:
            return from_millis(claimed.sent)
        return time_of(claimed.id, now=self.delivery.server_now)

    @property
    def lateness(self) -> float:
        """Seconds between the due time and the hand-over to this process and its callback."""
        at_claim = (self.delivery.server_now - self.delivery.claimed.due) / 1000
        return at_claim + self._handed - self.delivery.claimed_at

    @property
    def headers(self) -> dict[str, str]:
        """The headers the message was sent with."""
        return dict(self._headers) if self._headers else {}

    @property
    def name(self) -> str:
        """The name the message was sent with; '' for none."""
        return self.delivery.attributes.name

    @property
    def key(self) -> str:
        """The key the message was sent with, such as `account:7`; '' for none."""
        return self.delivery.attributes.key

    @property
    def priority(self) -> int:
        """The priority the message was sent with; 0 for none."""
        return self.delivery.attributes.priority

    @property
    def collected(self) -> int:
        """How many payloads the message carries; 0 if it was not sent with `collect`."""
        return len(self.payload) if self.delivery.attributes.collect else 0  # type: ignore[arg-type]  # it is a list

    @property
    def snoozes(self) -> int:
        """How often the message has been snoozed or released with a delay."""
        return self.delivery.attributes.snoozes

    @property
    def progress(self) -> Any:
        """What was last reported of the message, by this attempt or one before: where to go on. None for nothing.

        It is kept through kills, stops, retries, snoozes and releases. Raises `UndecodableError` if the codec of this
        process cannot read it.
        """
        return self.context.results.resumed_progress(self.delivery.attributes.progress)

    @property
    def token(self) -> int:
        """The fencing token of this delivery: higher than the token of any earlier delivery of this queue."""
        return self.delivery.claimed.token

    @property
    def resources(self) -> Any:
        """What the `lifespan` of the queue has yielded or returned; None without one, and for leases."""
        lifespan = self.context.lifespan
        return None if lifespan is None else lifespan.value

    @property
    def lease_lost(self) -> bool:
        """Whether the lease has expired or was taken over: another consumer may be processing the message."""
        return self.delivery.lost or monotonic() > self.delivery.deadline

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody has cancelled the message while it runs: if the callback raises, it is never tried again.

        A callback learns it within a tick. A program that has leased the message learns it from `extend`.
        """
        return self.delivery.cancel_requested

    def _settle(
        self, call: ScriptCall[str], *, failed: bool | None, text: str = "", delay: int | None = None
    ) -> Operation[bool]:
        """Settle by hand, and log it. If the call fails, the result of the callback settles the message."""
        self.delivery.settled, self.delivery.failed_by_hand = True, failed
        try:
            (reply,) = yield [call]
        except BaseException:
            self.delivery.settled = False
            raise
        script = call.script.name.rpartition("/")[2]
        self.delivery.by_hand = script if reply != "0" else ""
        if reply != "0":
            log_by_hand(self.delivery, BY_HAND[script], self.context.queue, text, delay)
        if reply == "2":  # no retries left, or cancelled
            yield [self.context.calls.collect(self.context.settings, ids=(self.id,))]
        return bool(reply != "0")

    def _ack(self, result: object) -> Operation[bool]:
        calls, claimed, done = self.context.calls, self.delivery.claimed, None
        if calls.capabilities.has(Feature.RESULTS) and self.delivery.attributes.retention > 0:
            done = completed(claimed, *self.context.results.pack_checked(result, self.delivery.attributes))
        call = calls.ack([self.delivery.receipt]) if done is None else calls.complete([done])
        return (yield from self._settle(call, failed=False))

    def _ack_some(self, indexes: Iterable[int]) -> Operation[bool]:
        from delayq.worker.delivery.collected_ack import ack_some  # few messages collect

        stored = yield from ack_some(self.delivery, self.context, indexes)
        return (yield from self._ack(None)) if stored is None else stored

    def _report(self, value: object) -> Operation[bool]:
        self.context.calls.capabilities.require(Feature.RESULTS)
        progress = self.context.results.pack_progress(value)
        (reply,) = yield [self.context.calls.report(self.delivery.receipt, progress)]
        if reply == "1":
            self.delivery.attributes = self.delivery.attributes._replace(progress=progress)
        return bool(reply == "1")

    def _nack(self, delay: Duration | None, error: str) -> Operation[bool]:
        policy = self.delivery.policy or self.context.settings.policy
        wait = policy.wait(self.attempt, None if delay is None else to_millis(delay, "delay"))
        text = truncate(error) if policy.keeps_text else ""
        failure = Failure(*self.delivery.receipt, wait, text, self.delivery.span)
        return (yield from self._settle(self.context.calls.nack([failure]), failed=True, text=text, delay=wait))

    def _reject(self, reason: str) -> Operation[bool]:
        text = truncate(reason, "reason")
        if not (self.delivery.policy or self.context.settings.policy).keeps_text:
            text = "rejected"
        rejection = Rejection(*self.delivery.receipt, text, "")
        return (yield from self._settle(self.context.calls.reject([rejection]), failed=True, text=text))

    def _release(self, delay: Duration | None) -> Operation[bool]:
        release, stored = Release(*self.delivery.receipt), self.delivery.claimed.attributes
        if delay is not None:
            policy = self.delivery.policy or self.context.settings.policy
            wait = policy.wait(self.attempt, to_millis(delay, "delay"))
            if self.snoozes >= policy.max_snoozes > 0:
                return (yield from self._nack(None, SNOOZED_OUT.format(policy.max_snoozes)))
            release = Release(*self.delivery.receipt, wait, snoozed(stored))
        told = None if delay is None else release.delay
        return (yield from self._settle(self.context.calls.release([release]), failed=None, delay=told))

    def _extend(self, duration: Duration | None) -> Operation[bool]:
        lease = self.context.settings.lease if duration is None else to_millis(duration, "lease", min=100)
        before, deadline = self.delivery.deadline, monotonic() + lease / 1000
        self.delivery.deadline = max(before, deadline)  # at once, or a heartbeat meanwhile would shorten it again
        try:
            (reply,) = yield [self.context.calls.extend([self.delivery.receipt], lease=lease)]
        except BaseException:
            self.delivery.deadline = before
            raise
        if reply != "0":
            self.delivery.deadline = deadline
            self.delivery.cancel_requested |= reply == "2"
        else:
            self.delivery.lost = True
        return bool(reply != "0")


class Message(_BaseMessage[T]):
    """A delivered message. Settling it by hand takes precedence over what the callback returns."""

    __slots__ = ()
    executor: Executor

    def ack(self, result: object = None) -> bool:
        """Settle the message as done. Only the first ack of a message returns True, even with a lost lease.

        The `result` is kept if the message has retention. Raises `PayloadError` for one that cannot be.
        """
        return self.executor.perform(self._ack(result))

    def ack_some(self, indexes: Iterable[int]) -> bool:
        """Settle these of the payloads that were collected, by their indexes in `payload`: a retry has only the others.

        Once all are settled, the message is. Returns False, and changes nothing, if the lease was lost. Raises
        `ConfigurationError` for other indexes, and for a message that was not sent with `collect`.
        """
        return self.executor.perform(self._ack_some(indexes))

    def report(self, progress: object) -> bool:
        """Store how far the callback is: any value of at most 4 KiB as encoded, which `queue.get` shows.

        The last report counts, until the message has ended: the next attempt has it as `progress`. Returns False, and
        stores nothing, if the lease was lost. Raises `PayloadError` for a value that cannot be encoded or is too large.
        """
        return self.executor.perform(self._report(progress))

    def nack(self, *, delay: Duration | None = None, error: str = "") -> bool:
        """Deliver the message again after `delay`, or the queue's `nack_delay`; uses one retry.

        Returns False and changes nothing if the lease was lost before.
        """
        return self.executor.perform(self._nack(delay, error))

    def extend(self, duration: Duration | None = None) -> bool:
        """Renew the lease for `duration` from now, by default the queue's `lease`. False if it was lost before."""
        return self.executor.perform(self._extend(duration))

    def release(self, *, delay: Duration | None = None) -> bool:
        """Return the message to the head of the queue, or have it wait for `delay`, as if it had not been delivered.

        It uses no retry. With a delay it counts as a snooze: after `max_snoozes` of them, one more is a `nack`. Returns
        False and changes nothing if the lease was lost before.
        """
        return self.executor.perform(self._release(delay))

    def reject(self, reason: str) -> bool:
        """Move the message to the dead letter at once. False, and no change, if the lease was lost before."""
        return self.executor.perform(self._reject(reason))


class AsyncMessage(_BaseMessage[T]):
    """A delivered message of an `AsyncDelayQueue`; see `Message`."""

    __slots__ = ()
    executor: AsyncExecutor

    ack = awaited(Message.ack)
    nack = awaited(Message.nack)
    extend = awaited(Message.extend)
    release = awaited(Message.release)
    report = awaited(Message.report)
    ack_some = awaited(Message.ack_some)
    reject = awaited(Message.reject)
