"""The plots of a report's page, as SVG that takes its colours and fonts from the page. Plain Python over the tables."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from matplotlib import rc_context, style
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from delayq.spark.account import OUTCOMES, Row, duration, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 300
"""Points along the time of a plot; of more hours or minutes, several make one."""
MOST_BARS = 12
LONGEST_LABEL = 40

_MINUTE, _HOUR = 60, 3600
_HOURS = (1, 2, 3, 4, 6, 8, 12, 24, 48, 96, 192, 384, 768, 1536, 3072)
_MINUTES = (1, 2, 3, 5, 10, 15, 30, *(60 * hours for hours in _HOURS))
_TICKS = [n * unit for unit, ns in ((1, (1, 10, 100, 1000, 10_000)), (60_000, (1, 10)), (3_600_000, (1, 10)),
                                    (86_400_000, (1, 10, 100, 1000, 10_000))) for n in ns]  # fmt: skip
_COLOURS = ("ink", "dim", "line", "blue", "teal", "green", "amber", "red", "violet", "grey")
_MARKS = {name: f"#00{n:02x}ff" for n, name in enumerate(_COLOURS, 1)}
"""Colours to draw with, each to be replaced by a variable of the page's style, which knows light and dark."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # texts can be found and copied, and are in the page's font
    "svg.hashsalt": "delayq",  # the same plot has the same ids
    "text.parse_math": False,  # a dollar in a reason is a dollar
    "font.size": 10,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": _MARKS["ink"],
    "axes.labelcolor": _MARKS["dim"],
    "axes.edgecolor": _MARKS["line"],
    "xtick.color": _MARKS["line"],
    "ytick.color": _MARKS["line"],
    "xtick.labelcolor": _MARKS["dim"],
    "ytick.labelcolor": _MARKS["dim"],
    "grid.color": _MARKS["line"],
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "ytick.left": False,
    "legend.frameon": False,
    "date.converter": "concise",
}
_INKS = dict(zip(OUTCOMES, ("green", "teal", "grey", "amber", "violet", "red"), strict=True))


def lateness_plot(table: pa.Table) -> tuple[str, int]:
    """Draw the percentiles of lateness over the hours; returns the SVG and how many hours make one point."""
    hours = _seconds(table, "hour") // _HOUR
    width, slots, first = _slots(hours, _HOURS)
    with _drawing():
        figure = Figure(figsize=(10, 3.2), layout="constrained")
        axes = figure.subplots()
        times = _times((first + np.arange(slots) * width) * _HOUR)
        place = (hours - first) // width
        lines = {}
        for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms"):
            worst = np.full(slots, -np.inf)
            np.maximum.at(worst, place, np.maximum(table.column(name).to_numpy().astype(float), 1))
            lines[name] = np.where(np.isinf(worst), np.nan, worst)
        axes.fill_between(times, lines["p50_ms"], lines["p99_ms"], color=_MARKS["blue"], alpha=0.12, linewidth=0)
        for name, colour in (("p50_ms", "teal"), ("p90_ms", "violet"), ("p99_ms", "blue")):
            alone = _alone(lines[name])
            axes.plot(times, lines[name], ".-", color=_MARKS[colour], linewidth=1.6, markevery=alone, label=name[:3])
        axes.plot(times, lines["max_ms"], ".", color=_MARKS["red"], markersize=3, label="max")
        axes.set_yscale("log")
        _with_durations(axes, float(np.nanmax(lines["max_ms"])))
        _over_time(axes, times)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0)
        return _svg(figure, "lateness", "Lateness percentiles by hour"), width


def rates_plot(table: pa.Table) -> tuple[str, int]:
    """Draw the events a minute; returns the SVG and over how many minutes they are averaged."""
    minutes = _seconds(table, "minute") // _MINUTE
    width, slots, first = _slots(minutes, _MINUTES)
    place = (minutes - first) // width

    def rate(kind: str) -> Any:
        return np.bincount(place, table.column(kind).to_numpy(), slots) / width

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
        edges = _times((first + np.arange(slots + 1) * width) * _MINUTE)
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
            _over_time(axes, edges)
        return _svg(figure, "rates", "Events a minute"), width


