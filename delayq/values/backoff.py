"""What is a failure, and how long a failed message waits before it is delivered again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from delayq.errors import ConfigurationError, short_repr
from delayq.values.times import HORIZON, Duration, to_millis

MIN_DELAY = 50
"""Minimum milliseconds between a nack and the redelivery, so that a failing message cannot keep a worker busy."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Computes the delay after each failed attempt (1, 2, …); created by one of its class methods.

    `jitter` (0 to 1) shortens each delay at random by up to that share, so that messages which failed together do not
    retry together.
    """

    kind: Literal["constant", "linear", "exponential"]
    base: int
    most: int = HORIZON
    factor: float = 2.0
    jitter: float = 0.0

    @classmethod
    def constant(cls, delay: Duration, *, jitter: float = 0.0) -> Self:
        """The same delay after every failure."""
        return cls("constant", to_millis(delay, "delay"), jitter=_share(jitter))

    @classmethod
    def linear(cls, step: Duration, *, max: Duration = HORIZON // 1000, jitter: float = 0.0) -> Self:
        """`step`, twice `step`, three times `step` …, never more than `max`."""
        return cls("linear", to_millis(step, "step"), to_millis(max, "max"), jitter=_share(jitter))

    @classmethod
    def exponential(
        cls, first: Duration = 1, *, max: Duration = 3600, factor: float = 2.0, jitter: float = 0.0
    ) -> Self:
        """`first`, then each time `factor` times as long, never more than `max`."""
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= 100:  # noqa: PLR2004
            raise ConfigurationError(f"factor must be between 1 and 100, not {short_repr(factor)}")
        return cls("exponential", to_millis(first, "first"), to_millis(max, "max"), factor, _share(jitter))

    def delay(self, attempt: int) -> int:
        """Return the milliseconds to wait after this attempt failed."""
        full: float
        if self.kind == "exponential":
            try:
                full = self.base * float(self.factor) ** (attempt - 1)
            except OverflowError:
                full = self.most if self.base else 0
        else:
            full = self.base * (attempt if self.kind == "linear" else 1)
        full = min(full, self.most)
        return round(full - full * self.jitter * random.random())  # noqa: S311 - spreading, not secrecy


def _share(jitter: float) -> float:
    if isinstance(jitter, bool) or not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
        raise ConfigurationError(f"jitter must be between 0 and 1, not {short_repr(jitter)}")
    return float(jitter)


IsFailure = Callable[[Exception], bool]
"""Whether an exception of a callback is a failure."""


class FailurePolicy(NamedTuple):
    """What the failures of a callback mean for its messages."""

    backoff: Backoff
    """How long a message waits after a failure."""
    is_failure: IsFailure | None
    """None if every exception is a failure."""
    max_snoozes: int
    """How often a message may be snoozed; 0 for no limit."""
    keeps_text: bool = True
    """Whether the texts of exceptions are stored, or their class names alone."""

    def wait(self, attempt: int, delay: int | None = None) -> int:
        """Return how long a message waits after this attempt (ms): `delay` if its callback says so, else the backoff.

        It is at least `MIN_DELAY`, so that a message cannot keep a worker busy.
        """
        return max(self.backoff.delay(attempt) if delay is None else delay, MIN_DELAY)

    def text_of(self, error: BaseException, text: str) -> str:
        """Return what is stored of an exception with this text."""
        if self.keeps_text:
            return text
        return vars(error).get("_stored_as") or type(error).__name__

    @classmethod
    def of(
        cls, backoff: Backoff | Duration, is_failure: IsFailure | None, max_snoozes: int, *, keeps_text: bool = True
    ) -> FailurePolicy:
        """Return a valid policy; raise `ConfigurationError` for a wrong backoff or function."""
        if is_failure is not None and not callable(is_failure):
            raise ConfigurationError(f"is_failure must be a function of an exception, not {short_repr(is_failure)}")
        chosen = backoff if isinstance(backoff, Backoff) else Backoff.constant(backoff)
        return cls(chosen, is_failure, max_snoozes, keeps_text)
