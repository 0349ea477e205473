"""Rates of late: what happened to the messages of a queue each second, from the totals of a few readings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from delayq.queue.inspecting.counts import Stats

RATES_OVER = timedelta(seconds=10)
"""How far back the beginning of a rate lies, at least once so much is known."""


class Rates(NamedTuple):
    """What happened to the messages of a queue each second of late."""

    sent: float
    acked: float
    failed: float


@dataclass(slots=True)
class Readings:
    """The last reading of a queue, and those before it from which its rates are."""

    stats: Stats | None = None
    earlier: tuple[Stats, ...] = ()
    """What was read before, the oldest first."""

    def update(self, stats: Stats) -> None:
        """Take what was read now."""
        known = (*self.earlier, stats)
        old = [one for one in known if stats.at - one.at >= RATES_OVER]
        self.earlier = known[max(0, len(old) - 1) :]
        self.stats = stats

    @property
    def rates(self) -> Rates | None:
        """The rates since the oldest reading; None if there is one reading only."""
        if self.stats is None or not self.earlier or self.earlier[0].at >= self.stats.at:
            return None
        first, seconds = self.earlier[0], (self.stats.at - self.earlier[0].at).total_seconds()
        now, before = self.stats.totals, first.totals
        sent, acked, failed, expired = (
            max(0, now.get(kind, 0) - before.get(kind, 0)) / seconds for kind in ("sent", "acked", "nacked", "expired")
        )
        return Rates(sent, acked, failed + expired)
