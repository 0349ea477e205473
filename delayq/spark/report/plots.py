"""Draws the plots of a report as SVG that uses the colours and fonts of the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from matplotlib import rc_context, style
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from delayq.spark.report.overview import OUTCOMES, Row, duration
from delayq.values.text import clean, truncate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 200
"""Points on a plot's time axis; more rows are combined."""
MAX_BARS = 12
MAX_LABEL = 40

_MINUTE, _HOUR = 60, 3600
_SECONDS = (1, 2, 5, 10, 15, 30, *(60 * minutes for minutes in (1, 2, 3, 5, 10, 15, 30)))
_WIDTHS = (*_SECONDS, *(_HOUR * hours for hours in (1, 2, 3, 4, 6, 8, 12, 24, 48, 96, 192, 384, 768, 1536, 3072)))
_TICKS = [n * unit for unit, ns in ((1, (1, 10, 100, 1000, 10_000)), (60_000, (1, 10)), (3_600_000, (1, 10)),
                                    (86_400_000, (1, 10, 100, 1000, 10_000))) for n in ns]  # fmt: skip
_COLOURS = ("ink", "dim", "line", "blue", "teal", "green", "amber", "red", "violet", "grey")
_MARKS = {name: f"#00{n:02x}ff" for n, name in enumerate(_COLOURS, 1)}
"""Placeholder colours: each is replaced by a CSS variable of the page, which has a light and a dark value."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # texts can be searched and copied, and use the page's font
    "svg.hashsalt": "delayq",  # the same plot has the same ids
    "text.parse_math": False,  # a dollar sign in a reason is not a formula
    "text.color": _MARKS["ink"],
    "font.size": 10,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _MARKS["dim"]),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), _MARKS["line"]),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left", "ytick.left"), False),
    "axes.grid": True,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "date.converter": "concise",
}
_INKS = dict(zip((*OUTCOMES, "open"), ("green", "teal", "grey", "amber", "violet", "red", "line"), strict=True))


def lateness_plot(table: pa.Table) -> tuple[str, int]:
    """Draw lateness percentiles over time; returns the SVG and the seconds per point."""
    seconds = _seconds(table, "begin")
    width, slots, first = _slots(seconds, table)
    with _drawing():
        figure = Figure(figsize=(10, 3.2), layout="constrained")
        axes = figure.subplots()
        times = _times(first + np.arange(slots) * width)
        place = (seconds - first) // width
        lines = {}
        for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms"):
            worst = np.full(slots, -np.inf)
            np.maximum.at(worst, place, np.maximum(table.column(name).to_numpy().astype(float), 1))
            lines[name] = np.where(np.isinf(worst), np.nan, worst)
        axes.fill_between(times, lines["p50_ms"], lines["p99_ms"], color=_MARKS["blue"], alpha=0.12, linewidth=0)
        for name, colour in (("p50_ms", "teal"), ("p90_ms", "violet"), ("p99_ms", "blue")):
            isolated = _isolated(lines[name])
            axes.plot(times, lines[name], ".-", color=_MARKS[colour], linewidth=1.6, markevery=isolated, label=name[:3])
        axes.plot(times, lines["max_ms"], ".", color=_MARKS["red"], markersize=3, label="max")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(FixedLocator(_TICKS))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
        axes.set_ylim(0.8, max(float(np.nanmax(lines["max_ms"])) * 1.5, 12))
        _scale_time(axes, times)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0)
        return _svg(figure, "lateness", "Lateness percentiles over time"), width


def rates_plot(table: pa.Table) -> tuple[str, int]:
    """Draw the events per minute, or per second in a short log; returns the SVG and the seconds per point."""
    seconds = _seconds(table, "begin")
    width, slots, first = _slots(seconds, table)
    place = (seconds - first) // width
    unit = rate_unit(table)

    def rate(kind: str) -> Any:
        return np.bincount(place, table.column(kind).to_numpy(), slots) * unit / width

    panels = [
        ("in", [("sent", "blue"), ("replaced", "violet"), ("redriven", "amber")]),
        ("out", [("delivered", "blue"), ("acked", "green"), ("discarded", "teal")]),
        ("not acked", [("nacked", "amber"), ("expired", "violet"), ("dead", "red"), ("cancelled", "grey")]),
    ]
    drawn = [(title, [(rate(kind), kind, colour) for kind, colour in kinds]) for title, kinds in panels]
    drawn = [(title, [one for one in kinds if one[0].any()]) for title, kinds in drawn]
    drawn = [(title, kinds) for title, kinds in drawn if kinds]
    if not drawn:
        return "", width
    with _drawing():
        figure = Figure(figsize=(10, 0.5 + 1.7 * len(drawn)), layout="constrained")
        edges = _times(first + np.arange(slots + 1) * width)
        for axes, (title, kinds) in zip(
            figure.subplots(len(drawn), sharex=True, squeeze=False)[:, 0], drawn, strict=True
        ):
            for n, (values, kind, colour) in enumerate(kinds):
                axes.stairs(values, edges, color=_MARKS[colour], linewidth=1.4, label=kind)
                if n == 0:
                    axes.stairs(values, edges, color=_MARKS[colour], alpha=0.12, fill=True)
            axes.set_ylim(bottom=0)
            axes.set_ylabel(title)
            axes.yaxis.set_major_locator(MaxNLocator(3))
            axes.yaxis.set_major_formatter(FuncFormatter(_number))
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0)
            _scale_time(axes, edges)
        return _svg(figure, "rates", "Events a minute" if unit == _MINUTE else "Events a second"), width


def funnel_plot(rows: Sequence[Row]) -> str:
    """Draw the outcomes of the deliveries of each attempt, as shares."""
    shown = [row for row in rows if row["attempt"] is not None and row["delivered"]][:MAX_BARS]
    if not shown:
        return ""
    ends = {name: [row[name] for row in shown] for name in OUTCOMES}
    settled = [sum(row[name] for name in OUTCOMES) for row in shown]
    ends["open"] = [max(row["delivered"] - done, 0) for row, done in zip(shown, settled, strict=True)]
    totals = [done + left for done, left in zip(settled, ends["open"], strict=True)]
    shares = [
        (name, colour, np.array([100 * n / total for n, total in zip(ends[name], totals, strict=True)]))
        for name, colour in _INKS.items()
    ]
    with _drawing():
        bars = [(f"attempt {row['attempt']}", row["delivered"]) for row in shown]
        figure, axes = _bars(bars, 1 + 0.42 * len(shown), shares)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} %"))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=7, borderaxespad=0)
        return _svg(figure, "funnel", "How the deliveries of each attempt ended")


def dead_plot(rows: Sequence[Row]) -> str:
    """Draw the deaths by reason."""
    if not rows:
        return ""
    bars = [(truncate(clean(row["reason"]), MAX_LABEL) or "no reason", row["deaths"]) for row in rows[: MAX_BARS - 1]]
    if rest := sum(row["deaths"] for row in rows[MAX_BARS - 1 :]):
        bars.append((f"{len(rows) - MAX_BARS + 1:,} others", rest))
    with _drawing():
        figure, axes = _bars(bars, 0.7 + 0.36 * len(bars), [("deaths", "red", np.array([n for _, n in bars]))])
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
        return _svg(figure, "dead", "Deaths by reason")


def _bars(rows: Sequence[tuple[str, int]], height: float, parts: Iterable[tuple[str, str, Any]]) -> tuple[Figure, Axes]:
    """Draw horizontal bars from labels and numbers; `parts` are what the bars consist of: name, colour, lengths."""
    figure = Figure(figsize=(10, height), layout="constrained")
    axes = figure.subplots()
    ends = np.zeros(len(rows))
    for name, colour, lengths in parts:
        if lengths.any():
            axes.barh(range(len(rows)), lengths, left=ends, height=0.62, color=_MARKS[colour], label=name)
        ends = ends + lengths
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    for n, (_, number) in enumerate(rows):
        axes.text(ends[n] + ends.max() * 0.01, n, f"{number:,}", va="center")
    axes.invert_yaxis()
    axes.set_xlim(0, ends.max() * 1.1)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelcolor=_MARKS["ink"])
    return figure, axes


@contextmanager
def _drawing() -> Iterator[None]:
    """Use this module's style, whatever the user's matplotlib settings."""
    with style.context(["default", _STYLE]), rc_context({"timezone": "UTC"}):
        yield


def rate_unit(table: pa.Table) -> int:
    """Return the seconds that rates are told for: a minute, or a second if the rows are shorter than a minute."""
    return _MINUTE if not table.num_rows or table.column("seconds")[0].as_py() >= _MINUTE else 1


def _slots(seconds: Any, table: pa.Table) -> tuple[int, int, int]:
    """Return the seconds per point that keep the points few enough, the number of points, and the first second."""
    first, last, least = int(seconds.min()), int(seconds.max()), table.column("seconds")[0].as_py()
    fitting = (width for width in _WIDTHS if width >= least and (last // width) - (first // width) < MAX_POINTS)
    width = next(fitting, 0) or ((last - first) // MAX_POINTS // _HOUR + 1) * _HOUR
    start = first // width * width
    return width, (last - start) // width + 1, start


def _isolated(values: Any) -> list[int]:
    """Return the values between two gaps: no line reaches them, so they need a dot."""
    known = np.concatenate(([False], ~np.isnan(values), [False]))
    return [int(n) for n in np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:])]


def _seconds(table: pa.Table, name: str) -> Any:
    return table.column(name).cast(pa.int64()).to_numpy() // 1_000_000


def _times(seconds: Any) -> Any:
    return seconds.astype("datetime64[s]")


def _scale_time(axes: Axes, times: Any) -> None:
    """Set the time axis from a little before the first to a little after the last time, which may be the same."""
    margin = np.maximum((times[-1] - times[0]) // 100, np.timedelta64(30, "s"))
    axes.set_xlim(times[0] - margin, times[-1] + margin)
    axes.grid(visible=False, axis="x")


def _number(value: float, _: object = None) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def _svg(figure: Figure, name: str, title: str) -> str:
    """Return a figure as inline SVG: without a size, with unique ids and the page's colours."""
    file = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # only measured without the glyph; the browser draws it
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, count=1, flags=re.DOTALL)
    head, _, body = text.partition(">")
    box = re.search(r'viewBox="[^"]+"', head)
    assert box is not None  # noqa: S101 - matplotlib writes one
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", body)
    for colour, mark in _MARKS.items():
        body = body.replace(mark, f"var(--{colour})")
    space = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {space} {box[0]} role="img" aria-label="{title}">{body}'
