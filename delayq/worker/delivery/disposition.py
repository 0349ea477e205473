"""The disposition of a delivery: what its callback's result or exception means for the message."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from enum import Enum, auto
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import NamedTuple

from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.message.expiry import expiry_of
from delayq.broker.message.joining import Joining
from delayq.errors import ConfigurationError, UndecodableError, short_repr
from delayq.safe_log import SafeLog
from delayq.values.backoff import FailurePolicy
from delayq.values.outcomes import Discard, Outcome, RateLimited, Reject, Retry, Snooze, StopWorker
from delayq.values.text import format_duration
from delayq.values.times import to_millis
from delayq.worker.delivery.in_flight_delivery import SNOOZED_OUT, InFlightDelivery, log_label

log = SafeLog("delayq.consumer")

_NOT_RUN = (CoroutineType, GeneratorType, AsyncGeneratorType)
_UNDONE = (Reject, Retry, Snooze, StopWorker)
"""What a callback may return that is no success."""
_ADVICE = "use AsyncDelayQueue for coroutine functions, and do not yield in a callback"


CANCELLED = "cancelled"
"""The text of a callback that was cancelled because somebody has cancelled its message."""


class Disposition(Enum):
    """How a delivery is settled."""

    ACK = auto()
    DISCARD = auto()
    DROP = auto()
    """Discarded because it is missed: this is counted."""
    NACK = auto()
    REJECT = auto()
    RELEASE = auto()
    """Released before a callback has started for it: its start counts for no limit."""
    STOP = auto()
    """Released, as its callback stops the consumer."""
    SNOOZE = auto()
    """Released after a delay, as the callback has asked: this is counted."""
    LEAVE = auto()
    """Released after a delay, since no function here takes the message: this is counted apart."""
    JOIN = auto()
    """Done, and its payload is one of its group's, as it has become due: no callback is for it."""
    COMPLETE = auto()
    """Acked or discarded, and a record of it is kept, since the message has retention."""
    NOTHING = auto()
    """Settled by hand already, or the lease was lost before the callback started."""


DONE = (Disposition.ACK, Disposition.DISCARD, Disposition.DROP)
"""What ends a message for good, with a record of it if it has retention."""


class Completion(NamedTuple):
    """Deliveries whose callback has ended, and what becomes of them all: text, explicit delay (ms).

    The text is that of the error; of a snooze, the scope in which no other is to start.
    """

    deliveries: Sequence[InFlightDelivery]
    disposition: Disposition
    text: str = ""
    delay: int | None = None
    took: float | None = None
    """Seconds the callback took; None if it did not run, or if another completion has its time."""


def disposition_of(
    deliveries: Sequence[InFlightDelivery],
    result: object,
    error: BaseException | None,
    policy: FailurePolicy,
) -> tuple[Disposition, str, int | None]:
    """Return what a callback's result or exception means: the disposition, its text, and an explicit delay (ms).

    It applies to those of `deliveries` that were not settled by hand. `attempt_log` tells of it.
    """
    if error is None and isinstance(result, _NOT_RUN):
        error = TypeError(f"the callback returned a {type(result).__name__}, which is never run: {_ADVICE}")
        if isinstance(result, CoroutineType):
            result.close()
    if when := _ended_before(deliveries, result, error):
        if isinstance(error, Exception) and not isinstance(error, Outcome):
            _log_late(deliveries, error, when)
        return Disposition.NOTHING, "", None
    outcome = result if error is None else error
    if isinstance(outcome, Retry | Snooze | StopWorker):
        return _disposition_of_delay(deliveries, outcome, policy)
    if isinstance(outcome, Reject):
        return Disposition.REJECT, policy.text_of(outcome, _reason(outcome) or "rejected"), None
    if isinstance(outcome, Discard):
        return Disposition.DISCARD, policy.text_of(outcome, _reason(outcome)), None
    if error is None:
        return (
            (Disposition.NACK, "the callback returned False", None) if result is False else (Disposition.ACK, "", None)
        )
    return _disposition_of_error(deliveries, error, policy)


def dispositions_of(
    deliveries: Sequence[InFlightDelivery],
    result: object,
    error: BaseException | None,
    took: float,
    policy: FailurePolicy,
) -> list[Completion]:
    """Return what a batch callback's result or exception means; a list has one result for each message."""
    if error is None and isinstance(result, list):
        if len(result) == len(deliveries):
            completions = []
            for delivery, entry in zip(deliveries, result, strict=True):
                raised = entry if isinstance(entry, BaseException) else None
                completions.append(Completion([delivery], *disposition_of([delivery], entry, raised, policy)))
            completions[0] = completions[0]._replace(took=took)
            return completions
        error = TypeError(
            f"the batch callback returned a list of {len(result)} results for {len(deliveries)} messages: "
            "return one result for each message, or None for all"
        )
    spent = [delivery for delivery in deliveries if is_snoozed_out([delivery], policy)]
    if spent and len(spent) < len(deliveries):  # a snooze may be one too many for some of them
        parts = [delivery for delivery in deliveries if delivery not in spent], spent
        return [Completion(part, *disposition_of(part, result, error, policy), took) for part in parts]
    return [Completion(deliveries, *disposition_of(deliveries, result, error, policy), took)]


