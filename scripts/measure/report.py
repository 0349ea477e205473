"""What was measured, to be read: as JSON, as a table for the terminal, and as Markdown for the pages."""

from __future__ import annotations

import os
import platform
import textwrap
from datetime import UTC, datetime
from math import floor, log10
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from measure.figure import Figure, Results

SHORT = (
    "alone_server",
    "flow_200_server",
    "flow_200_commands",
    "idle_20",
    "lateness_1000_p99",
    "send_client",
    "send_many",
    "consume_10",
    "memory",
)
"""The figures of the short table: the ordinary day first, bulk second."""


WIDTH = 118
"""Characters of a line of prose."""
DIGITS = 3
"""Significant digits."""


class Setting(NamedTuple):
    """The machine and versions of a measurement."""

    date: str
    cores: int
    processor: str
    redis: str
    python: str
    rounds: int

    @classmethod
    def here(cls, redis: str, rounds: int) -> Setting:
        """Return the setting of a run on this machine."""
        date = datetime.now(UTC).strftime("%Y-%m-%d")
        return cls(date, os.cpu_count() or 1, _processor(), redis, platform.python_version(), rounds)

    def __str__(self) -> str:
        """Return it in one line."""
        versions = f"Redis {self.redis}, Python {self.python}"
        rounds = f"medians of {self.rounds} rounds" if self.rounds > 1 else "one round"
        return f"{self.date}, {self.cores} cores ({self.processor}), {versions}, 64-byte payloads, {rounds}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def as_json(results: Results, setting: Setting) -> dict[str, Any]:
    """Return all results for JSON."""
    return {**setting._asdict(), **results._asdict(), "figures": figure_rows(results.figures)}


def figure_rows(figures: list[Figure]) -> dict[str, Any]:
    """Return figures for JSON, by name."""
    return {
        figure.name: {
            "title": figure.title,
            "unit": figure.unit.strip(),
            "median": figure.median,
            "values": figure.values,
            "reference_name": figure.reference_name if figure.references else None,
            "references": figure.references,
            "ratio": figure.ratio,
            "goal": figure.goal.text if figure.goal else None,
            "met": figure.met,
            "note": figure.note,
        }
        for figure in figures
    }


def figure_table(figures: list[Figure], title: str) -> Table:
    """Return figures as a table for the terminal."""
    table = Table("figure", "median", "range", "compared with", "ratio", "goal", "", title=title)
    for figure in figures:
        mark = ("met" if figure.met else "MISSED") if figure.goal else ""
        cells = _cells(figure)
        table.add_row(cells[0].replace("`", ""), *cells[1:], mark)
    return table


def whole_table(results: Results, setting: Setting) -> str:
    """Return every figure as Markdown."""
    rows = [["figure", "median", "range", "compared with", "ratio", "goal"], ["---"] * 6, *map(_cells, results.figures)]
    return _page(rows, results, setting)


def short_table(results: Results, setting: Setting) -> str:
    """Return the most important figures as Markdown, one per row."""
    known = {figure.name: figure for figure in results.figures}
    rows = [["", "measured", "compared with", "goal"], ["---"] * 4]
    for name in SHORT:
        if name not in known:
            continue
        figure = known[name]
        compared = f"{figure.ratio:.2f} of {figure.reference_name}" if figure.ratio is not None else ""
        rows.append(
            [figure.title, shown(figure.median, figure.unit), compared, figure.goal.text if figure.goal else ""]
        )
    return _page(rows, results, setting)


def _page(rows: list[list[str]], results: Results, setting: Setting) -> str:
    prose = [f"Measured by `make bench` on {setting}."]
    prose += [f"Left out: {reason}." for reason in results.left_out.values()]
    return "\n".join([*textwrap.wrap(" ".join(prose), WIDTH), "", *(f"| {' | '.join(row)} |" for row in rows)])


def missed(figure: Figure) -> str:
    """Return a line about a missed goal."""
    _, median, span, _, ratio, goal = _cells(figure)
    return f"{figure.title}: {median} ({span}){', ratio ' + ratio if ratio else ''}; goal {goal}"


def _cells(figure: Figure) -> list[str]:
    unit = figure.unit
    ends = [shown(end, "") for end in (min(figure.values), max(figure.values))]
    reference = f"{figure.reference_name} {shown(figure.reference, unit)}" if figure.reference is not None else ""
    return [
        f"{figure.title} ({figure.note})" if figure.note else figure.title,
        shown(figure.median, unit),
        "–".join(dict.fromkeys(ends)),
        reference,
        f"{figure.ratio:.2f}" if figure.ratio is not None else "",
        figure.goal.text if figure.goal else "",
    ]


def shown(value: float, unit: str) -> str:
    """Return a value with three significant digits and its unit."""
    if value:
        value = round(value, DIGITS - 1 - floor(log10(abs(value))))
    text = f"{value:,.0f}" if value == int(value) else f"{value:.{DIGITS}g}"
    return f"{text}{unit}"
