"""Draws the plots of a report as SVG that uses the colours and fonts of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any
from unicodedata import east_asian_width

import pyarrow as pa

from delayq.report.overview import OUTCOMES, Row, duration
from delayq.values.text import clean, truncate

MAX_POINTS = 200
"""Points on a plot's time axis; more rows are combined."""
MAX_BARS = 12
MAX_LABEL = 40

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_SECONDS = (1, 2, 5, 10, 15, 30, *(60 * minutes for minutes in (1, 2, 3, 5, 10, 15, 30)))
_WIDTHS = (*_SECONDS, *(_HOUR * hours for hours in (1, 2, 3, 4, 6, 8, 12, 24, 48, 96, 192, 384, 768, 1536, 3072)))
_TICKS = [n * unit for unit, ns in ((1, (1, 10, 100, 1000, 10_000)), (60_000, (1, 10)), (3_600_000, (1, 10)),
                                    (86_400_000, (1, 10, 100, 1000, 10_000))) for n in ns]  # fmt: skip
_INKS = dict(zip((*OUTCOMES, "open"), ("green", "teal", "grey", "amber", "violet", "red", "line"), strict=True))
_START = datetime(1970, 1, 1, tzinfo=UTC)
_WIDE, _LEFT, _RIGHT, _TOP, _LETTER = 1000, 80, 20, 34, 7.5
"""Units of the pictures, which the page scales; a letter is about so wide."""

Values = Sequence[float | None]


