"""Charts of columns: what happened, or will, in each minute, hour or day, with an axis of values and one of times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT = 1000, 200
"""The units of the area of the columns, which is as wide as its page."""
MAX_TICKS = 5
"""Times that an axis names: so many fit side by side on a phone."""
_STEPS = {"minute": (1, 2, 5, 10, 15, 30, 60), "hour": (1, 2, 3, 6, 12, 24), "day": (1, 2, 7, 14, 28)}
"""How many minutes, hours or days may lie between two named ones."""
_ROUND = (1, 2, 4, 6, 8, 10)
"""The highest values of axes, times a power of ten; the half of each but the first is a whole number, too."""

Unit = Literal["minute", "hour", "day"]


class Column(NamedTuple):
    """What is stacked in a column, and when it begins, in the time zone of the page."""

    start: datetime
    numbers: Sequence[float]


def columns(title: str, unit: Unit, parts: Sequence[Column]) -> Markup:
    """Return a chart of columns, with values and times at its edges; a table says the same.

    The title says what is counted, such as "Attempts".
    """
    top = highest_of([sum(one.numbers) for one in parts])
    middle = [f"{top // 2:,}"] if top > 1 else []
    labels = Markup("").join(Markup("<span>{}</span>").format(text) for text in (f"{top:,}", *middle, "0"))
    grid = Markup("").join(
        Markup('<line class="grid" x1="0" x2="{0}" y1="{1}" y2="{1}"/>').format(WIDTH, at) for at in (0, HEIGHT // 2)
    )
    shapes = Markup("").join(_column(unit, n, one, len(parts), top) for n, one in enumerate(parts))
    return Markup(
        '<div class="chart"><div class="unit">{title} in each {unit}</div><div class="values">{labels}</div>'
        '<svg class="columns" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" '
        'aria-label="{title} in each {unit}, at most {highest:,}">{grid}{shapes}</svg>'
        '<svg class="times" aria-hidden="true">{times}</svg></div>'
    ).format(
        title=title,
        unit=unit,
        labels=labels,
        width=WIDTH,
        height=HEIGHT,
        highest=max((round(sum(one.numbers)) for one in parts), default=0),
        grid=grid,
        shapes=shapes,
        times=_times(unit, parts),
    )


def highest_of(totals: Sequence[float]) -> int:
    """Return the value at the top of an axis: a round one, at least as high as all columns."""
    highest = max(totals, default=0)
    power = 1
    while power * _ROUND[-1] < highest:
        power *= 10
    return next(one * power for one in _ROUND if one * power >= highest)


def _column(unit: Unit, n: int, one: Column, number: int, top: int) -> Markup:
    step = WIDTH / number
    x, gap, y = n * step, min(step / 5, 6), float(HEIGHT)
    hover = Markup('<g><title>{}: {:,}</title><rect class="hover" x="{:.1f}" width="{:.1f}" height="{}"/>')
    shapes = [hover.format(period_text(unit, one.start), round(sum(one.numbers)), x, step, HEIGHT)]
    for level, value in enumerate(one.numbers):
        if value:
            height = max(HEIGHT * value / top, 1.5)
            y -= height
            shape = Markup('<rect class="level{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>')
            shapes.append(shape.format(level, x + gap / 2, y, step - gap, height))
    return Markup("").join(shapes) + Markup("</g>")


_EDGE = 4
"""Per cent of the width at either end in which a time is written towards the middle."""
_TICK = Markup(
    '<line x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="4"/><text x="{at:.2f}%" y="17" text-anchor="{anchor}">{text}</text>'
)


def _times(unit: Unit, parts: Sequence[Column]) -> Markup:
    """Return the named times of an axis, each below the beginning of its column."""
    found = []
    for n, text in ticks(unit, [one.start for one in parts]):
        at = 100 * n / len(parts)
        anchor = "start" if at < _EDGE else "end" if at > 100 - _EDGE else "middle"
        found.append(_TICK.format(at=at, anchor=anchor, text=text))
    return Markup("").join(found)


def ticks(unit: Unit, starts: Sequence[datetime]) -> list[tuple[int, str]]:
    """Return which of some columns are named on the axis, and how: at round times, a day at midnight."""
    for step in _STEPS[unit]:
        found = [n for n, start in enumerate(starts) if _place(unit, n, start) % step == 0]
        if len(found) <= MAX_TICKS:
            break
    return [(n, _tick_text(unit, starts[n])) for n in found]


def _place(unit: Unit, n: int, start: datetime) -> int:
    return {"minute": start.minute, "hour": start.hour, "day": n}[unit]


def _tick_text(unit: Unit, start: datetime) -> str:
    is_day = unit == "day" or (start.hour, start.minute) == (0, 0)
    return f"{start.day} {start:%b}" if is_day else f"{start:%H:%M}"


def period_text(unit: Unit, start: datetime) -> str:
    """Return a minute, an hour or a day as a title names it."""
    return f"{start:%a} {start.day} {start:%b}" if unit == "day" else f"{start:%a} {start.day} {start:%b} {start:%H:%M}"
