"""Logs that Redis does not answer, so that nobody waits for it without knowing."""

from __future__ import annotations

import logging

from delayq.text import format_duration
from delayq.times import monotonic

log = logging.getLogger("delayq.executor")

LOG_EVERY = 10.0
"""Seconds between two warnings of a process that waits for the server."""


class OutageLog:
    """The warnings about one server."""

    def __init__(self, server: str) -> None:
        """`server` is its address and where that is from; '' to leave it out."""
        self.at = f" at {server}" if server else ""
        self._warned_at = -LOG_EVERY

    def retrying(self, error: Exception, end: float | None, *, first: bool, lost: bool) -> None:
        """Warn that a call is sent again: at once and every 10 s until its `end`, or once if it has no end.

        A call with an end does not warn of one `lost` connection, because Redis also closes idle ones, nor within its
        last second: its error comes soon.
        """
        now = monotonic()
        if end is None:
            if first:
                log.warning("Redis does not answer%s, retrying: %s", self.at, error)
        elif now - self._warned_at >= LOG_EVERY and end - now >= 1 and not (first and lost):
            self._warned_at = now
            text = "Redis does not answer%s, retrying for up to %s: %s"
            log.warning(text, self.at, format_duration(end - now), error)

    def answers(self) -> None:
        """Log that the server is back."""
        log.info("Redis answers again")
