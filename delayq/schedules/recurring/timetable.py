"""Works out when a schedule occurs: a rule with a start, an end and a count, and missed occurrences.

Pure: no clock and no Redis. All times are milliseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from delayq.schedules.recurring.changed_rule import OccurrenceRule
from delayq.schedules.recurring.local_times import MAX_LATE
from delayq.values.times import LATEST

MAX_FIRED = 1000
"""The maximum of occurrences that fire at a time, and of missed ones that are sent after all."""


class DueOccurrences(NamedTuple):
    """The occurrences to fire now, and the next one (None if there is none)."""

    times: list[int]
    next: int | None
    missed: bool
    """Whether some are later than `late_after`."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """A rule with a start, an end and a count, and what to do with missed occurrences."""

    rule: OccurrenceRule
    start: int | None = None
    end: int | None = None
    count: int | None = None
    makes_up: int = 1
    """How many missed occurrences fire after all: the latest ones."""
    late_after: int | None = None
    """Milliseconds after which an occurrence counts as missed; None for `MAX_LATE`, or the gap to the next if less."""

    def after(self, time: int, fired: int = 0) -> int | None:
        """Return the first occurrence after a time, if `fired` occurrences have been fired before."""
        if self.count is not None and fired >= self.count:
            return None
        found = self.rule.after(time if self.start is None else max(time, self.start - 1))
        return None if found is None or found > self._end else found

    def upcoming(self, at: int | None, n: int, fired: int = 0) -> list[int]:
        """Return up to `n` occurrences, beginning with `at`."""
        found: list[int] = []
        while at is not None and len(found) < n:
            found.append(at)
            at = self.after(at, fired + len(found))
        return found

    def due(self, at: int, now: int, fired: int = 0, *, ahead: int = 0, limit: int = MAX_FIRED) -> DueOccurrences:
        """Return which occurrences to fire, beginning with `at`, if `fired` occurrences have been fired before.

        Includes occurrences up to `ahead` milliseconds from now, and at most `limit`. The work is bounded, however
        many were missed.
        """
        limit = limit if self.count is None else min(limit, self.count - fired)
        on_time = now - self.tolerance(at)
        missed = at < on_time
        times = self._missed(at, on_time) if missed else []
        upcoming = self.after(on_time - 1) if missed else at
        while upcoming is not None and upcoming <= now + ahead and len(times) < limit:
            times.append(upcoming)
            upcoming = self.after(upcoming)
        if len(times) > limit:
            times, upcoming = times[:limit], times[limit]
        done = self.count is not None and fired + len(times) >= self.count
        return DueOccurrences(times, None if done else upcoming, missed)

    def tolerance(self, at: int) -> int:
        """Return the milliseconds after which the occurrence at this time counts as missed."""
        return min(MAX_LATE, self.rule.gap(at)) if self.late_after is None else self.late_after

    def _missed(self, at: int, on_time: int) -> list[int]:
        """Return the missed occurrences that fire after all, from `at` on."""
        found: list[int] = []
        time = self.rule.up_to(min(on_time - 1, self._end)) if self.makes_up else None
        while time is not None and time >= at and len(found) < self.makes_up:
            found.append(time)
            time = self.rule.up_to(time - 1)
        return found[::-1]

    @property
    def _end(self) -> int:
        return LATEST if self.end is None else self.end
