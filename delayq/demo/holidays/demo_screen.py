"""What the demo prints: a line per delivery, a panel below that follows the year, and the balance.

Without a terminal, a plain line now and then replaces the panel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from delayq.demo.holidays.balance import Balance, DeliveryLog, KilledWorker
from delayq.demo.holidays.demo_worker import EndedReport, StartedReport
from delayq.demo.holidays.holiday_reminders import HolidayReminder
from delayq.testing.live_panel import LABEL, LivePanel, labelled

WIDE = 100
"""Columns from which zones are written in full; below, holidays get the space."""
LATE = 50.0
"""Milliseconds of lateness from which it is highlighted."""
PLAIN_LINES = 10
"""Progress lines a year, without a terminal."""

_ZONE, _NARROW_ZONE, _NOTE = 30, 20, 11
_CUT_LINES, _WRAP_LINES = "\x1b[?7l", "\x1b[?7h"
"""Terminals measure some scripts wider than we do: such a line is cut, since a wrapped one would break the panel."""


@dataclass(frozen=True, slots=True)
class DemoProgress:
    """How far the run is."""

    share: float
    """Of the year, 0 to 1."""
    today: datetime
    """The date in the time lapse."""
    sent: int
    next_due: HolidayReminder | None
    in_flight: int
    dead: int
    workers: int
    kills: list[KilledWorker]
    log: DeliveryLog


class DemoScreen(LivePanel):
    """The output of the demo."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._progress: DemoProgress | None = None
        self._lines: list[Text] = []
        self._plain_lines = 0

    def __enter__(self) -> Self:
        super().__enter__()
        if self._live:
            self._console.file.write(_CUT_LINES)
        return self

    def __exit__(self, *error: object) -> None:
        self._print()
        if self._live:
            self._console.file.write(_WRAP_LINES)
        super().__exit__(*error)

    def __rich__(self) -> RenderableType:
        return _panel(self._progress) if self._progress else Text()

    def say(self, text: str, style: str = "") -> None:
        """Print a line at once."""
        self._lines.append(Text(text, style))
        self._print()

    def show(self, reminder: HolidayReminder, report: StartedReport | EndedReport) -> None:
        """Add the line of a delivery that has started, was discarded, or died."""
        if isinstance(report, StartedReport):
            late = report.lateness * 1000
            note = f"+{late:,.0f} ms"
            style = "magenta" if report.attempt > 1 else "green" if late < LATE else "yellow"
            self._lines.append(self._line(reminder, f"↻ {note}" if report.attempt > 1 else note, style))
        elif report.outcome == "discarded":
            self._lines.append(self._line(reminder, "discarded", LABEL))
        elif report.outcome == "failed" and report.retries_left == 0:
            self._lines.append(self._line(reminder, "dead letter", "bold red"))

    def refresh(self, progress: DemoProgress) -> None:
        """Print the lines added since the last call, and update the panel."""
        if self._live:
            self._progress = progress
            if not self._print():
                self._live.refresh()
            return
        if (due_lines := math.floor(progress.share * PLAIN_LINES)) > self._plain_lines:
            self._plain_lines = due_lines
            self._lines.append(Text(_progress_line(progress)))
        self._print()

    def balance(self, balance: Balance, kills: list[KilledWorker]) -> None:
        """Print the balance."""
        self._lines += _balance_lines(balance, kills)
        self._print()

    def _print(self) -> bool:
        """Print the added lines in one go, which redraws the panel; return whether there were any."""
        lines, self._lines = self._lines, []
        if lines:
            self._console.print(Text("\n").join(lines), soft_wrap=True)
        return bool(lines)

    def _line(self, reminder: HolidayReminder, note: str, style: str) -> Text:
        """Lay a reminder out in columns: time, zone, country, holiday, and a note about the delivery."""
        name, gap = reminder.holiday, "  "
        zone = reminder.zone.ljust(_ZONE)
        if self._live:
            width = self._console.width
            if width < WIDE:
                zone = _fit(reminder.zone, _NARROW_ZONE)
            name = _fit(name, max(width - len("01 Jan 09:00 ") - len(zone) - len("  PT    ") - _NOTE, 8))
            gap = f"  \x1b[{width - _NOTE + 1}G\x1b[K"  # terminals differ in how wide some scripts are
            note = note.rjust(_NOTE)
        when = f"{reminder.at:%d %b %H:%M} "
        return Text.assemble(when, (zone, LABEL), "  ", (reminder.country, "cyan"), "  ", name, gap, (note, style))


