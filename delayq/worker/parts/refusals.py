"""What Redis refuses a consumer: it pauses, tries again, and says so once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delayq.errors import DelayqError
from delayq.safe_log import SafeLog

log = SafeLog("delayq.consumer")

ERROR_WAIT = 1.0
"""Seconds until the next try after Redis refused a call."""


class Refusals:
    """The calls that Redis has refused of late. Times are local and monotonic, in seconds."""

    def __init__(self) -> None:
        self.error: DelayqError | None = None
        """What Redis refused in the last turn; None if nothing."""
        self.wait_until = 0.0
        """When to try again."""
        self.of_settlements = False
        """Whether settlements are refused: what starts meanwhile could not be settled either."""

    def read_settlements(self, replies: Sequence[Any]) -> None:
        """Note the replies to the settlements of a turn."""
        refused = any(isinstance(reply, DelayqError) for reply in replies)
        if replies and refused != self.of_settlements:
            self.of_settlements = refused
            if not refused:
                log.info("Redis accepts settlements again")

    def read_turn(self, error: DelayqError | None, now: float, *, stopping: bool) -> None:
        """Note the first error of a turn, None for none."""
        if error:
            self.wait_until = now + ERROR_WAIT
            if not stopping and str(error) != str(self.error):
                meanwhile = ", claiming nothing meanwhile" if self.of_settlements else ""
                log.error("Redis refused a call, retrying every %g s%s: %s", ERROR_WAIT, meanwhile, error)
        if now >= self.wait_until or error:  # a turn during the pause may have asked nothing that fails
            if self.error and not error:
                log.warning("Redis refuses no call any more")
            self.error = error
