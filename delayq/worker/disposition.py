"""The verdict on a delivery: what a callback's result or exception says is to become of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, NamedTuple

from delayq.clock import milliseconds
from delayq.errors import ConfigurationError, shown
from delayq.message import Holding, named
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
    """Deliveries whose callback has ended, with one verdict on all: its reason or error, and an explicit delay (ms)."""

    holdings: Sequence[Holding]
    verdict: Verdict
    text: str = ""
    delay: int | None = None
    took: float | None = None
    """Seconds that the callback took; None if none was run, or if another completion of it says so."""


_ACK = Verdict.ACK
_make: Callable[[tuple[Any, ...]], Completion] = partial(tuple.__new__, Completion)


def acknowledged(holdings: Sequence[Holding], took: float) -> Completion:
    """Return the completion of a callback that returned nothing: of most, so it is made in the quickest way."""
    return _make((holdings, _ACK, "", None, took))


def judge(
    holdings: Sequence[Holding], result: object, error: BaseException | None, *, quiet: bool = False
) -> tuple[Verdict, str, int | None]:
    """Return what a callback's result or exception means: the verdict, its text, and an explicit delay (ms).

    It holds for those of `holdings` that were not settled by hand. An exception is logged, unless it is `quiet`,
    since it goes on to the user.
    """
    if all(holding.settled for holding in holdings):
        if isinstance(error, Exception) and not isinstance(error, Outcome):
            _log_failure(holdings, error, " after it was settled")
        return Verdict.NOTHING, "", None
    if error is None and isinstance(result, _NOT_RUN):
        error = TypeError(f"the callback returned a {type(result).__name__}, which nothing runs: {_ADVICE}")
        if isinstance(result, CoroutineType):
            result.close()
    outcome = result if error is None else error
    if isinstance(outcome, Retry):
        return _retried(holdings, outcome)
    if isinstance(outcome, Reject):
        return Verdict.REJECT, _reason(outcome) or "rejected", None
    if isinstance(outcome, Discard):
        return Verdict.DISCARD, _reason(outcome), None
    if error is None:
        return (Verdict.NACK, "the callback returned False", None) if result is False else (Verdict.ACK, "", None)
    if not quiet:
        _log_failure(holdings, error)
    return Verdict.NACK, describe(error), None


def judge_batch(
    holdings: Sequence[Holding], result: object, error: BaseException | None, took: float
) -> list[Completion]:
    """Return what the result or exception of a batch callback means: a list judges each message by its entry."""
    if error is None and isinstance(result, list):
        if len(result) == len(holdings):
            return [
                Completion([holding], *_judge_entry(holding, entry), took if holding is holdings[0] else None)
                for holding, entry in zip(holdings, result, strict=True)
            ]
        error = TypeError(
            f"the batch callback returned a list of {len(result)} for {len(holdings)} messages: "
            "it takes an entry for each, or None for all"
        )
    return [Completion(holdings, *judge(holdings, result, error), took)]


def _judge_entry(holding: Holding, entry: object) -> tuple[Verdict, str, int | None]:
    return judge([holding], entry, entry if isinstance(entry, BaseException) else None)


def _log_failure(holdings: Sequence[Holding], error: BaseException, after: str = "") -> None:
    name, marks = named(holdings)
    at = f" at attempt {marks['attempt']}" if "attempt" in marks else ""
    log.error("%s failed%s%s", name, at, after, exc_info=error, extra=marks)


def _retried(holdings: Sequence[Holding], retry: Retry) -> tuple[Verdict, str, int | None]:
    try:
        delay = None if retry.delay is None else milliseconds(retry.delay, "delay")
    except ConfigurationError as wrong:
        log.error("%s: Retry with a wrong delay: %s", named(holdings)[0], wrong)  # noqa: TRY400
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
