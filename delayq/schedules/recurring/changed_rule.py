"""A rule with changes of single occurrences: some are skipped, some are moved to another time.

Pure, and a function of the definition alone, so that all consumers compute the same. An occurrence is known by the time
that the rule gives it, also when it is moved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Protocol


class OccurrenceRule(Protocol):
    """What a timetable asks of a rule; times in milliseconds."""

    def after(self, time: int) -> int | None:
        """Return the first occurrence after a time."""

    def up_to(self, time: int) -> int | None:
        """Return the last occurrence that is not after a time."""

    def gap(self, time: int) -> int:
        """Return the milliseconds from an occurrence to the next."""


class ChangedRule:
    """The occurrences of a rule from a start to an end, with some skipped and some moved.

    Each is due at a time of its own: one that is moved to the time of another is due a millisecond later.
    """

    def __init__(
        self, rule: OccurrenceRule, start: int | None, end: int | None, changes: Mapping[int, int | None]
    ) -> None:
        """`changes` has the new times of moved occurrences, None for skipped ones, and 0 for some that have fired.

        Changes of times at which the rule has no occurrence count for nothing.
        """
        self.plain = rule
        self._start = 0 if start is None else start
        self._end = end
        self._changes = changes
        self._origins: dict[int, int] = {}
        for time, origin in sorted((time, origin) for origin, time in changes.items() if time is not None):
            if time and self.has(origin):
                due = time
                while due in self._origins or (self.has(due) and due not in changes):
                    due += 1
                self._origins[due] = origin
        self._moved = sorted(self._origins)
        self._dues: dict[int, int | None] = {origin: 0 for origin, time in changes.items() if time == 0}
        self._dues |= {origin: due for due, origin in self._origins.items()}

    def has(self, time: int) -> bool:
        """Return whether the rule itself has an occurrence at a time, changed or not."""
        return self._start <= time and not self._is_over(time) and self.plain.up_to(time) == time

    def origin(self, due: int) -> int:
        """Return the time that the rule gives the occurrence that is due at a time."""
        return self._origins.get(due, due)

    def due(self, origin: int) -> int | None:
        """Return when an occurrence of the rule is due; None if it is skipped, 0 if it was before its time."""
        return self._dues.get(origin) if origin in self._changes else origin

    def after(self, time: int) -> int | None:
        """Return the first occurrence after a time."""
        found = self.plain.after(max(time, self._start - 1))
        while found is not None and found in self._changes and not self._is_over(found):
            found = self.plain.after(found)
        if found is not None and self._is_over(found):
            found = None
        index = bisect_right(self._moved, time)
        if index == len(self._moved) or (found is not None and found < self._moved[index]):
            return found
        return self._moved[index]

    def up_to(self, time: int) -> int | None:
        """Return the last occurrence that is not after a time."""
        found = self.plain.up_to(time if self._end is None else min(time, self._end))
        while found is not None and found in self._changes and found >= self._start:
            found = self.plain.up_to(found - 1)
        if found is not None and found < self._start:
            found = None
        index = bisect_right(self._moved, time)
        if index == 0 or (found is not None and found > self._moved[index - 1]):
            return found
        return self._moved[index - 1]

    def gap(self, time: int) -> int:
        """Return the milliseconds from an occurrence to the next of the rule, as if neither were changed."""
        return self.plain.gap(self.origin(time))

    def between(self, since: int, until: int, limit: int) -> list[int]:
        """Return up to `limit` occurrences that are due from a time on and before another."""
        found: list[int] = []
        at = self.after(since - 1)
        while at is not None and at < until and len(found) < limit:
            found.append(at)
            at = self.after(at)
        return found

    def kept(self, horizon: int) -> dict[int, int | None]:
        """Return the changes that still count once all that was due up to a time is over.

        An occurrence that was due then in place of later is moved to 0, so that it can be told from a skipped one.
        """
        kept: dict[int, int | None] = {}
        for origin, time in sorted(self._changes.items()):
            due = self.due(origin)
            if self.has(origin) and max(origin, due or 0) > horizon:
                kept[origin] = 0 if due is not None and due <= horizon else time
        return kept

    def _is_over(self, time: int) -> bool:
        return self._end is not None and time > self._end
