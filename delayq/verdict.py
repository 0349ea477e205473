"""The verdict on a delivery: what a callback's result or exception says is to become of it."""

from __future__ import annotations

import logging
from enum import Enum, auto
from typing import NamedTuple

from delayq.clock import milliseconds
from delayq.errors import ConfigurationError
from delayq.message import Holding
from delayq.outcomes import Discard, Reject, Retry

log = logging.getLogger("delayq.consumer")


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


def judge(holding: Holding, result: object, error: BaseException | None) -> tuple[Verdict, str, int | None]:
    """Return what a callback's result or exception means: the verdict, its text, and an explicit delay (ms)."""
    if holding.settled:
        return Verdict.NOTHING, "", None
    outcome = result if error is None else error
    if isinstance(outcome, Retry):
        return _retried(holding, outcome)
    if isinstance(outcome, Reject):
        return Verdict.REJECT, outcome.reason or "rejected", None
    if isinstance(outcome, Discard):
        return Verdict.DISCARD, outcome.reason, None
    if error is None:
        return (Verdict.NACK, "the callback returned False", None) if result is False else (Verdict.ACK, "", None)
    id, attempt = holding.delivery.id, holding.delivery.attempt
    log.error("message %s failed at attempt %d", id, attempt, exc_info=error, extra={"id": id, "attempt": attempt})
    return Verdict.NACK, describe(error), None


def _retried(holding: Holding, retry: Retry) -> tuple[Verdict, str, int | None]:
    try:
        delay = None if retry.delay is None else milliseconds(retry.delay, "delay")
    except ConfigurationError as wrong:
        log.error("message %s: Retry with a wrong delay: %s", holding.delivery.id, wrong)  # noqa: TRY400
        return Verdict.NACK, str(wrong), None
    return Verdict.NACK, retry.reason or "retry", delay


def describe(error: BaseException) -> str:
    """Return the class and the text of an exception, whatever its text does."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        return type(error).__name__
