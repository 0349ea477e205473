"""How a callback says what becomes of its message.

Returning anything but `False` acknowledges; `False` or an exception takes one retry. Raising one of these says more:

    raise Retry("rate limited", delay="5m")
    raise Reject("no such user")
    raise Discard("the meeting is over")
"""

from __future__ import annotations

from delayq.clock import Duration


class Outcome(Exception):  # noqa: N818 - raised to say what to do, not that something failed
    """The base of the outcomes a callback can raise."""

    reason = ""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Retry(Outcome):
    """Deliver the message again after `delay`; takes one retry. Without a delay the queue's `nack_delay` decides."""

    delay: Duration | None = None

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(reason)
        self.delay = delay


class Reject(Outcome):
    """Move the message to the dead letter at once, with this reason, whatever retries are left."""


class Discard(Outcome):
    """Settle the message as done without having done it; counted apart from the acknowledged ones."""