def funnel_plot(rows: Sequence[Row]) -> str:
    """Draw how the deliveries of each attempt ended, as shares."""
    shown = [row for row in rows if row["attempt"] is not None and row["delivered"]][:MOST_BARS]
    if not shown:
        return ""
    ends = {name: [row[name] for row in shown] for name in OUTCOMES}
    settled = [sum(row[name] for name in OUTCOMES) for row in shown]
    ends["open"] = [max(row["delivered"] - done, 0) for row, done in zip(shown, settled, strict=True)]
    totals = [done + left for done, left in zip(settled, ends["open"], strict=True)]
    with _drawing():
        figure = Figure(figsize=(10, 1 + 0.42 * len(shown)), layout="constrained")
        axes = figure.subplots()
        start = np.zeros(len(shown))
        for name, colour in (*_INKS.items(), ("open", "line")):
            shares = np.array([100 * n / total for n, total in zip(ends[name], totals, strict=True)])
            if shares.any():
                axes.barh(range(len(shown)), shares, left=start, height=0.62, color=_MARKS[colour], label=name)
            start += shares
        labels = [f"attempt {row['attempt']}" for row in shown]
        axes.set_yticks(range(len(shown)), labels)
        for n, row in enumerate(shown):
            axes.text(101, n, f"{row['delivered']:,}", va="center")
        _horizontal(axes, 100)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} %"))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=7, borderaxespad=0)
        return _svg(figure, "funnel", "How the deliveries of each attempt ended")


def dead_plot(rows: Sequence[Row]) -> str:
    """Draw the deaths by reason."""
    if not rows:
        return ""
    bars = [(_label(row["reason"]), row["deaths"]) for row in rows[: MOST_BARS - 1]]
    if rest := sum(row["deaths"] for row in rows[MOST_BARS - 1 :]):
        bars.append((f"{len(rows) - MOST_BARS + 1:,} others", rest))
    with _drawing():
        figure = Figure(figsize=(10, 0.7 + 0.36 * len(bars)), layout="constrained")
        axes = figure.subplots()
        most = max(number for _, number in bars)
        axes.barh(range(len(bars)), [number for _, number in bars], height=0.62, color=_MARKS["red"])
        axes.set_yticks(range(len(bars)), [label for label, _ in bars])
        for n, (_, number) in enumerate(bars):
            axes.text(number + most * 0.01, n, f"{number:,}", va="center")
        _horizontal(axes, most)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
        return _svg(figure, "dead", "Deaths by reason")


@contextmanager
def _drawing() -> Iterator[None]:
    """Draw in our style, whatever the user's own settings of matplotlib are."""
    with style.context(["default", _STYLE]), rc_context({"timezone": "UTC"}):
        yield


def _label(text: str) -> str:
    text = plain(text) or "no reason"
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def _slots(units: Any, widths: Sequence[int]) -> tuple[int, int, int]:
    """Return how many units make a point so that there are not too many, how many points, and where they begin."""
    first, last = int(units.min()), int(units.max())
    width = next((width for width in widths if (last // width) - (first // width) < MOST_POINTS), 0)
    width = width or (last - first) // MOST_POINTS + 1
    start = first // width * width
    return width, (last - start) // width + 1, start


def _alone(values: Any) -> list[int]:
    """Return where a value stands between gaps: no line leads there, so that it needs a dot."""
    known = np.concatenate(([False], ~np.isnan(values), [False]))
    return [int(n) for n in np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:])]


def _seconds(table: pa.Table, name: str) -> Any:
    return table.column(name).cast(pa.int64()).to_numpy() // 1_000_000


def _times(seconds: Any) -> Any:
    return seconds.astype("datetime64[s]")


def _over_time(axes: Axes, times: Any) -> None:
    """Let the time of a plot go from a little before the first to a little after the last, also where these are one."""
    margin = np.maximum((times[-1] - times[0]) // 100, np.timedelta64(30, "s"))
    axes.set_xlim(times[0] - margin, times[-1] + margin)
    axes.grid(visible=False, axis="x")


def _with_durations(axes: Axes, most: float) -> None:
    axes.yaxis.set_major_locator(FixedLocator(_TICKS))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylim(0.8, max(most * 1.5, 12))


def _horizontal(axes: Axes, most: float) -> None:
    axes.invert_yaxis()
    axes.set_xlim(0, most * 1.1)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelcolor=_MARKS["ink"])


def _number(value: float, _: object = None) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def _svg(figure: Figure, name: str, title: str) -> str:
    """Return a figure as an element of a page: no size of its own, ids that no other has, the page's colours."""
    file = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # measured without that letter; drawn by the browser
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
