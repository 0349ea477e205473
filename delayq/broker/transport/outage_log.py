"""Logs that Redis does not answer, so that nobody waits for it without knowing."""

from __future__ import annotations

from delayq.broker.transport.exchange import ProviderError
from delayq.errors import CannotConnectError
from delayq.safe_log import SafeLog
from delayq.values.text import format_duration
from delayq.values.times import monotonic

log = SafeLog("delayq.executor")

RETRYING = "%s%s, retrying: %s"
ANSWERS = "Redis answers again%s"
"""What consumers log at the start and the end of an outage; a worker logs each once for all of its queues."""
LOG_EVERY = 10.0
"""Seconds between two warnings of a process that waits for the server."""


class OutageLog:
    """The warnings about one server."""

    def __init__(self, server: str) -> None:
        """`server` is its address and where that is from; '' to leave it out."""
        self.at = f" at {server}" if server else ""
        self._warned_at = -LOG_EVERY
        self._logged = ""

    def retrying(self, error: Exception, end: float | None, *, first: bool, lost: bool) -> None:
        """Warn that a call is sent again: at once and every 10 s until its `end`.

        A call without an end warns once, and again when what is wrong changes. A call with an end does not warn of one
        `lost` connection, because Redis also closes idle ones, nor within its last second: its error comes soon.
        """
        now = monotonic()
        what = (
            "Cannot connect to Redis"
            if isinstance(error, CannotConnectError | ProviderError)
            else "Redis does not answer"
        )
        if end is None:
            if first or what != self._logged:
                self._logged = what
                log.warning(RETRYING, what, self.at, error)
        elif now - self._warned_at >= LOG_EVERY and end - now >= 1 and not (first and lost):
            self._warned_at = now
            log.warning("%s%s, retrying for up to %s: %s", what, self.at, format_duration(end - now), error)

    def answers(self) -> None:
        """Warn that the server is back: at the same level as that it was gone."""
        log.warning(ANSWERS, self.at)
