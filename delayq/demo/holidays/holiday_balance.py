"""The balance of a run: what was planned against what the queue's event log and counters tell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from delayq.queue.inspecting.counts import Stats
from delayq.queue.inspecting.event_log import MessageEvent

_LETTERS = {"sent": "s", "delivered": "d", "acked": "a", "discarded": "c", "dead": "k"}
_LETTERS |= {"nacked": "n", "expired": "x", "released": "r"}
_LIFE = re.compile("s(d[nxr])*(d|d[ac]|d[nx]k)?")
"""What may happen to a reminder: each delivery ends before the next begins, and nothing follows the end."""
ENDS = {
    "delivered_once": "",
    "delivered_after_failure": "at a later attempt",
    "delivered_after_kill": "they were in flight in the killed worker",
    "dead": "failed at every attempt; in the dead letter",
    "discarded": "no longer wanted",
    "left": "still in the queue",
}
"""What a reminder has become, and a note about it."""
Balance = dict[str, Any]
"""Counts of reminders by their ends, the ids of those that came back from the killed worker, and what is wrong."""


class ReminderLog:
    """What the event log has told so far of the reminders; `due` is when each is due, by id (ms)."""

    def __init__(self, due: Mapping[str, int]) -> None:
        self.lives: dict[str, str] = {}
        """The events of each reminder, a letter each."""
        self.holders: dict[str, str | None] = {}
        """The worker of each reminder in flight."""
        self.killed: str | None = None  # of the workers
        self._due = due
        self._redelivered: list[str] = []
        self._late: list[int] = []

    def add(self, event: MessageEvent) -> str:
        """Add an event; return the life of its reminder so far."""
        id, letter = event.id or "", _LETTERS.get(event.kind, "")
        if letter == "d":
            self.holders[id] = event.holder
        elif letter and (holder := self.holders.pop(id, None)) and letter in "xr":
            if holder == self.killed:
                self._redelivered.append(id)
            elif letter == "x":
                letter = "!"  # a living worker's lease must not expire
        life = self.lives[id] = self.lives.get(id, "") + letter
        if letter == "d" and ("d" not in life[:-1] or self.late(event) < 0):
            self._late.append(self.late(event))
        return life

    def late(self, event: MessageEvent) -> int:
        """Return how long after the due time of its reminder an event was (ms)."""
        return round(event.at.timestamp() * 1000) - self._due.get(event.id or "", 0)

    def balance(self, stats: Stats, *, interrupted: bool) -> Balance:
        """Return the balance, given what the queue has counted."""
        ends = Counter(self._end(id) for id in self._due)
        left, late = stats.counts.living, sorted(self._late) or [0]
        lost, early = ends["left"] - left, sum(one < 0 for one in late)
        unexplained = sum(_LIFE.fullmatch(life) is None for life in self.lives.values())
        logged = Counter("".join(self.lives.values()))
        apart = [kind for kind, letter in [*_LETTERS.items()][:5] if stats.totals.get(kind, 0) != logged[letter]]
        checks = {
            f"{lost} were lost": lost,
            f"{early} were delivered before their time": early,
            f"{left} were not settled in time": left and not interrupted,
            f"{unexplained} were delivered more often than explained": unexplained,
            "others than planned were delivered": self.lives.keys() - self._due.keys(),
            f"the event log and the counters differ: {', '.join(apart)}": apart,
        }
        problems = [problem for problem, wrong in checks.items() if wrong]
        late_ms = {name: late[round((len(late) - 1) * at)] for name, at in (("p50", 0.5), ("p99", 0.99), ("max", 1))}
        counts = {end: left if end == "left" else ends[end] for end in ENDS}
        facts = {"lost": lost, "early": early, "late_ms": late_ms, "redelivered": self._redelivered}
        return {"planned": len(self._due), **counts, **facts, "problems": problems, "adds_up": not problems}

    def _end(self, id: str) -> str:
        life = self.lives.get(id, "")
        if not life.endswith("a"):
            return {"k": "dead", "c": "discarded"}.get(life[-1:], "left")
        again = "after_kill" if id in self._redelivered else "after_failure" if "n" in life else "once"
        return f"delivered_{again}"


def balance_lines(balance: Balance) -> Iterator[str]:
    """Yield a balance as text."""
    yield f"\n  {balance['planned']:>6,} planned"
    for sign, (end, note) in zip("=+++++", ENDS.items(), strict=True):
        if balance[end] or end != "left":
            yield f"{sign} {balance[end]:>6,} {end.replace('_', ' '):<25} {note}".rstrip()
    late = ", ".join(f"{name} {value:,} ms" for name, value in balance["late_ms"].items())
    yield f"\n{balance['lost']:,} lost, {balance['early']:,} early; after the due time: {late}"
    yield "It adds up." if balance["adds_up"] else f"It does not add up: {'; '.join(balance['problems'])}."