def stop_reason_of(result: object, error: BaseException | None) -> str | None:
    """Return why a callback stops its consumer; None if it does not."""
    outcomes = [error] if error is not None else result if isinstance(result, list) else [result]
    return next((_reason(one) or "no reason given" for one in outcomes if isinstance(one, StopWorker)), None)


def undecodable(delivery: InFlightDelivery, error: UndecodableError, policy: FailurePolicy) -> Completion:
    """Return what a payload that cannot be decoded means: a failed attempt, and after the last one the dead letter.

    A worker with a newer version of the program may decode it, but none reads what another program has written.
    """
    text = str(error)
    tries = delivery.claimed.retries_left and not delivery.claimed.unreadable
    disposition = Disposition.NACK if tries else Disposition.REJECT
    text = text if text.startswith("undecodable") else f"undecodable: {text}"
    text = text if policy.keeps_text else "undecodable"
    return Completion([delivery], disposition, text)


def before_start(delivery: InFlightDelivery, now: float, context: EngineContext) -> Completion | None:
    """Return what becomes of a delivery at a local time before its callback starts; None if that may start.

    It may have expired, be outside its hours, or join a group. If its due time is outside of its hours, it was due when
    they opened next.
    """
    attributes = delivery.attributes
    if not (attributes.expires or attributes.hours or attributes.joins):
        return None
    at = delivery.server_now + (now - delivery.claimed_at) * 1000
    expires = expiry_of(attributes, delivery.claimed.due)
    if expires is not None and at > expires:
        return _expired(delivery, at - expires, context.queue)
    outside = _outside_hours(delivery, at, context.queue) if attributes.hours else None
    joins = attributes.joins and context.calls.capabilities.has(Feature.COLLECT)
    return outside or (_joining(delivery, context.queue) if joins else None)


def _joining(delivery: InFlightDelivery, queue: str) -> Completion | None:
    """Return what becomes of a delivery that is to join a group; None if it cannot, so that a callback decides."""
    joining = Joining.of(delivery.attributes.joins)
    if joining is None or joining.group == delivery.claimed.id or delivery.claimed.unreadable:
        return None
    label, fields = log_label([delivery], queue)
    log.debug("%s is due, and joins the group %s", label, joining.group, extra=fields)
    return Completion([delivery], Disposition.JOIN)


def _expired(delivery: InFlightDelivery, late: float, queue: str) -> Completion:
    """Return what becomes of a delivery that has expired so long ago (ms)."""
    claimed, attributes = delivery.claimed, delivery.attributes
    why = f"expired {format_duration(late / 1000)} ago, before it could start"
    label, fields = log_label([delivery], queue)
    fields |= {"retries_left": claimed.retries_left, "delay": None, "error": "missed"}
    if attributes.missed == "drop":
        log.warning("%s %s, and is dropped", label, why, extra=fields)
        return Completion([delivery], Disposition.DROP, "missed")
    log.error("%s %s, and goes to the dead letter", label, why, extra=fields)
    return Completion([delivery], Disposition.REJECT, "missed")


def _outside_hours(delivery: InFlightDelivery, at: float, queue: str) -> Completion | None:
    """Return what becomes of a delivery outside its hours at a server's time (ms): it goes back, uncharged.

    None if they are open. Hours that this machine cannot read are a failed attempt: another one may.
    """
    from delayq.schedules.hours import hours_of  # few messages have hours

    claimed = delivery.claimed
    try:
        hours = hours_of(delivery.attributes)
        starts = max(math.floor(at), claimed.due)
        opens, claimed.due = hours.opening(starts), hours.opening(claimed.due)
    except ConfigurationError as error:
        label, fields = log_label([delivery], queue)
        log.error("%s has hours that cannot be read here: %s", label, error, extra=fields)  # noqa: TRY400
        disposition = Disposition.NACK if claimed.retries_left else Disposition.REJECT
        return Completion([delivery], disposition, f"undecodable hours: {error}")
    if opens == starts:
        return None
    wait = opens - delivery.server_now  # from the claim on, so that it is not too short by the clock of the script
    label, fields = log_label([delivery], queue)
    text = "%s is outside its hours %s %s, and is delivered again in %s"
    log.info(text, label, hours.text, hours.tz, format_duration(wait / 1000), extra=fields)
    return Completion([delivery], Disposition.RELEASE, "", wait)


