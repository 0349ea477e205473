"""Exceptions that a callback raises to decide what happens to its message.

Returning anything but `False` acknowledges it; `False` or another exception takes one retry. Or raise one of these:

    raise Retry("rate limited", delay="5m")
    raise Snooze("1h")
    raise RateLimited("30s")
    raise Reject("no such user")
    raise Discard("the meeting is over")
    raise StopWorker("the mail server refuses the password")

An invalid delay is a `ConfigurationError` where the outcome is made, and so is a reason that is a duration.
"""

from __future__ import annotations

from typing import Literal

from delayq.errors import ConfigurationError, short_repr
from delayq.values.times import Duration, reads_as_duration, to_millis


class Outcome(Exception):  # noqa: N818 - an instruction, not a failure
    """The base class of the outcomes a callback can raise."""

    reason = ""
    _stored_as = ""
    """What is stored in place of the class name, with `keep_errors="class"`; '' for that name."""
    _instead_of_duration = "{0} has no delay: write {0}('why'), or Snooze({1}) to deliver the message again later"
    """What to write in place of an outcome of this class with this duration for a reason."""

    def __init__(self, reason: str = "") -> None:
        if reads_as_duration(reason):
            name, given = type(self).__name__, short_repr(reason)
            advice = self._instead_of_duration.format(name, given)
            text = f"the reason of {name} must be a text that says why, and {given} reads as a duration: {advice}"
            raise ConfigurationError(text)
        super().__init__(reason)
        self.reason = reason


class Retry(Outcome):
    """Retry the message after `delay`, by default the queue's `nack_delay`; takes one retry."""

    delay: Duration | None = None
    _instead_of_duration = "write {0}('why', delay={1})"

    def __init__(self, reason: str = "", *, delay: Duration | None = None) -> None:
        super().__init__(reason)
        if delay is not None:
            to_millis(delay, "delay")
        self.delay = delay


class Snooze(Outcome):
    """Deliver the message again after `delay`, as if this delivery had not been: it takes no retry and no attempt.

    After `max_snoozes` of them, one more counts as a failure.
    """

    counted = True
    """Whether it counts for `max_snoozes`; one that does not counts for `unknown_for`."""
    _instead_of_duration = "write {0}(delay, 'why')"

    def __init__(self, delay: Duration, reason: str = "") -> None:
        super().__init__(reason)
        to_millis(delay, "delay")
        self.delay = delay


class RateLimited(Snooze):
    """Snooze the message for `delay`, and start no other of its name, or of the queue, before this is over.

    For a service that refuses more calls for a time. `scope` is `name`, `queue`, or `message` for this one alone, as it
    is for a message without a name. Others of the scope wait. This process starts nothing more of what it has claimed;
    another one may start what it claimed before, 0.1 s of work by default.
    """

    def __init__(
        self, delay: Duration, reason: str = "", *, scope: Literal["name", "queue", "message"] = "name"
    ) -> None:
        super().__init__(delay, reason)
        if scope not in ("name", "queue", "message"):
            raise ConfigurationError(f"scope must be 'name', 'queue' or 'message', not {short_repr(scope)}")
        self.scope = scope


class Reject(Outcome):
    """Move the message to the dead letter at once, with this reason, even if retries are left."""


class Discard(Outcome):
    """Settle the message without processing it; counted separately from acknowledged messages."""


class StopWorker(Outcome):
    """Return the message to the queue as if it had not been delivered, and stop the consumer: no message can succeed.

    It takes no retry and no attempt. Callbacks that run may finish, and no other starts. `run` and `wait` then raise
    `StoppedByCallbackError` with this reason; a `lease` returns its messages and raises this on.
    """
