"""When to stop starting messages because most of the last ones have failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from delayq.errors import ConfigurationError, short_repr
from delayq.values.checks import check_int
from delayq.values.times import Duration, to_millis

MAX_OUTCOMES = 10_000
MIN_PAUSE = 100
"""Milliseconds between two trials at least: a shorter pause spares a service nothing."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """Starts nothing for a `pause` when at least a `share` of the last `of` outcomes are failures.

    The outcomes are those of this process, of the queue or of the task that has this option. Failures are errors,
    `False`, `Retry`, `Reject` and timeouts; snoozes, `RateLimited` and what `is_failure` denies do not count. After the
    pause, one message starts as a trial, in all processes together. If it succeeds, all start again; if it fails, none
    does for another pause. If its process crashes, a second one starts after another pause, and all start after that.
    Let `pause` (at least 100 ms) be longer than a callback takes. Raises `ConfigurationError`.
    """

    share: float = 0.5
    """From above 0 to 1."""
    of: int = 20
    """From 1 to 10,000."""
    pause: Duration = "1m"

    def __post_init__(self) -> None:
        share = self.share
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ConfigurationError(f"Breaker: share must be above 0 and at most 1, not {short_repr(share)}")
        check_int(self.of, "Breaker: of", 1, MAX_OUTCOMES)
        to_millis(self.pause, "Breaker: pause", min=MIN_PAUSE)

    @property
    def pause_millis(self) -> int:
        """The pause in milliseconds."""
        return to_millis(self.pause, "pause")


def check_breaker(breaker: Any) -> Breaker | None:
    """Return the breaker of a queue or a task, None for none; raise `ConfigurationError` for anything else."""
    if breaker is not None and not isinstance(breaker, Breaker):
        text = f"breaker must be a Breaker, such as Breaker(share=0.5, of=20, pause='1m'), not {short_repr(breaker)}"
        raise ConfigurationError(text)
    return breaker
