"""The verdict on a delivery: what a callback's result or exception says is to become of it."""

from __future__ import annotations

import logging
from enum import Enum, auto
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import NamedTuple

from delayq.clock import milliseconds
from delayq.errors import ConfigurationError, shown
from delayq.message import Holding
from delayq.outcomes import Discard, Outcome, Reject, Retry

log = logging.getLogger("delayq.consumer")

_NOT_RUN = (CoroutineType, GeneratorType, AsyncGeneratorType)
_ADVICE = "coroutine functions are for an AsyncDelayQueue, and a callback does not yield"


class Verdict(Enum):
    """What becomes of a delivery."""

    ACK = auto()
    DISCARD = auto()
    NACK = auto()
    REJECT = auto()
    RELEASE = auto()
    NOTHING = auto()
    """It was settled by hand, or its lease was lost before it started."""


class Completion(NamedTuple):
    """A callback that has ended: the verdict, the reason or error, an explicit delay (ms), and how long it took (s)."""

    holding: Holding
    verdict: Verdict
    text: str = ""
    delay: int | None = None
    took: float = 0.0


def judge(
    holding: Holding, result: object, error: BaseException | None, *, quiet: bool = False
) -> tuple[Verdict, str, int | None]:
    """Return what a callback's result or exception means: the verdict, its text, and an explicit delay (ms).

    An exception is logged, unless it is `quiet`, since it goes on to the user.
    """
    id, attempt = holding.delivery.id, holding.delivery.attempt
    if holding.settled:
        if isinstance(error, Exception) and not isinstance(error, Outcome):
            text = "message %s failed at attempt %d after it was settled"
            log.error(text, id, attempt, exc_info=error, extra={"id": id, "attempt": attempt})
        return Verdict.NOTHING, "", None
    if error is None and isinstance(result, _NOT_RUN):
        error = TypeError(f"the callback returned a {type(result).__name__}, which nothing runs: {_ADVICE}")
        if isinstance(result, CoroutineType):
            result.close()
    outcome = result if error is None else error
    if isinstance(outcome, Retry):
        return _retried(holding, outcome)
    if isinstance(outcome, Reject):
        return Verdict.REJECT, _reason(outcome) or "rejected", None
    if isinstance(outcome, Discard):
        return Verdict.DISCARD, _reason(outcome), None
    if error is None:
        return (Verdict.NACK, "the callback returned False", None) if result is False else (Verdict.ACK, "", None)
    if not quiet:
        log.error("message %s failed at attempt %d", id, attempt, exc_info=error, extra={"id": id, "attempt": attempt})
    return Verdict.NACK, describe(error), None


def _retried(holding: Holding, retry: Retry) -> tuple[Verdict, str, int | None]:
    try:
        delay = None if retry.delay is None else milliseconds(retry.delay, "delay")
    except ConfigurationError as wrong:
        log.error("message %s: Retry with a wrong delay: %s", holding.delivery.id, wrong)  # noqa: TRY400
        return Verdict.NACK, str(wrong), None
    return Verdict.NACK, _reason(retry) or "retry", delay


def _reason(outcome: Outcome) -> str:
    """Return the reason of an outcome as text, whatever a user's class has put there."""
    reason = outcome.reason
    return reason if isinstance(reason, str) else shown(reason)


def describe(error: BaseException) -> str:
    """Return the class and the text of an exception, whatever its text does."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        return type(error).__name__