class _Picture:
    """An SVG that grows by elements."""

    def __init__(self, height: float, title: str) -> None:
        self.height, self._title = height, title
        self._parts: list[str] = []

    def add(self, tag: str, *, fill: str = "none", stroke: str = "none", thick: float = 1, **places: Any) -> None:
        """Add an element; colours are those of the page, by name."""
        ink = [
            f"{what}:{'none' if name == 'none' else f'var(--{name})'}"
            for what, name in (("fill", fill), ("stroke", stroke))
        ]
        at = "".join(f' {name.replace("_", "-")}="{_short(value)}"' for name, value in places.items())
        self._parts.append(f'<{tag}{at} style="{";".join(ink)};stroke-width:{thick}"/>')

    def text(self, x: float, y: float, words: str, *, fill: str = "dim", anchor: str = "start") -> None:
        """Add a text; its base line is at y."""
        place = f'x="{_short(x)}" y="{_short(y)}" text-anchor="{anchor}" font-size="13"'
        self._parts.append(f'<text {place} style="fill:var(--{fill})">{escape(words)}</text>')

    def line(self, points: Iterable[tuple[float, float]], stroke: str, **more: Any) -> None:
        """Add a line through points."""
        self.add("path", d="M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points), stroke=stroke, **more)

    def legend(self, y: float, names: Iterable[tuple[str, str]]) -> None:
        """Add names with their colours, side by side."""
        x = float(_LEFT)
        for name, colour in names:
            self.add("rect", x=x, y=y - 9, width=10, height=10, fill=colour)
            self.text(x + 15, y, name, fill="ink")
            x += 40 + _LETTER * len(name)

    def svg(self) -> str:
        """Return the picture."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_short(self.height)}" role="img"'
        return f'{head} aria-label="{escape(self._title)}">{"".join(self._parts)}</svg>'


class _Panel:
    """A part of a picture with a time axis from `first` on, of so many slots, and a value axis from 0 to 1."""

    def __init__(self, picture: _Picture, top: float, height: float, slots: tuple[int, int, int]) -> None:
        self.picture, self.top, self.bottom = picture, top, top + height
        self.width, self.slots, self.first = slots

    def x(self, slot: float) -> float:
        """Return the place of the begin of a slot."""
        return _LEFT + 6 + (_WIDE - _LEFT - _RIGHT - 12) * slot / max(self.slots, 1)

    def y(self, share: float) -> float:
        """Return the place of a value."""
        return self.bottom - (self.bottom - self.top) * share

    def ticks(self, places: Iterable[tuple[float, str]]) -> None:
        """Draw the lines and labels of values."""
        for share, label in places:
            y = self.y(share)
            self.picture.line([(_LEFT, y), (_WIDE - _RIGHT, y)], "line")
            self.picture.text(_LEFT - 8, y + 4, label, anchor="end")

    def times(self) -> None:
        """Draw the labels of the times, seven at most."""
        span = self.slots * self.width
        step = next((one for one in _WIDTHS if span / one <= 7), math.ceil(span / 7 / _DAY) * _DAY)  # noqa: PLR2004
        day = None
        for second in range(-(-self.first // step) * step, self.first + span + 1, step):
            at = _START + timedelta(seconds=second)
            clock = "" if step >= _DAY else f"{at:%H:%M}" if step >= _MINUTE else f"{at:%H:%M:%S}"
            label = f"{at:%Y-%m-%d} {clock}".strip() if at.date() != day else clock
            day = at.date()
            self.picture.text(self.x((second - self.first) / self.width), self.bottom + 18, label, anchor="middle")


def lateness_plot(table: pa.Table) -> tuple[str, int]:
    """Draw lateness percentiles over time; returns the SVG and the seconds per point."""
    places, slots = _slots(table)
    lines: dict[str, list[float | None]] = {}
    for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms"):
        worst: list[float | None] = [None] * slots[1]
        values: list[Any] = table.column(name).to_pylist()
        for place, value in zip(places, values, strict=True):
            worst[place] = max(worst[place] or 1.0, float(value))
        lines[name] = worst
    top = math.log10(max(max(value for value in lines["max_ms"] if value is not None) * 1.5, 12) / 0.8)
    picture = _Picture(330, "Lateness percentiles over time")
    panel = _Panel(picture, _TOP, 260, slots)

    def share(value: float) -> float:
        return math.log10(value / 0.8) / top

    panel.ticks((share(tick), duration(tick)) for tick in _TICKS if share(tick) <= 1)
    panel.times()
    for run in _runs(lines["p50_ms"]):
        upper = [(panel.x(n + 0.5), panel.y(share(lines["p99_ms"][n] or 1))) for n in run]
        lower = [(panel.x(n + 0.5), panel.y(share(lines["p50_ms"][n] or 1))) for n in reversed(run)]
        picture.line([*upper, *lower], "none", fill="blue", opacity=0.12)
    for name, colour in (("p50_ms", "teal"), ("p90_ms", "violet"), ("p99_ms", "blue")):
        for run in _runs(lines[name]):
            points = [(panel.x(n + 0.5), panel.y(share(lines[name][n] or 1))) for n in run]
            picture.line(points, colour, thick=1.8)
            if len(points) == 1:  # no line reaches it
                picture.add("circle", cx=points[0][0], cy=points[0][1], r=3, fill=colour)
    for n, value in enumerate(lines["max_ms"]):
        if value is not None:
            picture.add("circle", cx=panel.x(n + 0.5), cy=panel.y(share(value)), r=1.8, fill="red")
    picture.legend(20, (("p50", "teal"), ("p90", "violet"), ("p99", "blue"), ("max", "red")))
    return picture.svg(), slots[0]


def rates_plot(table: pa.Table) -> tuple[str, int]:
    """Draw the events per minute, or per second in a short log; returns the SVG and the seconds per point."""
    places, slots = _slots(table)
    unit = rate_unit(table)

    def rate(kind: str) -> list[float]:
        sums = [0.0] * slots[1]
        numbers: list[Any] = table.column(kind).to_pylist()
        for place, number in zip(places, numbers, strict=True):
            sums[place] += number * unit / slots[0]
        return sums

    panels = [
        ("in", [("sent", "blue"), ("replaced", "violet"), ("redriven", "amber")]),
        ("out", [("delivered", "blue"), ("acked", "green"), ("discarded", "teal")]),
        ("not acked", [("nacked", "amber"), ("expired", "violet"), ("dead", "red"), ("cancelled", "grey")]),
    ]
    drawn = [(title, [(rate(kind), kind, colour) for kind, colour in kinds]) for title, kinds in panels]
    drawn = [(title, [one for one in kinds if any(one[0])]) for title, kinds in drawn]
    drawn = [(title, kinds) for title, kinds in drawn if kinds]
    if not drawn:
        return "", slots[0]
    picture = _Picture(30 + 170 * len(drawn), "Events a minute" if unit == _MINUTE else "Events a second")
    for n, (title, kinds) in enumerate(drawn):
        panel = _Panel(picture, _TOP + 170 * n, 120, slots)
        highest = max(max(values) for values, _, _ in kinds)
        step = _step(highest)
        top = math.ceil(highest / step) * step
        panel.ticks((one * step / top, _number(one * step)) for one in range(round(top / step) + 1))
        for at, (values, _, colour) in enumerate(kinds):
            edges = [(slot, value) for k, value in enumerate(values) for slot in (k, k + 1)]
            points = [(panel.x(slot), panel.y(value / top)) for slot, value in edges]
            if at == 0:
                ends = [(panel.x(slots[1]), panel.bottom), (panel.x(0), panel.bottom)]
                picture.line([*points, *ends], "none", fill=colour, opacity=0.12)
            picture.line(points, colour, thick=1.5)
        picture.text(0, panel.top - 14, title, fill="ink")
        picture.legend(panel.top - 14, ((kind, colour) for _, kind, colour in kinds))
    panel.times()
    return picture.svg(), slots[0]


def funnel_plot(rows: Sequence[Row]) -> str:
    """Draw the outcomes of the deliveries of each attempt, as shares."""
    shown = [row for row in rows if row["attempt"] is not None and row["delivered"]][:MAX_BARS]
    bars = []
    for row in shown:
        ends = {name: row[name] for name in OUTCOMES}
        ends["open"] = max(row["delivered"] - sum(ends.values()), 0)
        total = sum(ends.values())
        parts = [(100 * number / total, _INKS[name]) for name, number in ends.items()]
        bars.append((f"attempt {row['attempt']}", row["delivered"], parts))
    used = {colour for _, _, parts in bars for length, colour in parts if length}
    names = [(name, colour) for name, colour in _INKS.items() if colour in used]
    return _bars(bars, "How the deliveries of each attempt ended", names) if bars else ""


def dead_plot(rows: Sequence[Row]) -> str:
    """Draw the deaths by reason."""
    numbers = [
        (truncate(clean(row["reason"]), MAX_LABEL) or "no reason", row["deaths"]) for row in rows[: MAX_BARS - 1]
    ]
    if rest := sum(row["deaths"] for row in rows[MAX_BARS - 1 :]):
        numbers.append((f"{len(rows) - MAX_BARS + 1:,} others", rest))
    bars = [(label, number, [(float(number), "red")]) for label, number in numbers]
    return _bars(bars, "Deaths by reason", []) if bars else ""


def _bars(bars: Sequence[tuple[str, int, list[tuple[float, str]]]], title: str, names: list[tuple[str, str]]) -> str:
    """Draw horizontal bars: the label, the number and the parts, length and colour, of each."""
    letters = max(sum(2 if east_asian_width(one) in "WF" else 1 for one in label) for label, _, _ in bars)
    left, top = 16 + _LETTER * letters, _TOP if names else 6
    longest = max(sum(length for length, _ in parts) for _, _, parts in bars)
    picture = _Picture(top + 30 * len(bars) + 4, title)
    for n, (label, number, parts) in enumerate(bars):
        x, y = left, top + 30 * n
        picture.text(left - 8, y + 16, label, fill="ink", anchor="end")
        for length, colour in parts:
            wide = (_WIDE - left - 90) * length / longest
            if wide:
                picture.add("rect", x=x, y=y, width=wide, height=22, fill=colour)
            x += wide
        picture.text(x + 8, y + 16, f"{number:,}", fill="ink")
    picture.legend(20, names)
    return picture.svg()


def rate_unit(table: pa.Table) -> int:
    """Return the seconds that rates are told for: a minute, or a second if the rows are shorter than a minute."""
    return _MINUTE if not table.num_rows or table.column("seconds")[0].as_py() >= _MINUTE else 1


def _slots(table: pa.Table) -> tuple[list[int], tuple[int, int, int]]:
    """Return the slot of each row; and the seconds of a slot, few enough slots, their number, and the first second."""
    micros: list[Any] = table.column("begin").cast(pa.int64()).to_pylist()
    seconds = [one // 1_000_000 for one in micros]
    first, last, least = min(seconds), max(seconds), table.column("seconds")[0].as_py()
    fitting = (width for width in _WIDTHS if width >= least and (last // width) - (first // width) < MAX_POINTS)
    width = next(fitting, 0) or ((last - first) // MAX_POINTS // _HOUR + 1) * _HOUR
    start = first // width * width
    return [(one - start) // width for one in seconds], (width, (last - start) // width + 1, start)


def _runs(values: Values) -> list[list[int]]:
    """Return the places of values that follow each other without a gap."""
    runs: list[list[int]] = [[]]
    for n, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(n)
    return [run for run in runs if run]


def _step(highest: float) -> float:
    """Return a round number of which three make about `highest`."""
    size: float = 10 ** math.floor(math.log10(highest / 3))
    return next(size * n for n in (1, 2, 5, 10) if size * n * 3 >= highest * 0.999)


def _number(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def _short(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
