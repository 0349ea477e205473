"""What the demo shows: a line for each reminder as it fires, a panel below that follows the year, the account.

Where there is no terminal, the panel becomes a plain line now and then, and nothing but text is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from delayq.demo.account import Account, Kill, Ledger
from delayq.demo.reminders import Reminder
from delayq.demo.worker import Ended, Started

WIDE = 100
"""Columns from which zones are written out; below, names get the room."""
LATE = 50.0
"""Milliseconds from which a lateness is coloured."""
TELLINGS = 10
"""Plain lines a year."""

_ZONE, _NARROW_ZONE, _NOTE = 30, 20, 11
_LABEL = "bright_black"
_CUT_LINES, _WRAP_LINES = "\x1b[?7l", "\x1b[?7h"
"""Tell the terminal what to do with a line that it finds wider than we do; a wrapped one would upset the panel."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the run stands."""

    share: float
    """Of the year, 0 to 1."""
    today: datetime
    """The date in the time lapse."""
    sent: int
    next_due: Reminder | None
    in_flight: int
    dead: int
    workers: int
    kills: list[Kill]
    ledger: Ledger


class Screen:
    """A terminal with a live panel, or a plain stream of lines."""

    def __init__(self, console: Console) -> None:
        """Write to `console`; with a panel if it is a terminal that can be drawn on."""
        self._console = console
        drawn = console.file.isatty() and not console.is_dumb_terminal and not console.quiet
        self._live = Live(self, console=console, auto_refresh=False, transient=True) if drawn else None
        self._progress: Progress | None = None
        self._lines: list[Text] = []
        self._told = 0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
            self._console.file.write(_CUT_LINES)
        return self

    def __exit__(self, *_: object) -> None:
        self._print()
        if self._live:
            self._console.file.write(_WRAP_LINES)
            self._live.stop()

    def __rich__(self) -> RenderableType:
        """Return the panel, which is drawn anew below whatever is printed."""
        return _panel(self._progress) if self._progress else Text()

    def say(self, text: str, style: str = "") -> None:
        """Write a sentence at once."""
        self._lines.append(Text(text, style))
        self._print()

    def show(self, reminder: Reminder, report: Started | Ended) -> None:
        """Write the line of a delivery that has begun, or has ended in another way than most."""
        if isinstance(report, Started):
            late = report.lateness * 1000
            note = f"+{late:,.0f} ms"
            if report.attempt > 1:
                self._lines.append(self._line(reminder, f"↻ {note}", "magenta"))
            else:
                self._lines.append(self._line(reminder, note, "green" if late < LATE else "yellow"))
        elif report.outcome == "discarded":
            self._lines.append(self._line(reminder, "discarded", _LABEL))
        elif report.outcome == "failed" and report.retries_left == 0:
            self._lines.append(self._line(reminder, "dead letter", "bold red"))

    def refresh(self, progress: Progress) -> None:
        """Show what has come since, and where the run stands."""
        if self._live:
            self._progress = progress
            if not self._print():
                self._live.refresh()
            return
        told = math.floor(progress.share * TELLINGS)
        if told > self._told:
            self._told = told
            self._lines.append(Text(_summary(progress)))
        self._print()

    def account(self, account: Account, kills: list[Kill]) -> None:
        """Print the account."""
        self._lines += _statement(account, kills)
        self._print()

    def _print(self) -> bool:
        """Write the lines that have gathered, in one go, which draws the panel anew; returns whether there were any."""
        lines, self._lines = self._lines, []
        if lines:
            self._console.print(Text("\n").join(lines), soft_wrap=True)
        return bool(lines)

    def _line(self, reminder: Reminder, note: str, style: str) -> Text:
        """Lay a reminder out in columns: when and where, country, holiday, and what became of it."""
        name, place = reminder.holiday, "  "
        zone = reminder.zone.ljust(_ZONE)
        if self._live:
            width = self._console.width
            if width < WIDE:
                zone = _fit(reminder.zone, _NARROW_ZONE)
            name = _fit(name, max(width - len("01 Jan 09:00 ") - len(zone) - len("  PT    ") - _NOTE, 8))
            place = f"  \x1b[{width - _NOTE + 1}G\x1b[K"  # terminals differ in how wide some scripts are
            note = note.rjust(_NOTE)
        when = f"{reminder.at:%d %b %H:%M} "
        return Text.assemble(when, (zone, _LABEL), "  ", (reminder.country, "cyan"), "  ", name, place, (note, style))