def timed_out(deliveries: Sequence[InFlightDelivery], limit: float, policy: FailurePolicy) -> Completion:
    """Return what becomes of deliveries whose callback has run for longer than `limit` seconds: they have failed.

    Whatever the callback does from now on, a success alone counts still.
    """
    error = TimeoutError(f"the callback took longer than {format_duration(limit)}")
    for delivery in deliveries:
        delivery.timed_out = delivery.lost = True
    disposition, text, delay = _disposition_of_error(deliveries, error, deliveries[0].policy or policy)
    return Completion([one for one in deliveries if not one.settled], disposition, text, delay)


def _log_late(deliveries: Sequence[InFlightDelivery], error: BaseException, when: str) -> None:
    """Log an error that changes nothing any more: the attempt has failed already, or was settled by hand."""
    name, fields = log_label(deliveries)
    attempt = f" at attempt {fields['attempt']}" if "attempt" in fields else ""
    level = logging.WARNING if deliveries[0].timed_out else logging.ERROR
    log.log(level, "%s failed%s%s", name, attempt, when, exc_info=error, extra=fields)


def _ended_before(deliveries: Sequence[InFlightDelivery], result: object, error: BaseException | None) -> str:
    """Return why a result or an exception decides nothing any more, in words; '' if it does."""
    timed_out = deliveries[0].timed_out
    if all(delivery.by_hand or (delivery.settled and not timed_out) for delivery in deliveries):
        return " after it was settled"
    succeeded = result is not False and not isinstance(result, _UNDONE) if error is None else isinstance(error, Discard)
    return " after its timeout" if timed_out and not succeeded else ""


def _disposition_of_error(
    deliveries: Sequence[InFlightDelivery], error: BaseException, policy: FailurePolicy
) -> tuple[Disposition, str, int | None]:
    if not isinstance(error, Exception) and all(delivery.cancel_requested for delivery in deliveries):
        return Disposition.NACK, CANCELLED, None
    if isinstance(error, Exception) and not _is_failure(error, policy) and not is_snoozed_out(deliveries, policy):
        return Disposition.SNOOZE, "", policy.wait(1 + max(map(_snoozes_of, deliveries)))
    return Disposition.NACK, stored_text(error, policy), None


def _disposition_of_delay(
    deliveries: Sequence[InFlightDelivery], outcome: Retry | Snooze | StopWorker, policy: FailurePolicy
) -> tuple[Disposition, str, int | None]:
    if isinstance(outcome, StopWorker):
        return Disposition.STOP, "", None
    try:
        if isinstance(outcome, Snooze):
            wait = to_millis(outcome.delay, "delay")
            if outcome.counted and is_snoozed_out(deliveries, policy):
                return Disposition.NACK, SNOOZED_OUT.format(policy.max_snoozes), None
            scope = outcome.scope if isinstance(outcome, RateLimited) else ""
            return Disposition.SNOOZE if outcome.counted else Disposition.LEAVE, scope, wait
        delay = None if outcome.delay is None else to_millis(outcome.delay, "delay")
    except ConfigurationError as error:
        return Disposition.NACK, policy.text_of(error, str(error)), None
    return Disposition.NACK, policy.text_of(outcome, _reason(outcome) or "retry"), delay


def _is_failure(error: Exception, policy: FailurePolicy) -> bool:
    if policy.is_failure is None:
        return True
    try:
        return bool(policy.is_failure(error))
    except BaseException:  # a user's function may raise anything
        log.exception("is_failure failed, so the exception counts as a failure")
        return True


def _snoozes_of(delivery: InFlightDelivery) -> int:
    return delivery.attributes.snoozes


def is_snoozed_out(deliveries: Sequence[InFlightDelivery], policy: FailurePolicy) -> bool:
    """Return whether a snooze more would be one too many."""
    return policy.max_snoozes > 0 and any(_snoozes_of(delivery) >= policy.max_snoozes for delivery in deliveries)


def _reason(outcome: Outcome) -> str:
    """Return the reason of an outcome as text, whatever a user's class has stored there."""
    reason = outcome.reason
    return reason if isinstance(reason, str) else short_repr(reason)


def describe(error: BaseException) -> str:
    """Return the class and text of an exception, or the class alone if its text cannot be read."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
        return type(error).__name__


def stored_text(error: BaseException, policy: FailurePolicy) -> str:
    """Return what is stored of an exception: what `describe` returns, or the class alone."""
    return policy.text_of(error, describe(error))
