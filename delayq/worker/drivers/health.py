"""Whether a running consumer is healthy and goes on; calls the user's `on_health_change` when that changes."""

from __future__ import annotations

from collections.abc import Callable

from delayq.safe_log import SafeLog
from delayq.values.times import monotonic

log = SafeLog("delayq.consumer")

OnHealthChange = Callable[[Exception | None], object]
"""Called with the error when a consumer becomes unhealthy, and with None when it is healthy again."""


class Health:
    """The health of one consumer: `error` is what is wrong, None while all is well."""

    def __init__(self, on_change: OnHealthChange | None) -> None:
        """Start healthy; call `on_change` at each change."""
        self.error: Exception | None = None
        self._of_redis: Exception | None = None
        self._of_threads: Exception | None = None
        self._death: Exception | None = None
        self._on_change = on_change
        self._turns: dict[object, float] = {}

    @property
    def turned_at(self) -> float:
        """The local time since which each of its loops has turned, or has tried to reach Redis."""
        return min(self._turns.copy().values(), default=monotonic())  # a copy: other threads add to it

    def turn(self, now: float, loop: object = None) -> None:
        """Note that a loop goes on at a local time; a worker has one for each server."""
        self._turns[loop] = now

    def end(self, loop: object) -> None:
        """Note that one of several loops has ended."""
        self._turns.pop(loop, None)

    def report(self, error: Exception | None) -> None:
        """Set the error of the last call, None if it succeeded. An exception of `on_change` is logged."""
        self._of_redis = error
        self._update()

    def report_room(self, error: Exception | None) -> None:
        """Set the error if there is no room for one more thread, None if there is again."""
        self._of_threads = error
        self._update()

    def fail(self, error: Exception) -> None:
        """Set the error that ends the consumer: it stays."""
        self._death = error
        self._update()

    def _update(self) -> None:
        error = self._death or self._of_redis or self._of_threads
        changed = (error is None) != (self.error is None)
        self.error = error
        if changed and self._on_change is not None:
            try:
                self._on_change(error)
            except BaseException:  # whatever it raises: the consumer goes on
                log.exception("on_health_change failed")