def _panel(progress: Progress) -> RenderableType:
    ledger, late = progress.ledger, progress.ledger.lateness
    year = Table.grid(padding=(0, 1), expand=True)
    year.add_column(ratio=1)
    year.add_column(justify="right", width=5)
    year.add_column(justify="right", width=12)
    bar = ProgressBar(total=1, completed=progress.share, complete_style="cyan", finished_style="green")
    year.add_row(bar, f"{progress.share:.0%}", Text(f"{progress.today:%d %b %Y}", "bold"))
    facts = Table.grid(padding=(0, 2), expand=True)
    facts.add_column(style=_LABEL, width=9)
    facts.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    facts.add_row("next due", _next(progress.next_due))
    facts.add_row(
        "delivered",
        _figures(
            ("", f"{len(ledger.acked):,} of {progress.sent:,}"),
            ("retried", f"{ledger.retried:,}"),
            ("dead", f"{progress.dead:,}"),
            ("discarded", f"{len(ledger.discarded):,}"),
        ),
    )
    facts.add_row(
        "lateness",
        _figures(("p50", _ms(late.p50)), ("p99", _ms(late.p99)), ("max", _ms(late.max))),
    )
    facts.add_row("workers", _figures(("", f"{progress.workers}"), ("in flight", f"{progress.in_flight}")))
    for kill in progress.kills:
        back = f"{ledger.came_back(kill)} of {len(kill.held)} in flight are back"
        facts.add_row("killed", Text(f"{kill.name}: {back}", "red"))
    return Padding(Group(year, facts), (1, 0, 0, 0))


def _next(reminder: Reminder | None) -> Text:
    if reminder is None:
        return Text("nothing more this year")
    return Text(f"{reminder.at:%d %b %H:%M} {reminder.zone}  {reminder.country}  {reminder.holiday}")


def _figures(*pairs: tuple[str, str]) -> Text:
    text = Text()
    for label, value in pairs:
        text.append("   " if text else "")
        text.append(f"{label} " if label else "", _LABEL)
        text.append(value)
    return text


def _summary(progress: Progress) -> str:
    ledger, late = progress.ledger, progress.ledger.lateness
    return (
        f"--- {progress.today:%d %b %Y}  {progress.share:.0%}  delivered {len(ledger.acked):,}"
        f"  retried {ledger.retried}  dead {progress.dead}  in flight {progress.in_flight}"
        f"  late p50 {_ms(late.p50)}, p99 {_ms(late.p99)}"
    )


def _statement(account: Account, kills: list[Kill]) -> Iterator[Text]:
    """Yield the lines of the account; they fit into 80 columns."""

    def row(name: str, value: str, note: str, style: str = "") -> Text:
        gap = "  " if note else ""
        return Text.assemble(name.ljust(11), (value.rjust(7), style), gap, (note, _LABEL))

    def judged(name: str, value: int, wrong: int, note: str) -> Text:
        return row(name, f"{value:,}", note, "bold red" if wrong else "green")

    late = account.lateness_ms
    whose = "one country" if account.countries == 1 else f"{account.countries} countries"
    yield Text()
    yield row("sent", f"{account.sent:,}", f"reminders of public holidays of {whose}")
    yield row("acked", f"{account.acked:,}", f"delivered; {account.retried:,} attempts were retries after a failure")
    yield row("dead", f"{account.dead:,}", "failed at every attempt; kept with payload and reason")
    yield row("discarded", f"{account.discarded:,}", "no longer wanted")
    if account.left:
        yield row("left", f"{account.left:,}", "still in the queue")
    yield Text()
    yield judged("early", account.early, account.early, "by the server's clock, asked at each delivery")
    yield judged("lost", account.lost, account.lost, "")
    yield judged("duplicates", account.duplicates, account.duplicates - account.explained, _explanation(account))
    for kill in kills:
        yield row("killed", "1", f"{kill.name}, with {len(kill.held)} in flight")
    yield row("lateness", "", f"p50 {_ms(late.p50)}, p99 {_ms(late.p99)}, max {_ms(late.max)}, of first attempts")
    yield Text()
    parts = f"{account.acked:,} acked + {account.dead:,} dead + {account.discarded:,} discarded"
    parts += f" + {account.left:,} left" if account.left else ""
    if account.adds_up:
        yield Text(f"It adds up: {account.sent:,} sent = {parts}.", "bold green")
        return
    yield Text(f"It does not add up: {account.sent:,} sent, {parts}.", "bold red")
    for problem in account.problems:
        yield Text(f"  {problem}", "red")


def _explanation(account: Account) -> str:
    if not account.duplicates:
        return ""
    if account.explained == account.duplicates:
        return "under way in the killed worker; came again after its lease"
    return f"of which {account.explained} were under way in the killed worker"


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if value < 10 else f"{value:,.0f} ms"  # noqa: PLR2004 - one digit is enough above


def _fit(text: str, width: int) -> str:
    """Return a text in exactly so many columns, cut with an ellipsis if it is longer."""
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"
