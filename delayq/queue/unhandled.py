"""Messages that no function of this process handles, but perhaps one of another process: of a newer program, say."""

from __future__ import annotations

import logging
from typing import Any

from delayq.errors import NoCallbackError
from delayq.outcomes import Reject, Snooze
from delayq.schedules.definition import DECLARED_HEADER, HEADER
from delayq.text import format_duration

log = logging.getLogger("delayq.consumer")

ASK_AGAIN = 5
"""Seconds until the message is delivered again."""


class UnhandledMessages:
    """Leaves them to other processes until they are late by `unknown_for` (ms); then they go to the dead letter."""

    def __init__(self, queue: str, unknown_for: int) -> None:
        """Start without a message; each kind is logged once."""
        self._queue = queue
        self._seconds = unknown_for / 1000
        self._logged: set[tuple[str, str | None]] = set()

    def __call__(self, message: Any) -> None:
        """Snooze a message, or reject it."""
        name, schedule = message.name, message.headers.get(HEADER)
        advice = "register one with @queue.callback"
        if name:
            what, advice = f"messages with the name {name}", f"register one with @queue.on('{name}')"
        elif schedule is None:
            what = "this message"
        else:
            what = f"schedule {schedule}, which this program does not declare"
            advice = "remove it" if DECLARED_HEADER in message.headers else advice
        reason = f"no handler for {what}: {advice}"
        if message.lateness >= self._seconds:
            raise Reject(f"{NoCallbackError.__name__}: {reason}")
        if (name, schedule) not in self._logged:
            self._logged.add((name, schedule))
            text = "%s: %s; its messages are left to other processes until they are %s late"
            log.warning(text, self._queue, reason, format_duration(self._seconds), extra={"schedule": schedule})
        raise Snooze(ASK_AGAIN)
