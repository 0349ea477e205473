"""Whether Redis answers a running consumer, and the function that a user has told to hear of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("delayq.consumer")

OnHealthChange = Callable[[Exception | None], object]
"""Called with the error when a consumer becomes unhealthy, and with None when it is healthy again."""


class Health:
    """The error that a consumer meets at present; None while all is well."""

    def __init__(self, on_change: OnHealthChange | None) -> None:
        """Start healthy; call `on_change` at each change."""
        self.error: Exception | None = None
        self._on_change = on_change

    def report(self, error: Exception | None) -> None:
        """Take note of what the last call met. What the user's function raises is logged."""
        changed = (error is None) != (self.error is None)
        self.error = error
        if changed and self._on_change is not None:
            try:
                self._on_change(error)
            except BaseException:  # whatever it raises: the consumer goes on
                log.exception("on_health_change failed")
