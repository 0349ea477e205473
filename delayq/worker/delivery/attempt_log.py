"""The log lines of attempts: one for each that has failed and for each death, whatever the way, and for each success.

WARNING while the message is tried again, ERROR once it is dead, INFO if it was killed by hand. Success, and what waits
because its callback has asked for it, is told at DEBUG, or at the level of `log_messages_at`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from delayq.broker.replies import ExpiredLease
from delayq.safe_log import SafeLog
from delayq.values.backoff import MIN_DELAY, FailurePolicy
from delayq.values.outcomes import Outcome
from delayq.values.text import format_duration
from delayq.worker.delivery.disposition import CANCELLED, Completion, Disposition, is_snoozed_out
from delayq.worker.delivery.in_flight_delivery import SNOOZED_OUT, InFlightDelivery, label_of, log_label, truncate

log = SafeLog("delayq.consumer")

FAILED = "%s failed at attempt %d%s"
SPENT = f"{FAILED} and has no retries left: it goes to the dead letter"
_quiet_level = logging.DEBUG


class _Fate(NamedTuple):
    """What has become of one attempt: a line with the label of the message, the attempt, when it was, and a delay."""

    level: int
    line: str
    delay: int | None = None


def log_messages_at(level: int) -> None:
    """Tell of each message that is done at this level, in this process."""
    global _quiet_level  # noqa: PLW0603 - a setting of the process, as the levels of loggers are
    _quiet_level = level


def tells_success() -> bool:
    """Return whether anybody reads what is done: asked once for each consumer, so that a message pays nothing."""
    return log.isEnabledFor(_quiet_level)


def log_success(deliveries: Sequence[InFlightDelivery], took: float) -> None:
    """Log that a callback has succeeded; messages that it has settled by hand were logged then."""
    fate = _Fate(_quiet_level, f"%s succeeded at attempt %d%s in {format_duration(took)}")
    for delivery in deliveries:
        if not delivery.settled:
            _write(delivery, fate, took=took)


def log_completions(
    completions: Sequence[Completion],
    raised: BaseException | list[Any] | None,
    policy: FailurePolicy,
    queue: str,
    *,
    when: str = "",
    traced: bool = True,
) -> list[Completion]:
    """Log what has become of the messages of one callback; return the completions, with the delays that were logged.

    `raised` is the exception, or the results of a batch, one for each completion. With `traced` it is logged with its
    traceback, of a batch once at each level. Messages that were settled by hand were logged then.
    """
    told: list[Completion] = []
    traces = set[tuple[int, int]]()
    for at, completion in enumerate(completions):
        error = raised[at] if type(raised) is list else raised
        kind = type(error)  # not `isinstance`, which asks the object for its class
        fault: Any = error if issubclass(kind, BaseException) and not issubclass(kind, Outcome) else None
        for part in _with_delays(completion, policy):
            told.append(part)
            for delivery in part.deliveries:
                fate = None if delivery.settled else _fate(delivery, part, is_fault=fault is not None)
                if fate is not None:
                    key = fate.level, id(error)
                    cause = fault if traced and key not in traces else None
                    traces.add(key)
                    _write(delivery, fate, part.text, queue=queue, when=when, cause=cause)
    return told


def log_by_hand(
    delivery: InFlightDelivery, disposition: Disposition, queue: str, text: str = "", delay: int | None = None
) -> None:
    """Log how a callback, or who leases, has settled a message by hand, once Redis has accepted that."""
    fate = _fate(delivery, Completion([delivery], disposition, text, delay), is_fault=False)
    if fate is not None and log.isEnabledFor(fate.level):
        _write(delivery, fate, text, queue=queue)


def log_expired(leases: Iterable[ExpiredLease], queue: str) -> None:
    """Log the attempts whose leases have expired, with the worker that was lost; Redis has charged a retry for each."""
    for lease in leases:
        label, fields = label_of(lease.id, lease.name, queue)
        fields |= {"attempt": lease.attempt, "retries_left": lease.retries_left, "consumer": lease.consumer}
        fields |= {"delay": 0 if lease.retries_left else None, "error": "lease expired"}
        line = f"{FAILED} and is tried again" if lease.retries_left else SPENT
        level = logging.WARNING if lease.retries_left else logging.ERROR
        line += ": its lease expired, as worker %s was lost"
        log.log(level, line, label, lease.attempt, "", lease.consumer or "(unknown)", extra=fields)


def cut_off(deliveries: Iterable[InFlightDelivery], policy: FailurePolicy, queue: str) -> Iterator[Completion]:
    """Yield what becomes of deliveries for whose callbacks a stop waits no longer: they go back uncharged.

    Each counts as a snooze, so one that never ends before its worker does is charged once `max_snoozes` are spent.
    """
    for delivery in deliveries:
        of_task, (name, fields) = delivery.policy or policy, log_label([delivery], queue)
        if is_snoozed_out([delivery], of_task):
            text = f"cut off by a stop, and {SNOOZED_OUT.format(of_task.max_snoozes)}"
            yield from log_completions([Completion([delivery], Disposition.NACK, text)], None, of_task, queue)
        else:
            log.warning("%s was cut off by a stop, and goes back uncharged", name, extra=fields)
            yield Completion([delivery], Disposition.SNOOZE)


def tells_kills() -> bool:
    """Return whether anybody reads what is killed by hand: at INFO, as the person who asked for it knows."""
    return log.isEnabledFor(logging.INFO)


def log_killed(id: str, name: str, queue: str) -> None:
    """Log that a message was moved to the dead letter by hand."""
    label, fields = label_of(id, name, queue)
    log.info("%s was killed by hand and goes to the dead letter", label, extra=fields)


def _with_delays(completion: Completion, policy: FailurePolicy) -> list[Completion]:
    """Return a completion with the delay before the next attempt, or one for each message if their delays differ."""
    if completion.disposition is not Disposition.NACK or completion.delay is not None:
        return [completion]
    return [
        completion._replace(deliveries=[one], delay=_delay(one, policy), took=None if at else completion.took)
        for at, one in enumerate(completion.deliveries)
    ] or [completion]


def _delay(delivery: InFlightDelivery, policy: FailurePolicy) -> int | None:
    """Return how long a message waits that has failed (ms); None if it has no retries left."""
    if not delivery.claimed.retries_left:
        return None
    return (delivery.policy or policy).wait(delivery.claimed.attempt)


def _fate(delivery: InFlightDelivery, completion: Completion, *, is_fault: bool) -> _Fate | None:
    """Return what to say of a message; None for nothing: its callback has not started, or others tell of it."""
    disposition, delay = completion.disposition, completion.delay
    spent = disposition is Disposition.REJECT or not delivery.claimed.retries_left
    if disposition is Disposition.NACK and delivery.cancel_requested:
        if completion.text == CANCELLED:
            return _Fate(logging.INFO, "%s was cancelled while it ran, at attempt %d%s")
        return _Fate(logging.WARNING, f"{FAILED} and is cancelled, as was asked for")
    if disposition is Disposition.NACK and not spent:
        return _Fate(logging.WARNING, f"{FAILED} and is tried again in %s", delay or 0)
    if disposition is Disposition.NACK or (disposition is Disposition.REJECT and is_fault):
        return _Fate(logging.ERROR, SPENT)
    no_failure = "%s met what is no failure at attempt %d%s, and is tried again in %s"
    snoozed = "%s was snoozed at attempt %d%s and is delivered again in %s"
    return {
        Disposition.SNOOZE: _Fate(
            *((logging.WARNING, no_failure) if is_fault else (_quiet_level, snoozed)), delay or 0
        ),
        Disposition.ACK: _Fate(_quiet_level, "%s succeeded at attempt %d%s"),
        Disposition.DISCARD: _Fate(logging.INFO, "%s was discarded at attempt %d%s"),
        Disposition.REJECT: _Fate(logging.ERROR, "%s was rejected at attempt %d%s and goes to the dead letter"),
    }.get(disposition)


def _write(
    delivery: InFlightDelivery,
    fate: _Fate,
    text: str = "",
    *,
    queue: str = "",
    when: str = "",
    cause: BaseException | None = None,
    **more: Any,
) -> None:
    """Log a line: with the traceback of a cause, or else with the text that is stored."""
    label, fields = log_label([delivery], queue)
    args: list[object] = [label, delivery.claimed.attempt, when]
    line, delay, error = fate.line, None, truncate(text)
    if fate.delay is not None:
        delay = max(fate.delay, MIN_DELAY) / 1000
        args.append(format_duration(delay))
    if error and cause is None and fate.level > _quiet_level:
        line += ": %s"
        args.append(error)
    fields |= {"retries_left": delivery.claimed.retries_left, "delay": delay, "error": error, **more}
    log.log(fate.level, line, *args, exc_info=cause, extra=fields)
