"""Estimates the server's clock from its replies: when something that the server knows by its time happens here."""

from __future__ import annotations

DRIFT = 1e-4
"""Seconds per second by which two clocks may drift apart."""
CLOCK_MOVES_WITHIN = 0.02
"""Seconds after which a running clock must have advanced."""


class ClockEstimate:
    """What one consumer knows of the server's clock. Local times are monotonic, in seconds."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.stopped = False
        """Whether the clock has not moved since the reply before, as where a test has stopped it."""
        self._server_now = 0
        self._read_at = 0.0
        self._ahead = 0.0

    def read(self, server_now: int, *, sent_at: float, now: float) -> None:
        """Read the server's time (ms) in a reply to what was sent at a local time.

        A reply gives the time in whole milliseconds and takes a while to arrive, so it lags by a varying amount. The
        smallest lag seen is kept, less what the clocks may have drifted since. An impossible value means that a clock
        was set; the estimate then starts again.
        """
        passed = now - self._read_at
        ahead = self._ahead + passed * (1 - DRIFT) - (server_now - self._server_now) / 1000
        self._ahead = ahead if 0 < ahead <= 0.001 + now - sent_at else 0.0
        self.stopped = server_now == self._server_now and sent_at - self._read_at > CLOCK_MOVES_WITHIN
        self._server_now, self._read_at = server_now, now

    def local(self, at: int) -> float | None:
        """Return the local time of a server's time (ms); None for -1, which means never."""
        return None if at == -1 else self._read_at - self._ahead + (at - self._server_now) / 1000
