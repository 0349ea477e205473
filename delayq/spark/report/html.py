"""The parts of a page as HTML: sections, figures and tables. Whatever comes from data is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, NamedTuple

from delayq.spark.account import Row, duration, plain

MOST_LISTED = 50
"""Rows of a list, of which there may be any number."""


class Column(NamedTuple):
    """A column of a table: what it is called, the key of its cells, and how they look, a key of `_LOOKS`."""

    title: str
    key: str
    look: str = "number"


def text(value: str) -> str:
    """Return a text as HTML that shows it: nothing of it is markup."""
    return escape(plain(value))


def section(title: str, said: str, *parts: str) -> str:
    """Return a section of a page: a heading, a sentence about it, and parts that are HTML."""
    told = f"<p>{text(said)}</p>\n" if said else ""
    return f"<section>\n<h2>{text(title)}</h2>\n{told}{''.join(parts)}\n</section>"


def figure(svg: str, note: str = "") -> str:
    """Return a plot with a note below it; '' for none."""
    told = f"<figcaption>{text(note)}</figcaption>" if note else ""
    return f"<figure><div>{svg}</div>{told}</figure>\n" if svg else ""


def details(title: str, shown: str) -> str:
    """Return what is seen only once its title is clicked."""
    return f"<details><summary>{text(title)}</summary>{shown}</details>"


def listed(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Return a table of the first rows, and of how many they are the first."""
    more = f"<p>The first {MOST_LISTED} of {len(rows):,}.</p>" if len(rows) > MOST_LISTED else ""
    return table(rows[:MOST_LISTED], columns) + more


def table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """Return a table, a row each."""
    looks = [_LOOKS[one.look] for one in columns]
    head = "".join(
        f'<th class="{look.style}" scope="col">{text(one.title)}</th>' for one, look in zip(columns, looks, strict=True)
    )
    most = [max((row[one.key] for row in rows), default=1) if one.look == "bar" else 0 for one in columns]
    lines = [f'<div class="table"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>']
    for row in rows:
        values = (row[one.key] / top if top else row[one.key] for one, top in zip(columns, most, strict=True))
        cells = (
            f'<td class="{look.style}">{"–" if value is None else look.shown(value)}</td>'
            for value, look in zip(values, looks, strict=True)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


class _Look(NamedTuple):
    """How cells look: their class in the page's style, and what is shown for a value."""

    style: str
    shown: Callable[[Any], str]


def _number(value: int | str) -> str:
    return text(value) if isinstance(value, str) else f"{value:,}"


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")


_LOOKS = {
    "number": _Look("number", _number),
    "ms": _Look("number", duration),
    "share": _Look("number", lambda share: f"{100 * share:.1f} %"),
    "bar": _Look("bar", lambda share: f'<i style="width:{100 * share:.1f}%"></i>'),
    "minute": _Look("time", lambda at: f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"),
    "time": _Look("time", _time),
    "text": _Look("text", lambda value: text(value) or "(no text)"),
    "word": _Look("word", text),
    "id": _Look("id", text),
}
