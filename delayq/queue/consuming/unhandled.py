"""Messages that no function of this process takes, but perhaps one of another process: of a newer program, say."""

from __future__ import annotations

from typing import Any

from delayq.errors import DelayqError, NoCallbackError, UndecodableError
from delayq.safe_log import SafeLog
from delayq.schedules.definition import DECLARED_HEADER, HEADER
from delayq.values.outcomes import Outcome, Reject, Snooze
from delayq.values.text import format_duration
from delayq.worker.delivery.message import parts_of

log = SafeLog("delayq.consumer")

ASK_AGAIN = 5
"""Seconds until the message is delivered again."""


class LeftToOthers(Snooze):
    """Deliver the message again, perhaps to another process."""

    counted = False


class UnhandledMessages:
    """Leaves them to other processes for `unknown_for` (ms); then they go to the dead letter.

    It counts by its own returns: what has waited before, in a pause or an outage, may have met nobody.
    """

    def __init__(self, queue: str, unknown_for: int) -> None:
        """Start without a message; each kind is logged once."""
        self._queue = queue
        self._seconds = unknown_for / 1000
        self._returns = -(-unknown_for // (ASK_AGAIN * 1000))
        """After how many returns a message goes to the dead letter."""
        self._logged: set[tuple[str, str | None, type]] = set()

    def __call__(self, message: Any) -> None:
        """Snooze a message that no function takes, or reject it."""
        name, schedule = message.name, message.headers.get(HEADER)
        advice = "register one with @queue.callback"
        if name:
            what, advice = f"messages with the name {name}", f"register one with @queue.on('{name}') or @queue.task"
        elif schedule is None:
            what = "this message"
        else:
            what = f"schedule {schedule}, which this program does not declare"
            advice = "remove it" if DECLARED_HEADER in message.headers else advice
        reason = f"no handler for {what}: {advice}"
        raise self._outcome(message, reason, NoCallbackError, schedule)

    def misfit(self, message: Any, problem: str) -> Outcome:
        """Return the outcome for a message whose task takes other arguments in this process."""
        reason = f"task {message.name} does not take the arguments of this message: {problem}"
        return self._outcome(message, reason, UndecodableError, None)

    def _outcome(self, message: Any, reason: str, kind: type[DelayqError], schedule: str | None) -> Outcome:
        if parts_of(message)[0].attributes.unhandled >= self._returns:
            rejection = Reject(f"{kind.__name__}: {reason}")
            rejection._stored_as = kind.__name__  # noqa: SLF001 - the error that it stands for
            return rejection
        if (message.name, schedule, kind) not in self._logged:
            self._logged.add((message.name, schedule, kind))
            text = "%s: %s; its messages are left to other processes, each for %s in all"
            log.warning(text, self._queue, reason, format_duration(self._seconds), extra={"schedule": schedule})
        return LeftToOthers(ASK_AGAIN)
