"""Builds the HTML of a page: sections, figures and tables. All data is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, NamedTuple

from delayq.report.overview import Overview, Row, duration, period
from delayq.values.text import clean

MAX_LISTED = 50
"""Rows shown of a list, which may have any number."""


class TableColumn(NamedTuple):
    """A column of a table: the key of its cells, their format in `_FORMATS`, and its title (default: the key)."""

    key: str
    format: str = "number"
    title: str | None = None


def columns(**formats: str) -> list[TableColumn]:
    """Return columns titled by their keys, from key → format."""
    return [TableColumn(key, cell) for key, cell in formats.items()]


def text(value: str) -> str:
    """Return a text as HTML; nothing in it is treated as markup."""
    return escape(clean(value))


def section(title: str, description: str, *parts: str, style: str = "") -> str:
    """Return a section of a page: heading, description, and parts that are HTML; `style` is its CSS class."""
    start = f'<section class="{style}">' if style else "<section>"
    paragraph = f"<p>{text(description)}</p>\n" if description else ""
    return f"{start}\n<h2>{text(title)}</h2>\n{paragraph}{''.join(parts)}\n</section>"


def overview_html(overview: Overview) -> str:
    """Return an overview without styles, as notebooks show it: a sentence, the period, checks, and the lateness."""
    if overview.is_empty:
        return f"<p>{text(overview.sentence)}</p>"
    rows = [{"": one.mark, "check": one.title, "found": one.text} for one in overview.checks]
    parts = [f"<p>{text(overview.sentence)}</p><p>{text(period(overview.log))}</p>"]
    parts += [table(rows, [TableColumn(name, "text") for name in ("", "check", "found")])]
    if overview.late:
        names = ("p50_ms", "p90_ms", "p99_ms", "max_ms")
        parts += [table([overview.late], [TableColumn(name, "ms", title=f"late, {name[:3]}") for name in names])]
    return "".join(parts)


def figure(svg: str, note: str = "") -> str:
    """Return a plot with a note below it; '' for none."""
    caption = f"<figcaption>{text(note)}</figcaption>" if note else ""
    return f"<figure><div>{svg}</div>{caption}</figure>\n" if svg else ""


def details(title: str, content: str) -> str:
    """Return content that is hidden until its title is clicked."""
    return f"<details><summary>{text(title)}</summary>{content}</details>"


def listed(rows: Sequence[Row], columns: Sequence[TableColumn]) -> str:
    """Return a table of the first rows, and a note if there are more."""
    more = f"<p>The first {MAX_LISTED} of {len(rows):,}.</p>" if len(rows) > MAX_LISTED else ""
    return table(rows[:MAX_LISTED], columns) + more


def table(rows: Sequence[Row], columns: Sequence[TableColumn]) -> str:
    """Return a table of rows."""
    formats = [_FORMATS[column.format] for column in columns]
    head = "".join(
        f'<th class="{cell.style}" scope="col">{text(column.key if column.title is None else column.title)}</th>'
        for column, cell in zip(columns, formats, strict=True)
    )
    tops = [max((row[one.key] for row in rows), default=1) if one.format == "bar" else 0 for one in columns]
    lines = [f'<div class="table"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>']
    for row in rows:
        values = (row[one.key] / top if top else row[one.key] for one, top in zip(columns, tops, strict=True))
        cells = (
            f'<td class="{cell.style}">{"–" if value is None else cell.render(value)}</td>'
            for value, cell in zip(values, formats, strict=True)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


class _CellFormat(NamedTuple):
    """The format of cells: their CSS class, and the HTML for a value."""

    style: str
    render: Callable[[Any], str]


def _number(value: int | str) -> str:
    return text(value) if isinstance(value, str) else f"{value:,}"


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")


_FORMATS = {
    "number": _CellFormat("number", _number),
    "ms": _CellFormat("number", duration),
    "share": _CellFormat("number", lambda share: f"{100 * share:.1f} %"),
    "bar": _CellFormat("bar", lambda share: f'<i style="width:{100 * share:.1f}%"></i>'),
    "begin": _CellFormat("time", lambda at: f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}".removesuffix(":00")),
    "time": _CellFormat("time", _time),
    "text": _CellFormat("text", lambda value: text(value) or "(no text)"),
    "word": _CellFormat("word", text),
    "id": _CellFormat("id", text),
}
