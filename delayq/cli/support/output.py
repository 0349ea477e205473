"""Printing: results go to stdout, as tables or JSON; notes go to stderr."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from delayq.values.codec import inert
from delayq.values.text import clean, iso

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

UNLIMITED = 10_000
"""The width in characters where the output is not a terminal: nothing is truncated there."""
MIN_FILLED = 12
"""Characters of a last column that is cut: if there is room for fewer, each cell gets a line."""


def print_note(text: str) -> None:
    """Print a line on stderr: what is not part of the result."""
    click.echo(clean(text), err=True)


def print_line(text: str) -> None:
    """Print a line of the result."""
    click.echo(clean(text))


_of_queue: ContextVar[str] = ContextVar("delayq_queue", default="")


@contextmanager
def json_of_queue(name: str) -> Iterator[None]:
    """Let JSON that is printed begin with the name of its queue: there are several."""
    token = _of_queue.set(name)
    try:
        yield
    finally:
        _of_queue.reset(token)


def print_json(value: Any) -> None:
    """Print a result as one JSON document on one line."""
    click.echo(json_line(value))


def json_line(value: Any) -> str:
    """Return a result as one JSON document, with its queue if it is one of several."""
    return to_json({"queue": _of_queue.get(), **value} if _of_queue.get() else value)


def print_result(result: Any, *lines: str, as_json: bool) -> None:
    """Print a result as JSON, or as lines of text."""
    for line in [to_json(result)] if as_json else map(clean, lines):
        click.echo(line)


def json_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass for JSON."""
    return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}


def json_value(value: Any) -> Any:
    """Return a value for JSON, also within others: times in ISO 8601, durations in seconds, dataclasses as objects."""
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {name: json_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(one) for one in value]
    return json_fields(value) if dataclasses.is_dataclass(value) else value


def to_json(value: Any) -> str:
    """Return JSON without control characters that a terminal would interpret."""
    try:
        return inert(msgspec.json.encode(value, enc_hook=str))
    except UnicodeEncodeError:  # the name of a file may be no text
        return json.dumps(msgspec.to_builtins(value, enc_hook=str))


def console(*, stderr: bool = False) -> Console:
    """Return a rich console: plain text without a terminal, no colours under NO_COLOR."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    wide = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(
        file=stream,
        width=UNLIMITED if wide else None,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str | int]],
    *,
    fill: bool = False,
    wrap: bool = False,
    head: bool = True,
) -> RenderableType:
    """Return a table of cleaned cells: numbers to the right, texts on one line.

    With `fill`, the last column is cut to the width that the others leave, or with `wrap` broken into lines. A table
    that is wider than the terminal becomes a list of its rows, one cell a line. Without `head`, the titles are not
    shown.
    """
    from rich.cells import cell_len
    from rich.segment import Segment, Segments
    from rich.style import Style
    from rich.table import Table

    given = list(rows)
    width = console().width
    fill = fill and width < UNLIMITED
    cells = _cell_texts(given)
    widths = [max(map(cell_len, column)) for column in zip(titles, *cells, strict=True)]
    if fill:
        widths[-1] = min(widths[-1], MIN_FILLED)
    if sum(widths) + 2 * (len(widths) - 1) > width:
        return _records(titles, cells)
    if given and not fill:  # everything fits: a grid would take a millisecond for each row
        lines = plain_rows(titles, given, [0] * len(titles), head=head)
        end = lines.index("\n") if head else 0
        return Segments([Segment(lines[:end], Style(bold=True)), Segment(lines[end:] + "\n")])
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=head, expand=fill)
    for title, cell in zip(titles, given[0] if given else titles, strict=True):
        grid.add_column(title, justify="right" if isinstance(cell, int) else "left", no_wrap=True, header_style="bold")
    if fill:
        grid.columns[-1].ratio, grid.columns[-1].no_wrap = 1, not wrap
    for row in cells:
        grid.add_row(*row)
    return grid


def _cell_texts(rows: Iterable[Sequence[str | int]]) -> list[list[str]]:
    return [[f"{cell:,}" if isinstance(cell, int) else clean(cell) for cell in row] for row in rows]


def _records(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """Return rows as blocks of a title and a cell per line, without empty cells."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        for title, cell in zip(titles, row, strict=True):
            if cell:
                grid.add_row(Text(title, style="bold"), cell)
        grid.add_row()
    return grid


def plain_rows(titles: Sequence[str], rows: Sequence[Sequence[str | int]], widths: list[int], *, head: bool) -> str:
    """Return the lines of a table without a terminal; `widths` are those of earlier rows, and become those of all."""
    from rich.cells import cell_len

    lines = _cell_texts(rows)
    if head:
        lines.insert(0, list(titles))
    sizes = [[len(cell) if cell.isascii() else cell_len(cell) for cell in line] for line in lines]
    widths[:] = [max(width, *column) for width, column in zip(widths, zip(*sizes, strict=True), strict=True)]
    numbers = [isinstance(cell, int) for cell in rows[0]]
    return "\n".join(
        "  ".join(
            " " * (width - size) + cell if number else cell + " " * (width - size)
            for cell, size, width, number in zip(line, line_sizes, widths, numbers, strict=True)
        ).rstrip()
        for line, line_sizes in zip(lines, sizes, strict=True)
    )


def print_details(details: Mapping[str, str]) -> None:
    """Print names and values, without empty values; a value may have several lines."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in details.items():
        if value:
            grid.add_row(clean(name), clean(value, lines=True))
    print_rich(grid)


def print_rich(renderable: RenderableType) -> None:
    """Print a rich renderable without trailing blanks."""
    printer = console()
    with printer.capture() as captured:
        printer.print(renderable)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=True)  # rich has decided about colours; click must not decide again
