"""How long a failed message waits before it is delivered again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, Self

from delayq.clock import HORIZON, Duration, milliseconds
from delayq.errors import ConfigurationError, shown

LEAST_DELAY = 50
"""Milliseconds between a nack and the redelivery at least, so that a failing message cannot spin a worker."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """A rule from the number of the failed attempt (1, 2, …) to a delay; made by one of its class methods.

    `jitter` (0 to 1) takes a random part of up to that share off each delay, so that what failed together does not
    come back together.
    """

    kind: Literal["constant", "linear", "exponential"]
    base: int
    most: int = HORIZON
    factor: float = 2.0
    jitter: float = 0.0

    @classmethod
    def constant(cls, delay: Duration, *, jitter: float = 0.0) -> Self:
        """The same delay after every failure."""
        return cls("constant", milliseconds(delay, "delay"), jitter=_share(jitter))

    @classmethod
    def linear(cls, step: Duration, *, max: Duration = HORIZON // 1000, jitter: float = 0.0) -> Self:
        """`step`, twice `step`, three times `step` …, never more than `max`."""
        return cls("linear", milliseconds(step, "step"), milliseconds(max, "max"), jitter=_share(jitter))

    @classmethod
    def exponential(
        cls,
        first: Duration = 1,
        *,
        max: Duration = 3600,
        factor: float = 2.0,
        jitter: float = 0.0,
    ) -> Self:
        """`first`, then each time `factor` times as long, never more than `max`."""
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 <= factor <= 100:  # noqa: PLR2004
            raise ConfigurationError(f"factor must be between 1 and 100, not {shown(factor)}")
        return cls("exponential", milliseconds(first, "first"), milliseconds(max, "max"), factor, _share(jitter))

    def delay(self, attempt: int) -> int:
        """Return the milliseconds to wait after the failure of the given attempt."""
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
        raise ConfigurationError(f"jitter must be between 0 and 1, not {shown(jitter)}")
    return float(jitter)
