"""The schedules that a consumer fires: read in one turn, fired in the next, a little ahead of their time.

Every consumer does so. Which of them stores an occurrence is decided by the script, and by it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from delayq.calls import Calls
from delayq.errors import DelayqError
from delayq.schedules.standing import DueSchedules
from delayq.script import MOST_IDS
from delayq.values import Firing

if TYPE_CHECKING:
    from delayq.schedules.timetable import Taken

log = logging.getLogger("delayq.schedules")

AHEAD = 100
"""Milliseconds by which an occurrence is fired ahead: its message is in its place when it is due."""
AT_ONCE = 200
"""Schedules read at a time: to find their next occurrences takes some milliseconds."""
ROOM = 1 << 20
"""Bytes of definitions and payloads that are read at a time."""
SOON = 0.005
"""Seconds until another look where the first came too early, since clocks differ by a little."""
AFTER_TROUBLE = 1.0
"""Seconds until the next try after Redis has refused one."""


class Recurring:
    """What is known of the schedules of a queue. Times are local and monotonic, in seconds."""

    def __init__(self, calls: Calls, tick: float) -> None:
        """Know of no schedule yet; look once a `tick` at those that cannot be fired here."""
        self._calls = calls
        self._tick = tick
        self._occurs_at: float | None = None
        self._rest_until = 0.0
        self._read: list[tuple[Firing, Taken]] = []
        self._complete = True
        self._left_out = 0
        self._told: dict[str, str] = {}
        self._trouble = ""
        self._now = 0.0

    def occurs(self, at: float | None) -> None:
        """Take in when the next schedule occurs."""
        self._occurs_at = at

    @property
    def at(self) -> float | None:
        """When there is something to do next; None for never."""
        if self._read or not self._complete:
            return self._rest_until
        return None if self._occurs_at is None else max(self._occurs_at - AHEAD / 1000, self._rest_until)

    def plan(self, now: float) -> Iterator[tuple[Any, Callable[[Any], None]]]:
        """Yield the calls of a turn, each with the reader of its answer, which takes an error as well."""
        self._now = now
        at = self.at
        if at is None or at > now:
            return
        if self._read:
            yield self._calls.fire([row for row, _ in self._read]), self.take_fired
        if not self._read or not self._complete:
            options = {"ahead": AHEAD, "offset": self._left_out, "limit": AT_ONCE, "room": ROOM}
            yield self._calls.schedules_due(**options), self.take_due

    @property
    def readers(self) -> tuple[Callable[[Any], None], ...]:
        """The readers that take an error: what is wrong with schedules keeps a consumer from nothing else."""
        return self.take_fired, self.take_due

    def take_fired(self, answer: str | DelayqError) -> None:
        """Take in which schedules this consumer has fired, and which others have."""
        rows, self._read = self._read, []
        if isinstance(answer, DelayqError):
            self._refused(answer)
            return
        self._trouble = ""
        for (row, taken), digit in zip(rows, answer, strict=True):
            if digit == "1" and taken.missed:
                text = "schedule %s: occurrences were missed, %d are made up for"
                log.warning(text, row.name, len(taken.times), extra={"schedule": row.name})

    def take_due(self, answer: DueSchedules | DelayqError) -> None:
        """Take in which schedules are due, and work out what they fire."""
        if isinstance(answer, DelayqError):
            self._complete, self._left_out = True, 0
            self._refused(answer)
            return
        from delayq.schedules.definition import firing  # which takes its time, and most queues have no schedules

        size, unable = 0, 0
        self._complete = answer.complete
        for standing in answer.schedules:
            try:
                row, taken = firing(standing, answer.now, ahead=AHEAD)
            except DelayqError as error:
                unable += 1
                if self._told.get(standing.name) != standing.revision:
                    self._told[standing.name] = standing.revision
                    text = "schedule %s cannot be fired here: %s"
                    log.error(text, standing.name, error, extra={"schedule": standing.name})  # noqa: TRY400 - one line
                continue
            size += len(taken.times)
            if self._read and size > MOST_IDS:
                self._complete = False
                break
            self._read.append((row, taken))
        # Those that cannot be fired stay at the front, and are left out when the next ones are read.
        self._left_out = 0 if self._complete else self._left_out + unable
        if self._complete and not self._read:
            self._rest_until = self._now + (self._tick if unable else SOON)

    def _refused(self, error: DelayqError) -> None:
        self._rest_until = self._now + AFTER_TROUBLE
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.error("Redis refused to fire schedules, trying again: %s", error)
