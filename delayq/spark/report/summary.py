"""The summary of a report for a terminal: what happened, whether it adds up, how late, and what died of what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from delayq.spark.account import Account, Row, Tabled, account, counted, duration, period, plain

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_ROWS = 5
"""Reasons and errors shown; there are more in the tables."""

_MARKS = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("–", "bright_black")}


def summary(reports: Tabled) -> RenderableType:
    """Return what a terminal shows of reports, for `delayq.cli.output.show` (which heeds NO_COLOR)."""
    from rich.console import Group

    tables = reports.tables()
    told = account(tables)
    if told.is_empty:
        return told.sentence
    parts: list[Any] = [told.sentence, period(told.log), "", _verdicts(told), "", _lateness(told), "", _events(told)]
    for name, number in (("dead", "deaths"), ("errors", "failures")):
        rows = tables[name].slice(0, MOST_ROWS).to_pylist()
        if rows:
            parts += ["", _reasons(rows, number, tables[name].num_rows)]
    return Group(*parts)


def _verdicts(told: Account) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    for one in told.verdicts:
        mark, style = _MARKS[one.holds]
        grid.add_row(Text(mark, style), one.title, one.text)
    return grid


def _lateness(told: Account) -> RenderableType:
    names = ("p50_ms", "p90_ms", "p99_ms", "max_ms")
    late = told.late or {}
    marks = [duration(late.get(name)) or "–" for name in names]
    return _table(["lateness", *(f">{name[:3]}" for name in names)], [["of first attempts", *marks]])


def _events(told: Account) -> RenderableType:
    seen = [[kind, f"{number:,}"] for kind, number in told.kinds.items() if number]
    return _table(["kind", ">events"], seen)


def _reasons(rows: list[Row], number: str, known: int) -> RenderableType:
    (what,) = rows[0].keys() & {"reason", "error"}
    title = what if known <= len(rows) else f"{what} (first {len(rows)} of {counted(known, what)})"
    shown = [[f"{row[number]:,}", f"{row['messages']:,}", plain(row[what]) or "(no text)"] for row in rows]
    return _table([f">{number}", ">messages", title], shown)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """Return a table; a `>` before a title sets its column to the right."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        right = title.startswith(">")
        grid.add_column(title.removeprefix(">"), justify="right" if right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))  # brackets in an error are no markup
    return grid
