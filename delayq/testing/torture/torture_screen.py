"""What a run prints: on a terminal each fault as it happens and a live panel; elsewhere a line per round."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from delayq.queue.inspecting.counts import Stats
from delayq.testing.torture.round_plan import PlannedFault, RoundPlan
from delayq.testing.torture.run_tally import RoundTally, RunTally, summary_lines

_SEVERE = {"kill", "server-kill", "power"}
_RATES = {"sent": "sent", "started": "delivered", "acked": "acked"}


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """How far a round is."""

    plan: RoundPlan
    elapsed: float
    stats: Stats | None
    """None while Redis does not reply."""
    workers: int
    faults: dict[str, int]
    phase: str


class TortureScreen:
    """The output of a run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        can_draw = console.file.isatty() and not console.is_dumb_terminal and not console.quiet
        self._live = Live(self, console=console, auto_refresh=False, transient=True) if can_draw else None
        self._progress: RoundProgress | None = None
        self._before: RoundProgress | None = None
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
        return _panel(self._progress, self._rates, self._rounds) if self._progress else Text()

    def begin(self, plan: RoundPlan, rounds: int) -> None:
        """A round begins."""
        self._rounds, self._progress, self._before = rounds, None, None
        what = f"{plan.messages:,} messages in {plan.seconds:.0f} s, {len(plan.faults):,} faults, AOF {plan.aof}"
        self._print(f"round {plan.round} of {rounds}: {what}", "bold")

    def fault(self, at: float, planned: PlannedFault, text: str) -> None:
        """A fault happened; it is shown on a terminal only."""
        if self._live:
            self._print(f"{at:7.2f} s  {planned.kind:<12}{text}", "red" if planned.kind in _SEVERE else "yellow")

    def refresh(self, progress: RoundProgress) -> None:
        """Show how far the round is."""
        before, self._progress = self._before, progress
        if progress.stats:
            if before and before.stats and progress.elapsed > before.elapsed:
                passed = progress.elapsed - before.elapsed
                for label, total in _RATES.items():
                    more = progress.stats.totals.get(total, 0) - before.stats.totals.get(total, 0)
                    self._rates[label] = 0.7 * self._rates.get(label, 0.0) + 0.3 * max(more, 0) / passed
            self._before = progress
        if self._live:
            self._live.refresh()

    def end(self, tally: RoundTally) -> None:
        """A round is over."""
        self._progress = None
        result = tally.verdict
        if result is None:
            self._print(f"round {tally.round}: interrupted", "yellow")
            return
        counts = f"{result.messages:,} messages, {result.deliveries:,} deliveries, {result.duplicates:,} duplicates"
        if tally.right:
            self._print(f"round {tally.round}: right; {counts}, {tally.seconds:.0f} s", "green")
        else:
            why = ", ".join([*(f"{rule} {number}" for rule, number in result.broken.items()), *tally.problems])
            self._print(f"round {tally.round}: WRONG ({why}); {counts}, {tally.seconds:.0f} s", "bold red")

    def summary(self, tally: RunTally) -> None:
        """Print the tally of the run."""
        self._print("")
        for line in summary_lines(tally):
            self._print(line)
        if tally.right and not tally.interrupted:
            self._print("Right: every message is accounted for.", "bold green")
        elif not tally.right:
            self._print("WRONG: a guarantee was broken.", "bold red")

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style), soft_wrap=True)


def _panel(progress: RoundProgress, rates: dict[str, float], rounds: int) -> RenderableType:
    plan, stats = progress.plan, progress.stats
    head = Text(f"round {plan.round} of {rounds}, {progress.phase}, {progress.elapsed:.0f} of {plan.seconds:.0f} s")
    share = min(progress.elapsed / plan.seconds, 1) if plan.seconds else 1
    facts = Table.grid(padding=(0, 2))
    if rates:
        facts.add_row("per second", _labelled(*((name, f"{rate:,.0f}") for name, rate in rates.items())))
    if stats:
        counts = asdict(stats.counts)
        facts.add_row("queue", _labelled(*((name, f"{counts[name]:,}") for name in counts if name != "paused")))
    else:
        facts.add_row("queue", Text("Redis does not reply", "red"))
    facts.add_row("workers", f"{progress.workers}")
    facts.add_row("faults", _labelled(*((kind, f"{number:,}") for kind, number in progress.faults.items())))
    return Padding(Group(head, ProgressBar(total=1, completed=share, width=60), facts), (1, 0, 0, 0))


def _labelled(*pairs: tuple[str, str]) -> Text:
    """Return labels and values in one line."""
    text = Text()
    for label, value in pairs:
        text.append("   " if text else "")
        text.append(f"{label} ", "bright_black")
        text.append(value)
    return text
