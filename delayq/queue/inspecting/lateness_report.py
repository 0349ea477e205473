"""How late the messages of a queue started, and how its objective for that is kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from delayq.broker.replies import CountsReply
from delayq.broker.stored_presence import BUCKETS, HOUR, HourCounts, history_call, sum_of
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError
from delayq.values.lateness import LATENESS_BOUNDS, read_slo
from delayq.values.text import format_duration, pluralize

if TYPE_CHECKING:
    from delayq.broker.context import QueueContext

MAX_READ = 1000
"""Hours that one call reads."""
SLO_HOURS = 30 * 24
"""Hours over which an objective is judged."""


@dataclass(frozen=True, slots=True)
class LatenessCounts:
    """How late messages started, from the due time to the start of the first attempt, in buckets.

    A message that was snoozed counts once, one whose attempt failed as well.
    """

    numbers: tuple[int, ...] = (0,) * BUCKETS
    """How many were at most so late: 1, 5, 10, 50, 100, 500 ms, 1, 5, 10, 30 s, 1 min, 5 min, 1 h; and later."""

    @property
    def total(self) -> int:
        """How many messages were counted."""
        return sum(self.numbers)

    def percentile(self, share: float) -> timedelta | None:
        """Return how late that share of the messages was at most, 0.99 for 99 %: the end of its bucket.

        None if there are no messages, and `timedelta.max` for more than an hour.
        """
        wanted, seen = share * self.total, 0
        if not self.total:
            return None
        for number, bound in zip(self.numbers, LATENESS_BOUNDS, strict=False):
            seen += number
            if seen and seen >= wanted:
                return timedelta(milliseconds=bound)
        return timedelta.max

    def within(self, millis: int) -> int:
        """Return how many were at most as late as one of the ends of the buckets (ms)."""
        return sum(self.numbers[: LATENESS_BOUNDS.index(millis) + 1])


def percentile_text(lateness: LatenessCounts, share: float) -> str:
    """Return a percentile of the lateness: "≤ 10ms"; '' without messages."""
    late = lateness.percentile(share)
    if late is None:
        return ""
    return "> 1h" if late == timedelta.max else f"≤ {format_duration(late.total_seconds())}"


@dataclass(frozen=True, slots=True)
class SloReport:
    """How an objective for lateness was kept over the last 30 days."""

    objective: str
    """The option `lateness_slo` of the queue: `"99% within 1s"`."""
    counted: int
    """How many messages started."""
    late: int
    """How many of them were later than the objective allows for."""
    kept: float | None
    """The share that was not, from 0 to 1; None if none has started."""
    budget_left: float
    """The share that is left of the late messages that the objective allows: 1 if none was late, 0 if all are spent,
    below 0 if the objective was missed."""

    @property
    def missed(self) -> bool:
        """Whether more were late than the objective allows."""
        return self.budget_left < 0


def read_hours(context: QueueContext, number: int) -> Operation[tuple[int, list[tuple[int, HourCounts]]]]:
    """Read so many hours up to now; returns the server's time (ms), and the start (ms) and the counts of each."""
    found: list[tuple[int, HourCounts]] = []
    now = last = None
    while number > 0:
        limit = min(number, MAX_READ)
        (reply,) = yield [history_call(context.calls, limit=limit, last=last)]
        now = reply.now if now is None else now
        last = now // HOUR if last is None else last
        found += [((last - back) * HOUR, counts) for back, counts in enumerate(reply.hours) if counts is not None]
        last, number = last - limit, number - limit
    return now or 0, found


def read_slo_report(context: QueueContext, counted: CountsReply) -> Operation[SloReport | None]:
    """Read how the objective of a queue for lateness is kept; None if it has none, which takes no call."""
    objective = counted.meta.get("lateness_slo", "")
    if not objective:
        return None
    _, hours = yield from read_hours(context, SLO_HOURS)
    return slo_report(objective, lateness_of(counts for _, counts in hours))


def lateness_of(hours: Iterable[HourCounts | None]) -> LatenessCounts:
    """Return how late messages started in some hours."""
    return LatenessCounts(sum_of(one for one in hours if one is not None).lateness)


def slo_report(objective: str, counts: LatenessCounts) -> SloReport | None:
    """Return how an objective was kept; None for none, or for what another program has stored in its place."""
    try:
        share, within = read_slo(objective)
    except ConfigurationError:
        return None
    counted = counts.total
    late = counted - counts.within(within)
    kept = 1 - late / counted if counted else None
    left = 1 - late / (counted * (1 - share)) if counted else 1.0
    return SloReport(objective, counted, late, kept, round(left, 9))


def slo_text(report: SloReport) -> str:
    """Return the objective and how it was kept: "99% within 1s: 99.95% in 30 days, 95% of the error budget left"."""
    if report.kept is None:
        return f"{report.objective}: workers have counted no start in 30 days"
    of = f"{_percent(report.kept)} of {pluralize(report.counted, 'message')} in 30 days"
    if report.missed:
        return f"{report.objective}: missed, {of}; {-report.budget_left + 1:.3g} times the error budget is spent"
    return f"{report.objective}: {of}; {100 * report.budget_left:.3g}% of the error budget left"


def _percent(share: float) -> str:
    """Return a share in percent, with four digits; never 100 % for less."""
    percent = int(share * 1_000_000 + 1e-6) / 10_000
    return f"{percent:g}%"
