"""The overview of a report: the main figures and checks that page and summary start with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from delayq.queue.inspecting.counts import Stats
from delayq.values.text import format_duration, iso, pluralize

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]

FAILURES = ("nacked", "expired", "rejected")
"""How a delivery fails; a rejected message goes to the dead letter at once."""
OUTCOMES = ("acked", "discarded", "released", *FAILURES)
"""How a delivery ends."""

MAX_LATE_MS = 300_000
"""How late a first attempt may be, as in an audit without an objective."""
_MINUTE = 60_000
"""Milliseconds; from here on a duration has two units."""


_STATES = {"pending": "pending", "ready": "ready", "active": "in flight", "backoff": "in backoff", "dead": "dead"}


@dataclass(frozen=True, slots=True)
class Check:
    """A promise of the queue: whether the log confirms it (None: unknown), and a sentence about it."""

    passed: bool | None
    title: str
    text: str

    @property
    def mark(self) -> str:
        """A sign for it in texts: ✓, ✗, or – if it is unknown."""
        return {True: "✓", False: "✗", None: "–"}[self.passed]


@dataclass(frozen=True, slots=True)
class Overview:
    """The main figures of an event log."""

    log: Row
    kinds: dict[str, int]
    """Events of each kind."""
    late: Row | None
    """Percentiles of the lateness of first attempts; None if there are none."""
    failures: int
    """Failed deliveries."""
    redeliveries: dict[str, int]
    """Explained deliveries after the first of a life, by the event before."""
    unexplained: int
    """Deliveries without an explanation."""
    acked_twice: int

    @property
    def is_empty(self) -> bool:
        """Whether the log has no events."""
        return not self.log["events"]

    @property
    def sentence(self) -> str:
        """The overview in one sentence."""
        if self.is_empty:
            return "The log has no events."
        ends = {name: self.kinds[name] for name in ("acked", "discarded", "cancelled", "dead")}
        parts = [f"{number:,} {name}" for name, number in ends.items() if number]
        lasted = duration((self.log["last"] - self.log["first"]) / timedelta(milliseconds=1))
        return f"{pluralize(self.log['messages'], 'message')} in {lasted}: {', '.join(parts) or 'none has ended'}."

    @property
    def checks(self) -> list[Check]:
        """What the queue promises, in the order that people ask: was anything lost, early, late, twice or dead."""
        if self.is_empty:
            return []
        again, lost = sum(self.redeliveries.values()), self.redeliveries.get("expired", 0)
        redelivered = f"Redelivered after a failure or release: {again:,}; without explanation: {self.unexplained:,}."
        acked_twice = f"Messages acked again in the same life: {self.acked_twice:,}."
        run_twice = f"Redelivered after an expired lease: {lost:,}. Their callbacks may have run twice."
        return [
            self._complete(),
            self._punctual(),
            self._in_time(),
            Check(not self.unexplained, "No duplicates", redelivered),
            Check(not self.acked_twice, "Acked once", acked_twice),
            *([Check(None, "Possibly run twice", run_twice)] if lost else []),
            Check(
                not self.kinds["dead"], "None dead", f"Messages that went to the dead letter: {self.kinds['dead']:,}."
            ),
        ]

    def _punctual(self) -> Check:
        if self.late is None:
            return Check(None, "Never early", "There were no first attempts.")
        early, attempts = self.late["early"], pluralize(self.late["deliveries"], "first attempt")
        return Check(not early, "Never early", f"Delivered before the due time: {early:,} of {attempts}.")

    def _in_time(self) -> Check:
        if self.late is None:
            return Check(None, "In time", "There were no first attempts.")
        latest = duration(self.late["max_ms"])
        text = f"The latest first attempt was {latest} late, half of them at most {duration(self.late['p50_ms'])}."
        return Check(self.late["max_ms"] <= MAX_LATE_MS, "In time", text)

    def _complete(self) -> Check:
        missing, ends = self.log["missing"], f"from offset {self.log['first_offset']:,} to {self.log['last_offset']:,}"
        if missing is None:
            text = "Missing entries cannot be detected: before Redis 7, entries are numbered by time."
            return Check(None, "Complete log", text)
        text = f"Entries missing {ends}: {missing:,}."
        if missing > 0:
            text += " The figures of this report may be wrong."
        elif missing < 0:
            text = f"Duplicate entries {ends}, counted twice in this report: {-missing:,}."
        return Check(missing == 0, "Complete log", text)


def overview_of(tables: Mapping[str, pa.Table]) -> Overview:
    """Return the overview of the tables of a report."""
    overall = tables["lateness_overall"].to_pylist()
    again = tables["redeliveries"].to_pylist()
    unexplained = [row for row in again if not row["explained"]]
    return Overview(
        log=tables["log"].to_pylist()[0],
        kinds={row["kind"]: row["events"] for row in tables["totals"].to_pylist()},
        late=overall[0] if overall else None,
        failures=sum(row[failure] for row in tables["funnel"].to_pylist() for failure in FAILURES),
        redeliveries={row["after"]: row["events"] for row in again if row["explained"]},
        unexplained=sum(row["events"] for row in unexplained if row["kind"] == "delivered"),
        acked_twice=sum(row["events"] for row in unexplained if row["kind"] != "delivered"),
    )


def facts_of(overview: Overview) -> Row:
    """Return the main figures for programs, ready for JSON."""
    return {
        **{name: iso(value) if isinstance(value, datetime) else value for name, value in overview.log.items()},
        "kinds": overview.kinds,
        "lateness": overview.late,
        "failures": overview.failures,
        "redeliveries": overview.redeliveries,
        "unexplained": overview.unexplained,
        "acked_twice": overview.acked_twice,
        "checks": [{"title": one.title, "passed": one.passed, "text": one.text} for one in overview.checks],
    }


def now_of(stats: Stats) -> str:
    """Return in one sentence what is in the queue now."""
    counts = stats.counts
    parts = [f"{getattr(counts, name):,} {title}" for name, title in _STATES.items()]
    due = f"; the next is due at {_clock(stats.next_due)} UTC" if stats.next_due else ""
    return f"In the queue at {_clock(stats.at)} UTC: {', '.join(parts)}{due}."


def period(log: Row) -> str:
    """Return the period that a log covers, to the second, in UTC."""
    first, last = (_clock(log[end]) for end in ("first", "last"))
    return f"{first} to {last.removeprefix(first[:11]) if first[:10] == last[:10] else last} UTC"


def duration(ms: float | None) -> str:
    """Return milliseconds in readable units, such as 250 ms, 59.9 s and 1 min 38 s; '' for None."""
    if ms is None:
        return ""
    size = abs(ms)
    if size < _MINUTE:
        number, unit = (ms / 1000, "s") if size >= 1000 else (ms, "ms")  # noqa: PLR2004 - a second
        return f"{number:,.0f} {unit}" if abs(number) >= 100 else f"{number:.3g} {unit}"  # noqa: PLR2004 - three digits
    parts = format_duration(size / 1000).replace("m", "min").split()
    text = " ".join(f"{int(part.rstrip('dhmins')):,} {part.lstrip('0123456789')}" for part in parts)
    return f"-{text}" if ms < 0 else text


def _clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
