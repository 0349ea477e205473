"""The latency of the network to Redis, as calls of any size show it."""

from __future__ import annotations

DRIFT = 0.002
"""The share by which a slower call moves the estimate: a way that has become longer is noticed."""


class Latency:
    """The latency of late: that of the fastest call, since a busy server takes long, too."""

    __slots__ = ("_connected", "_message_time", "_share", "seconds")

    def __init__(self, message_time: float) -> None:
        """Subtract `message_time` seconds for each message of a call: what it takes without any latency."""
        self.seconds = 0.0
        """A round trip; 0 where the server is near, and before the second call."""
        self._message_time = message_time
        self._connected = False
        self._share = 1.0
        """The share by which a slower call moves the estimate: the first one is the estimate."""

    def measure(self, took: float, messages: int) -> None:
        """Note that a call that carried so many messages took so many seconds. The first one connects."""
        if not self._connected:
            self._connected = True
            return
        more = max(0.0, took - messages * self._message_time) - self.seconds
        self.seconds += self._share * more if more > 0 else more
        self._share = DRIFT