def _panel(progress: DemoProgress) -> RenderableType:
    log, late = progress.log, progress.log.lateness
    year = Table.grid(padding=(0, 1), expand=True)
    year.add_column(ratio=1)
    year.add_column(justify="right", width=5)
    year.add_column(justify="right", width=12)
    bar = ProgressBar(total=1, completed=progress.share, complete_style="cyan", finished_style="green")
    year.add_row(bar, f"{progress.share:.0%}", Text(f"{progress.today:%d %b %Y}", "bold"))
    facts = Table.grid(padding=(0, 2), expand=True)
    facts.add_column(style=LABEL, width=9)
    facts.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    due = progress.next_due
    following = f"{due.at:%d %b %H:%M} {due.zone}  {due.country}  {due.holiday}" if due else "nothing more this year"
    facts.add_row("next due", Text(following))
    failed = [("retried", log.retried), ("dead", progress.dead), ("discarded", len(log.discarded))]
    numbers = [(name, f"{number:,}") for name, number in failed]
    facts.add_row("delivered", labelled(("", f"{len(log.acked):,} of {progress.sent:,}"), *numbers))
    facts.add_row("lateness", labelled(("p50", _ms(late.p50)), ("p99", _ms(late.p99)), ("max", _ms(late.max))))
    facts.add_row("workers", labelled(("", f"{progress.workers}"), ("in flight", f"{progress.in_flight}")))
    for kill in progress.kills:
        back = f"{log.redelivered(kill)} of {len(kill.in_flight)} in flight are delivered again"
        facts.add_row("killed", Text(f"{kill.name}: {back}", "red"))
    return Padding(Group(year, facts), (1, 0, 0, 0))


def _progress_line(progress: DemoProgress) -> str:
    log, late = progress.log, progress.log.lateness
    return (
        f"--- {progress.today:%d %b %Y}  {progress.share:.0%}  delivered {len(log.acked):,}"
        f"  retried {log.retried}  dead {progress.dead}  in flight {progress.in_flight}"
        f"  late p50 {_ms(late.p50)}, p99 {_ms(late.p99)}"
    )


def _balance_lines(balance: Balance, kills: list[KilledWorker]) -> Iterator[Text]:
    """Yield the lines of the balance; they fit into 80 columns."""

    def row(name: str, value: str, note: str, style: str = "") -> Text:
        gap = "  " if note else ""
        return Text.assemble(name.ljust(11), (value.rjust(7), style), gap, (note, LABEL))

    def checked(name: str, value: int, wrong: int, note: str) -> Text:
        return row(name, f"{value:,}", note, "bold red" if wrong else "green")

    late = balance.lateness_ms
    where = "one country" if balance.countries == 1 else f"{balance.countries} countries"
    yield Text()
    yield row("sent", f"{balance.sent:,}", f"reminders of public holidays in {where}")
    yield row("acked", f"{balance.acked:,}", f"delivered; {balance.retried:,} attempts were retries after a failure")
    yield row("dead", f"{balance.dead:,}", "failed at every attempt; kept in the dead letter")
    yield row("discarded", f"{balance.discarded:,}", "no longer wanted")
    if balance.left:
        yield row("left", f"{balance.left:,}", "still in the queue")
    yield Text()
    yield checked("early", balance.early, balance.early, "by the server's clock, read at each delivery")
    yield checked("lost", balance.lost, balance.lost, "")
    yield checked("duplicates", balance.duplicates, balance.duplicates - balance.explained, _explanation(balance))
    for kill in kills:
        yield row("killed", "1", f"{kill.name}, with {len(kill.in_flight)} in flight")
    yield row("lateness", "", f"p50 {_ms(late.p50)}, p99 {_ms(late.p99)}, max {_ms(late.max)}, of first attempts")
    yield Text()
    parts = f"{balance.acked:,} acked + {balance.dead:,} dead + {balance.discarded:,} discarded"
    parts += f" + {balance.left:,} left" if balance.left else ""
    if balance.adds_up:
        yield Text(f"It adds up: {balance.sent:,} sent = {parts}.", "bold green")
        return
    yield Text(f"It does not add up: {balance.sent:,} sent, {parts}.", "bold red")
    for problem in balance.problems:
        yield Text(f"  {problem}", "red")


def _explanation(balance: Balance) -> str:
    if not balance.duplicates:
        return ""
    if balance.explained == balance.duplicates:
        return "in flight in the killed worker; delivered again after the lease"
    return f"of which {balance.explained} were in flight in the killed worker"


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if value < 10 else f"{value:,.0f} ms"  # noqa: PLR2004 - one digit is enough above


def _fit(text: str, width: int) -> str:
    """Return a text in exactly so many columns, cut with an ellipsis if it is longer."""
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
