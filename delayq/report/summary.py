"""The summary of a report for a terminal: overview, checks, lateness, events, and the main errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from delayq.report.overview import Overview, Row, duration, overview_of, period
from delayq.values.text import clean, pluralize

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS = 5
"""Reasons and errors shown; the tables have more."""

_STYLES = {True: "green", False: "bold red", None: "bright_black"}


def summary(tables: Mapping[str, pa.Table]) -> RenderableType:
    """Return the summary of a report's tables, to be printed with rich."""
    overview = overview_of(tables)
    if overview.is_empty:
        return overview.sentence
    parts: list[Any] = [
        overview.sentence,
        period(overview.log),
        "",
        _checks(overview),
        "",
        _lateness(overview),
        "",
        _events(overview),
    ]
    for name, number in (("dead", "deaths"), ("errors", "failures")):
        rows = tables[name].slice(0, MAX_ROWS).to_pylist()
        if rows:
            parts += ["", _reasons(rows, number, tables[name].num_rows)]
    return Group(*parts)


def _checks(overview: Overview) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for one in overview.checks:
        grid.add_row(Text(one.mark, _STYLES[one.passed]), one.title, one.text)
    return grid


def _lateness(overview: Overview) -> RenderableType:
    names = ("p50_ms", "p90_ms", "p99_ms", "max_ms")
    late = overview.late or {}
    values = [duration(late.get(name)) or "–" for name in names]
    return _table(["lateness", *(f">{name[:3]}" for name in names)], [["of first attempts", *values]])


def _events(overview: Overview) -> RenderableType:
    seen = [[kind, f"{number:,}"] for kind, number in overview.kinds.items() if number]
    return _table(["kind", ">events"], seen)


def _reasons(rows: list[Row], number: str, known: int) -> RenderableType:
    (what,) = rows[0].keys() & {"reason", "error"}
    title = what if known <= len(rows) else f"{what} (first {len(rows)} of {pluralize(known, what)})"
    shown = [[f"{row[number]:,}", f"{row['messages']:,}", clean(row[what]) or "(no text)"] for row in rows]
    return _table([f">{number}", ">messages", title], shown)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """Return a table; a `>` before a title aligns its column to the right."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        right = title.startswith(">")
        grid.add_column(title.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))  # Text: brackets in an error are not markup
    return grid
