"""The screen of `delayq top`: figures read in turn, so that Redis is asked for little, and what keys do to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from delayq.cli.queues.pause import pause_text
from delayq.cli.queues.queues import unconsumed
from delayq.cli.support.session import Session
from delayq.errors import DelayqError, ServerError
from delayq.queue.inspecting.counts import throttled_text
from delayq.queue.inspecting.lateness_report import percentile_text, slo_text
from delayq.queue.inspecting.readings import MeanRates, Readings
from delayq.queue.inspecting.why.looked import Looked
from delayq.queue.inspecting.workers import PAGE, WorkerInfo
from delayq.values.states import State
from delayq.values.text import clean, format_duration, pluralize

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

    from delayq.queue.delay_queue import DelayQueue


MAX_COUNTED = 8
"""Queues whose messages are counted at a time."""
NAMES_EVERY = 10.0
"""Seconds between two readings of the names of the queues."""


class RunningNow(NamedTuple):
    """A message in a callback."""

    id: str
    worker: str
    """Host and process id."""
    lasts: timedelta


@dataclass(slots=True)
class TopRow(Readings):
    """What was read of a queue."""

    error: str = ""
    """Why it could not be read."""
    lately: MeanRates | None = None
    """What its consumers did on average, to show until two readings tell the rates."""

    @property
    def is_new(self) -> bool:
        """Whether it was never read."""
        return self.stats is None and not self.error


class TopFigures:
    """The figures of the queues that are shown, and who works on the selected one."""

    def __init__(self, session: Session, read_names: Callable[[], list[str]]) -> None:
        """Read over the connections of a session; nothing is read yet."""
        self._session = session
        self._read_names = read_names
        self._names_due = 0.0
        self._turn = 0
        self.names: list[str] = []
        self.queues: dict[str, TopRow] = {}
        self.workers: list[WorkerInfo] = []
        """Those of the queue that was selected when they were read."""
        self.error = ""
        """Why nothing could be read."""
        self.is_read = False
        """Whether the names have been read."""

    def read(self, choose: Callable[[], tuple[str, Sequence[str]]]) -> int:
        """Read the names if it is time, then the selected queue, and of the visible ones those whose turn it is.

        `choose` returns the selected one and the visible ones of the names; this returns how many commands that took.
        What comes into view for the first time is read at once, for an extra round trip that is not counted.
        """
        try:
            commands = self._read_names_in_time()
            selected, visible = choose()
            new = [name for name in {selected: None, **dict.fromkeys(visible)} if name and self.queues[name].is_new]
            if selected:
                commands += self._read_selected(selected)
            others = [name for name in new if name != selected]
            if new:
                self._count(others)
                for name, rates in self._session.mean_rates(new).items():
                    self.queues[name].lately = rates
            return commands + self._count_in_turn([one for one in visible if one != selected and one not in others])
        except DelayqError as error:  # shown until Redis answers again
            self.error = str(error)
            return 1

    def _read_names_in_time(self) -> int:
        if time.monotonic() < self._names_due:
            self.error = ""
            return 0
        self.names, self.error, self.is_read = self._read_names(), "", True
        self._names_due = time.monotonic() + NAMES_EVERY
        self.queues = {name: self.queues.get(name, TopRow()) for name in self.names}
        return 1

    def _read_selected(self, name: str) -> int:
        queue, figures = self._session.queue(name, codec="bytes"), self.queues[name]
        try:
            figures.update(queue.stats())
            figures.error = ""
            self.workers = queue.workers()
        except ServerError as error:
            figures.error, self.workers = str(error), []
        has_objective = figures.stats is not None and figures.stats.slo is not None
        return 3 + has_objective + len(self.workers) // PAGE

    def _count_in_turn(self, names: Sequence[str]) -> int:
        first = self._turn % len(names) if len(names) > MAX_COUNTED else 0
        some = [*names[first:], *names[:first]][:MAX_COUNTED]
        self._turn = first + len(some)
        self._count(some)
        return len(some)

    def _count(self, names: Sequence[str]) -> None:
        for name, found in self._session.stats([*names]).items():
            if isinstance(found, ServerError):
                self.queues[name].error = str(found)
            else:
                self.queues[name].update(found)
                self.queues[name].error = ""

    def running(self) -> list[RunningNow]:
        """Return what runs in the callbacks of the selected queue, the longest first, as workers last reported."""
        found = [
            RunningNow(message.id, f"{worker.host}:{worker.pid}", worker.reported + worker.age - message.since)
            for worker in self.workers
            if worker.state != "silent"
            for message in worker.running
        ]
        return sorted(found, key=lambda one: one.lasts, reverse=True)


_COLUMNS = ("pending", "due", "active", "retry", "dead", "in/s", "out/s", "fail/s", "lag", "workers")
_PACES = _COLUMNS[5:8]
_WIDE = 76
"""Characters of a line from which on it shows all columns."""
_MESSAGE = "message of {}, as workers tell every 10 s"
_HELP = {
    "queues": "q quit  ↑↓ select  tab what runs  p pause  r retry now  d redrive dead",
    "running": "q quit  ↑↓ select  tab queues  c cancel",
}
_MIN_SHOWN = 3
"""Lines that the queues and what runs have at least."""
_OTHER_LINES = 4
"""Lines that are of no queue and of nothing that runs: the titles of both tables, a blank line, and the last line."""
_THOUSAND = 10_000
"""The least number that is shown in thousands."""


class _Question(NamedTuple):
    text: str
    act: Callable[[], str]
    """Does it, and returns what it has done."""


class TopScreen:
    """What `delayq top` shows, and what its keys do."""

    def __init__(self, figures: TopFigures, session: Session, height: int = 0) -> None:
        """Show these figures on so many lines; act over the connections of a session."""
        self.ended = False
        self._figures = figures
        self._session = session
        self._selected = ""
        self._picked = ""
        """The message that is selected among those that run."""
        self._in_running = False
        self._first = 0
        """The first queue on the screen."""
        self._queue_lines = max(_MIN_SHOWN, height - _OTHER_LINES)
        self._question: _Question | None = None
        self._message = ""

    # Reading

    @property
    def selected(self) -> str:
        """The name of the selected queue, '' if there is none."""
        names = self._figures.names
        return self._selected if self._selected in names else names[0] if names else ""

    def read(self) -> int:
        """Read the figures of what is visible; returns how many commands that took."""
        return self._figures.read(lambda: (self.selected, self._visible))

    @property
    def _visible(self) -> Sequence[str]:
        return self._figures.names[self._first : self._first + self._queue_lines]

    # Keys

    def press(self, key: str) -> Callable[[], None] | None:
        """Do what a key says; returns what is to be done once the screen shows that it is."""
        question, self._question, self._message = self._question, None, ""
        if question is not None:
            if key.lower() != "y":
                return None
            self._message = f"{question.text} …"
            return lambda: self._act(question)
        if key in ("q", "escape"):
            self.ended = True
        elif key in ("up", "k", "down", "j"):
            self._move(1 if key in ("down", "j") else -1)
        elif key == "tab":
            self._in_running = not self._in_running
        else:
            self._ask(key)
        return None

    def _move(self, step: int) -> None:
        if self._in_running:
            running = self._figures.running()
            self._picked = _moved([one.id for one in running], self._picked_of(running), step)
            return
        self._selected = _moved(self._figures.names, self.selected, step)
        self._figures.workers = []
        at = self._figures.names.index(self._selected) if self._selected else 0
        self._first = min(max(self._first, at - self._queue_lines + 1), at)

    def _ask(self, key: str) -> None:
        """Ask whether to do what a key stands for."""
        name = self.selected
        if not name:
            return
        queue = self._session.queue(name, codec="bytes")
        if key == "p" and self._is_paused(name):
            self._question = _Question(f"resume {name}", lambda: "resumed" if queue.resume() else "was not paused")
        elif key == "p":
            self._question = _Question(f"pause {name}", lambda: pause_text(queue.pause(reason="delayq top")))
        elif key == "r":
            self._question = _Question(f"make the retries of {name} due now", lambda: _retry(queue))
        elif key == "d":
            self._question = _Question(f"send the dead letter of {name} again", lambda: _redrive(queue))
        elif key == "c" and self._in_running and (id := self._picked_of(self._figures.running())):
            text = f"ask {clean(id)} of {name} to stop"
            self._question = _Question(text, lambda: str(queue.cancel(id, running=True)))

    def _act(self, question: _Question) -> None:
        try:
            self._message = f"{question.text}: {question.act()}"
        except DelayqError as error:
            self._message = str(error)

    def _is_paused(self, name: str) -> bool:
        stats = self._figures.queues[name].stats
        return stats is not None and stats.counts.paused is not None

    def _picked_of(self, running: Sequence[RunningNow]) -> str:
        """Return which of the messages that run is selected: the first by default, '' if there is none."""
        ids = [one.id for one in running]
        return self._picked if self._picked in ids else ids[0] if ids else ""

    # Looks

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the parts of the screen, which fill it."""
        from rich.text import Text

        height = options.height or console.height
        running = self._figures.running()
        about = self._about()
        room = height - len(about) - _OTHER_LINES
        self._queue_lines = max(_MIN_SHOWN, min(len(self._figures.names), room - min(len(running) or 1, room // 2)))
        self._first = max(0, min(self._first, len(self._figures.names) - self._queue_lines))
        left = max(0, room - len(self._visible))
        yield self._queue_table(options.max_width)
        yield from (
            Text(line, no_wrap=True, overflow="ellipsis", style="yellow" if is_warning else "")
            for is_warning, line in about
        )
        yield Text()
        picked = self._picked_of(running)
        first = max(0, [one.id for one in running].index(picked) - left + 1) if running else 0
        shown = running[first : first + left]
        yield _running_table(self.selected, shown, picked if self._in_running else "")
        yield from [Text()] * (left - len(shown))
        style = "bold" if self._question else "dim"
        yield Text(self._last_line, no_wrap=True, overflow="ellipsis", style=style, end="")

    def _queue_table(self, width: int) -> Table:
        shown = [title for title in _COLUMNS if width >= _WIDE or title not in _PACES]
        grid = _grid("queue", *shown, widest="queue")
        for name in self._visible:
            is_selected = name == self.selected
            style = ("reverse" if not self._in_running else "bold") if is_selected else ""
            cells = dict(zip(_COLUMNS, _cells(self._figures.queues[name]), strict=True))
            grid.add_row(clean(name), *(cells[title] for title in shown), style=style)
        return grid

    def _about(self) -> list[tuple[bool, str]]:
        """Return lines about the selected queue, and for each whether it is a warning."""
        if self._figures.error:
            return [(True, self._figures.error)]
        if not self._figures.is_read:
            return [(False, "reading …")]
        if not self.selected:
            return [(False, "no queues: a queue is shown once a message was sent to it")]
        found = self._figures.queues[self.selected]
        if found.error:
            return [(True, f"{self.selected}: {found.error}")]
        if (stats := found.stats) is None:
            return []
        late = [
            f"p{percent} {text}" for percent in (50, 99) if (text := percentile_text(stats.lateness, percent / 100))
        ]
        lines = [(False, f"lateness {', '.join(late)}")] if late else []
        lines += [(False, slo_text(stats.slo))] if stats.slo else []
        lines += [(True, pause_text(stats.counts.paused, stats.at))] if stats.counts.paused else []
        lines += [(True, throttled_text(stats.counts))] if stats.counts.throttled else []
        lines += [(True, unconsumed(stats))] if stats.nobody_consumes else []
        stands_still = stats.lag >= timedelta(seconds=1) and not (found.rates and found.rates.acked)
        if stands_still and not any(is_warning for is_warning, _ in lines):
            lines += [(True, reason.text) for reason in Looked(stats, {}, {}, self._figures.workers).busy()]
        return [(is_warning, f"{self.selected}: {line}") for is_warning, line in lines]

    @property
    def _last_line(self) -> str:
        if self._question:
            return f"{self._question.text}? [y/N]"
        return clean(self._message) or _HELP["running" if self._in_running else "queues"]


def _retry(queue: DelayQueue[Any]) -> str:
    outcomes = queue.select(State.BACKOFF).run_now()
    return f"{pluralize(sum(outcomes.values()), 'message')} made due"


def _redrive(queue: DelayQueue[Any]) -> str:
    done = queue.dead.redrive(all=True)
    kept = f", {done.exists:,} stay, as there are messages with their ids" if done.exists else ""
    return f"{pluralize(done.redriven, 'message')} sent again{kept}"


def _moved(names: Sequence[str], selected: str, step: int) -> str:
    """Return the name so many steps after the selected one; the first if none is selected."""
    at = names.index(selected) + step if selected in names else 0
    return names[max(0, min(at, len(names) - 1))] if names else ""


def _running_table(queue: str, running: Sequence[RunningNow], picked: str) -> Table:
    title = _MESSAGE.format(clean(queue)) if queue else ""
    grid = _grid("runs for", title, "worker", widest=title)
    for one in running:
        lasts = format_duration(max(0.0, one.lasts.total_seconds()))
        grid.add_row(lasts, clean(one.id), clean(one.worker), style="reverse" if one.id == picked else "")
    return grid


def _grid(*titles: str, widest: str) -> Table:
    """Return an empty table with a line per row, as wide as the screen."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), expand=True, header_style="dim")
    for title in titles:
        justify: Literal["left", "right"] = "right" if title in _COLUMNS else "left"
        ratio = 1 if title == widest else None
        grid.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis", ratio=ratio)
    return grid


def _cells(found: TopRow) -> list[str]:
    """Return the cells of a queue after its name."""
    stats, rates = found.stats, found.rates
    if stats is None:
        return ["?" if found.error else ""] * len(_COLUMNS)
    counts = stats.counts
    numbers = (counts.pending, counts.overdue, counts.active, counts.backoff + counts.retry, counts.dead)
    paces = [_pace(one) for one in rates] if rates else ["–", *(f"~{_pace(one)}" for one in found.lately or ())]
    lag = stats.lag.total_seconds()
    late = "paused" if counts.paused else format_duration(lag).split(" ")[0] if lag >= 1 else ""
    return [
        *map(_short, numbers),
        *paces,
        *["–"] * (3 - len(paces)),
        late,
        _short(stats.workers),
    ]


def _pace(number: float) -> str:
    return _short(round(number)) if number >= 10 else f"{number:.1f}".removesuffix(".0")  # noqa: PLR2004


def _short(number: int) -> str:
    """Return a number in at most five characters: 9999, 12k, 3.4M."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= max(size, _THOUSAND):
            scaled = number / size
            return f"{scaled:.1f}{unit}" if scaled < 10 and size > 10**3 else f"{scaled:.0f}{unit}"  # noqa: PLR2004
    return str(number)
