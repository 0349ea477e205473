"""Where things are printed: results on stdout, as tables for people or as JSON; talk on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from delayq.cli.text import clean
from delayq.codec import inert

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

UNLIMITED = 10_000
"""Columns where the output is not a terminal: there nothing is cut to a screen's width."""


class Column(NamedTuple):
    """A column of a table: a cell is one line, cut where the screen ends, or of several lines if it `wraps`.

    The one that is `flexible` takes the room that the others leave.
    """

    title: str
    right: bool = False
    flexible: bool = False
    wraps: bool = False


def say(text: str) -> None:
    """Talk to whoever looks on: one line on stderr."""
    click.echo(clean(text), err=True)


def put(text: str) -> None:
    """Print a line of the result."""
    click.echo(clean(text))


def put_json(value: Any) -> None:
    """Print a result for machines: one JSON document on one line."""
    click.echo(to_json(value))


def to_json(value: Any) -> str:
    """Return JSON in which nothing is left that a terminal would obey."""
    return inert(msgspec.json.encode(value, enc_hook=str))


def console(*, stderr: bool = False) -> Console:
    """Return a rich console: plain where there is no terminal, without colours under NO_COLOR."""
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


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, titles: bool = True) -> RenderableType:
    """Return a table of cleaned cells."""
    from rich.table import Table

    flexible = any(column.flexible for column in columns) and console().width < UNLIMITED
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=titles, expand=flexible)
    for column in columns:
        grid.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            overflow="fold" if column.wraps else "ellipsis",
            ratio=1 if column.flexible and flexible else None,
            header_style="bold",
        )
    for row in rows:
        grid.add_row(*(clean(cell, lines=column.wraps) for column, cell in zip(columns, row, strict=True)))
    return grid


def show(renderable: RenderableType) -> None:
    """Print what rich can draw, without blanks at the ends of lines."""
    printer = console()
    with printer.capture() as captured:
        printer.print(renderable)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=True)  # rich has decided, and click would decide again
