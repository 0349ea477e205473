"""What a queue knows of its cold tier: which files hold its messages, and when they were brought back last."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, NamedTuple, Self

from delayq.broker.calls import Calls
from delayq.broker.foreign import read_number
from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.values.text import relative_time
from delayq.values.times import from_millis

DAY = 86_400_000
"""Milliseconds."""
VOID = "void"
"""How a file reads in the queue that was given up before its messages were moved to it."""


_ANY = ("utf-8", "replace")


def day_of(due: int) -> date:
    """Return the day (UTC) of a time (ms)."""
    return from_millis(due).date()


class ColdFile(NamedTuple):
    """A file whose messages are cold, as the queue knows it."""

    name: str
    """Its path in the folder: `day=2027-03-01/NAME.parquet`."""
    rows: int
    back: int
    """How many of its messages, from the first on, have been brought back."""

    @property
    def day(self) -> date:
        """The day (UTC) on which its messages are due."""
        return date.fromisoformat(self.name[4:14])


@dataclass(frozen=True, slots=True)
class ColdTier:
    """The cold tier of a queue, as Redis knows it; what a file has beyond that does not count."""

    folder: str = ""
    """The id of its folder; '' if there is none yet."""
    where: str = ""
    """The path of the folder, where it was used last."""
    keep: int = 0
    """How far ahead (ms) messages were brought back last."""
    passed: int = 0
    """When that was (ms since 1970); 0 for never."""
    files: tuple[ColdFile, ...] = ()
    """In the order of their days."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Files that are being spilled: for each of their messages 1 if it was moved, else 0."""
    void: Mapping[str, int] = field(default_factory=dict)
    """Files that were given up before messages were moved to them, and when (ms)."""
    back: tuple[str, ...] = ()
    """Files that are back, and still in their place."""

    @classmethod
    def read(cls, reply: Any) -> Self:
        """Parse the hash; leaves out what delayq does not write, such as the path of a file elsewhere."""
        fields = {name.decode(*_ANY): value.decode(*_ANY) for name, value in pairs(reply).items()}
        kinds: dict[str, dict[str, str]] = {"file": {}, "moved": {}, "back": {}}
        for name, value in fields.items():
            kind, _, rest = name.partition(" ")
            if kind in kinds and _is_known(kind, rest, value):
                kinds[kind][rest] = value
        files = [ColdFile(name, *map(int, value.split(" "))) for name, value in sorted(kinds["file"].items())]
        return cls(
            folder=fields.get("folder", ""),
            where=fields.get("where", ""),
            keep=read_number(fields.get("keep", "")) or 0,
            passed=read_number(fields.get("passed", "")) or 0,
            files=tuple(files),
            moved={name: moved for name, moved in kinds["moved"].items() if not moved.startswith(VOID)},
            void={name: int(at[len(VOID) :]) for name, at in kinds["moved"].items() if at.startswith(VOID)},
            back=tuple(kinds["back"]),
        )

    @property
    def days(self) -> Mapping[date, int]:
        """How many messages are due on each day (UTC), the first day first; without those that are being spilled."""
        days = Counter[date]()
        for file in self.files:
            days[file.day] += file.rows - file.back
        return dict(sorted(days.items()))

    def due_between(self, start: int, end: int) -> int:
        """Return how many messages are due from one time (ms) until another, as if evenly over their day."""
        return self._due_before(end) - self._due_before(start)

    def _due_before(self, time: int) -> int:
        parts = ((count, min(1.0, max(0.0, (time - _starts(day)) / DAY))) for day, count in self.days.items())
        return round(sum(count * share for count, share in parts))

    def late(self, now: int) -> Mapping[date, int]:
        """Return how many messages should be back: of days that begin before half of `keep` is over."""
        until = now + self.keep // 2
        return {day: count for day, count in self.days.items() if _starts(day) <= until}

    def told(self, now: int) -> str:
        """Return that messages are late, and what to do; '' if none is."""
        late = self.late(now)
        if not late:
            return ""
        passed = f"last run {relative_time(from_millis(self.passed), from_millis(now))}" if self.passed else "never run"
        return f"{sum(late.values()):,} of {min(late)} on should be back from {self.where}: run delayq cold ({passed})"


def _is_known(kind: str, name: str, value: str) -> bool:
    """Return whether delayq writes this of a file."""
    if kind == "moved":
        return bool(re.fullmatch(r"[\w-]+", name) and re.fullmatch(r"[01]+|void \d{1,15}", value))
    found = re.fullmatch(r"day=(\d{4}-\d\d-\d\d)/[\w-]+\.parquet", name)
    try:
        date.fromisoformat(found[1] if found else "")
    except ValueError:
        return False
    return kind == "back" or re.fullmatch(r"\d{1,15} \d{1,15}", value) is not None


def read_cold(calls: Calls) -> RedisCommand[ColdTier]:
    """Read what a queue knows of its cold tier."""
    return RedisCommand(("HGETALL", calls.keys.cold), ColdTier.read)


def count_cold(calls: Calls) -> RedisCommand[int]:
    """Read how many messages of a queue are cold, those included that are being spilled."""
    return RedisCommand(("HGET", calls.keys.meta, "cold"), lambda reply: read_number(reply or b"") or 0)


def _starts(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000
