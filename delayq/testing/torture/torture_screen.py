"""What a run shows: a line for each fault as it happens, a panel that follows the round, the account at the end.

Where there is no terminal, there is a line for each round, and nothing but text is written.
"""

from __future__ import annotations

from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from delayq.torture.account import Account, RoundAccount, statement
from delayq.torture.plan import Plan, Planned
from delayq.torture.round import Progress

_LABEL = "bright_black"
_LOUD = {"kill", "server-kill", "power"}
_RATES = {"sent": "sent", "started": "delivered", "acked": "acked"}


class Screen:
    """A terminal with a live panel, or a plain stream of lines."""

    def __init__(self, console: Console) -> None:
        """Write to `console`; with a panel if it is a terminal that can be drawn on."""
        self._console = console
        drawn = console.file.isatty() and not console.is_dumb_terminal and not console.quiet
        self._live = Live(self, console=console, auto_refresh=False, transient=True) if drawn else None
        self._progress: Progress | None = None
        self._before: Progress | None = None
        self._rates: dict[str, float] = {}
        self._rounds = 0

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def __rich__(self) -> RenderableType:
        """Return the panel, which is drawn anew below whatever is printed."""
        return _panel(self._progress, self._rates, self._rounds) if self._progress else Text()

    def say(self, text: str, style: str = "") -> None:
        """Write a sentence."""
        self._console.print(Text(text, style), soft_wrap=True)

    def begin(self, plan: Plan, rounds: int) -> None:
        """A round begins."""
        self._rounds, self._progress, self._before = rounds, None, None
        what = f"{plan.messages:,} messages in {plan.seconds:.0f} s, {len(plan.faults):,} faults, AOF {plan.aof}"
        self.say(f"round {plan.round} of {rounds}: {what}", "bold")

    def fault(self, at: float, planned: Planned, text: str) -> None:
        """A fault happened; without a panel that is not told one by one."""
        if self._live:
            style = "red" if planned.kind in _LOUD else "yellow"
            self.say(f"{at:7.2f} s  {planned.kind:<12}{text}", style)

    def refresh(self, progress: Progress) -> None:
        """Show where the round stands."""
        before, self._progress = self._before, progress
        if progress.looked:
            if before and before.looked and progress.looked.totals and progress.elapsed > before.elapsed:
                passed = progress.elapsed - before.elapsed
                for label, total in _RATES.items():
                    more = progress.looked.totals.get(total, 0) - before.looked.totals.get(total, 0)
                    self._rates[label] = 0.7 * self._rates.get(label, 0.0) + 0.3 * max(more, 0) / passed
            self._before = progress
        if self._live:
            self._live.refresh()

    def end(self, account: RoundAccount) -> None:
        """A round is over."""
        self._progress = None
        verdict = account.verdict
        if verdict is None:
            self.say(f"round {account.round}: interrupted", "yellow")
            return
        said = f"{verdict.messages:,} messages, {verdict.deliveries:,} deliveries, {verdict.duplicates:,} duplicates"
        if account.right:
            self.say(f"round {account.round}: right; {said}, {account.seconds:.0f} s", "green")
        else:
            why = ", ".join([*(f"{rule} {number}" for rule, number in verdict.broken.items()), *account.problems])
            self.say(f"round {account.round}: WRONG ({why}); {said}, {account.seconds:.0f} s", "bold red")

    def account(self, account: Account) -> None:
        """Print the account."""
        self.say("")
        for line in statement(account):
            self.say(line)
        if account.right and not account.interrupted:
            self.say("Right: everything sent is accounted for.", "bold green")
        elif not account.right:
            self.say("WRONG: the guarantees do not hold.", "bold red")


def _panel(progress: Progress, rates: dict[str, float], rounds: int) -> RenderableType:
    plan, looked = progress.plan, progress.looked
    head = Text(f"round {plan.round} of {rounds}, {progress.phase}, {progress.elapsed:.0f} of {plan.seconds:.0f} s")
    share = min(progress.elapsed / plan.seconds, 1) if plan.seconds else 1
    facts = Table.grid(padding=(0, 2))
    if rates:
        facts.add_row("per second", _figures({name: f"{rate:,.0f}" for name, rate in rates.items()}))
    if looked:
        facts.add_row("queue", _figures({name: f"{number:,}" for name, number in looked.counts.items()}))
    else:
        facts.add_row("queue", Text("Redis does not answer", "red"))
    facts.add_row("workers", f"{progress.workers}")
    facts.add_row("faults", _figures({kind: f"{number:,}" for kind, number in progress.faults.items()}))
    return Padding(Group(head, ProgressBar(total=1, completed=share, width=60), facts), (1, 0, 0, 0))


def _figures(pairs: dict[str, str]) -> Text:
    text = Text()
    for label, value in pairs.items():
        text.append("   " if text else "")
        text.append(f"{label} ", _LABEL)
        text.append(value)
    return text
