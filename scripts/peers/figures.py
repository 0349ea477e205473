"""Figures of the peers, compared with delayq, as tables."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from measure.report import WIDTH, shown
from peers.roster import RATES, Peer
from rich.table import Table

GOAL = 8.0
"""The goal: delayq is this many times as fast as the best of its peers."""

TICK = 1.0
"""Milliseconds: a message that is early by less was only rounded to a tick of the peer's clock."""


@dataclass
class Row:
    """The figures of a peer: a rate per round, and the reasons of failures."""

    peer: Peer
    rates: dict[str, list[float]] = field(default_factory=lambda: {work: [] for work in RATES})
    late: list[float] = field(default_factory=list)
    bytes: float | None = None
    day: dict[str, float] = field(default_factory=dict)
    """The figures of the ordinary day, of `DAY_COLUMNS`."""
    failures: dict[str, str] = field(default_factory=dict)

    def median(self, work: str) -> float | None:
        """The median rate of a kind of work, None if there is none."""
        return statistics.median(self.rates[work]) if self.rates[work] else None

    def late_at(self, share: float) -> float | None:
        """The percentile of lateness in milliseconds."""
        return sorted(self.late)[min(int(len(self.late) * share), len(self.late) - 1)] if self.late else None


class Multiple(NamedTuple):
    """How many times as fast as the best of its peers delayq is."""

    work: str
    peer: str
    value: float

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.value >= GOAL


def multiples(rows: list[Row]) -> list[Multiple]:
    """Compare delayq with the best of its peers, round by round. A peer's best way to send counts."""
    own = next(row for row in rows if not row.peer.requirements)
    found = []
    for work, counted in (("bulk", ("send", "bulk")), ("consume", ("consume",))):
        others = [
            (median, row.peer.name, row.rates[each])
            for row in rows
            if row is not own
            for each in counted
            if (median := row.median(each)) is not None
        ]
        if others and own.rates[work]:
            _, name, rates = max(others)
            ratios = [mine / theirs for mine, theirs in zip(own.rates[work], rates, strict=False)]
            found.append(Multiple(work, name, statistics.median(ratios)))
    return found


def sorted_rows(rows: list[Row]) -> list[Row]:
    """Return delayq first, then its peers by the rate at which they consume."""
    return sorted(rows, key=lambda row: (bool(row.peer.requirements), -(row.median("consume") or 0)))


COLUMNS = ("", "version", "send/s", "in bulk/s", "consume/s", "late p50", "late p99", "bytes", "delivery")
UNITS = ("", "", "", " ms", " ms", "")
DAY_COLUMNS = {
    "flow_cpu": "flow: CPU µs",
    "flow_commands": "flow: commands",
    "slow_cpu": "10 ms: CPU µs",
    "slow_commands": "10 ms: commands",
    "idle": "idle: commands/s",
    "near": "1 ms away: send/s",
    "far": "5 ms away: send/s",
}


def tables(rows: list[Row], title: str) -> list[Table]:
    """Return the figures as tables for the terminal."""
    rates, day = Table(*COLUMNS, title=title), Table("", *DAY_COLUMNS.values(), title="the ordinary day")
    for row in rows:
        rates.add_row(*cells(row))
        day.add_row(*day_cells(row))
    return [rates, day]


def cells(row: Row) -> list[str]:
    """Return a row as texts, under `COLUMNS`."""
    values = [*map(row.median, RATES), row.late_at(0.5), row.late_at(0.99), row.bytes]
    texts = ["–" if value is None else shown(value, unit) for value, unit in zip(values, UNITS, strict=True)]
    return [row.peer.name, row.peer.version, *texts, row.peer.delivery]


def day_cells(row: Row) -> list[str]:
    """Return the ordinary day of a row as texts, under `DAY_COLUMNS`."""
    return [row.peer.name, *(shown(row.day[name], "") if name in row.day else "–" for name in DAY_COLUMNS)]


def remarks(row: Row) -> str:
    """Return the remarks on a row in one line."""
    parts = [row.peer.remark]
    if early := [late for late in row.late if late <= -TICK]:
        parts.append(f"{len(early)} of {len(row.late)} delayed messages were early, by up to {-min(early):,.0f} ms")
    parts += [f"{work} failed: {reason}" for work, reason in row.failures.items()]
    return f"{row.peer.name}: {'; '.join(parts)}."


def verdict(found: list[Multiple]) -> str:
    """Return a sentence that compares delayq with its peers."""
    if not found:
        return "Nothing to compare delayq with."
    names = {"bulk": "sends in bulk", "consume": "consumes"}
    parts = [f"{names[one.work]} {one.value:.1f} times as fast as the best ({one.peer})" for one in found]
    missed = "" if all(one.met for one in found) else ": MISSED"
    return f"delayq {' and '.join(parts)}; goal {GOAL:g} times{missed}."


def markdown(rows: list[Row], found: list[Multiple], heading: str) -> str:
    """Return the figures as Markdown for the handbook."""
    lines = [
        *textwrap.wrap(heading, WIDTH),
        "",
        *_markdown_table(COLUMNS, map(cells, rows)),
        "",
        "The ordinary day:",
        "",
        *_markdown_table(("", *DAY_COLUMNS.values()), map(day_cells, rows)),
        "",
        *textwrap.wrap(verdict(found), WIDTH),
        "",
        *(line for row in rows for line in textwrap.wrap(f"- {remarks(row)}", WIDTH, subsequent_indent="  ")),
    ]
    return "\n".join(lines)


def _markdown_table(columns: Sequence[str], rows: Iterable[list[str]]) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *(f"| {' | '.join(row)} |" for row in rows)]


def as_json(rows: list[Row], found: list[Multiple]) -> dict[str, Any]:
    """Return all that was measured, as JSON holds it."""
    peers = {
        row.peer.name: {
            "version": row.peer.version,
            "delivery": row.peer.delivery,
            "remark": row.peer.remark,
            "rates": {work: {"median": row.median(work), "values": row.rates[work]} for work in RATES},
            "late": {"p50": row.late_at(0.5), "p99": row.late_at(0.99)},
            "bytes": row.bytes,
            "day": row.day,
            "failures": row.failures,
        }
        for row in rows
    }
    compared = {one.work: {"peer": one.peer, "multiple": one.value, "goal": GOAL, "met": one.met} for one in found}
    return {"peers": peers, "multiples": compared}
