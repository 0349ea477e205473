"""Counts and times of a queue in one snapshot, and what they say about its consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from delayq.broker.keys import META_SETTINGS
from delayq.broker.replies import CountsReply
from delayq.queue.control.pausing import Pause, pause_in_force
from delayq.queue.inspecting.lateness_report import LatenessCounts, SloReport
from delayq.values.text import format_duration, pluralize
from delayq.values.times import from_millis

UNCONSUMED_AFTER = timedelta(seconds=10)
"""How long messages may wait before `nobody_consumes`: a running consumer moves what is due at once, and what has
expired within 5 s."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages are in each state, in one snapshot."""

    pending: int
    ready: int
    active: int
    backoff: int
    retry: int
    garbage: int
    dead: int
    overdue: int
    """How many of these are due and wait for a consumer; not a state of its own."""
    successors: int = 0
    """How many wait to follow a message that is being processed, sent with `replace="after"`; no messages yet."""
    completed: int = 0
    """How many are settled and have a result that is kept; no messages any more."""
    throttled: int = 0
    """How many are due and wait until a limit lets them start."""
    cold: int = 0
    """How many are in the cold tier of the queue, and not in Redis: not living until they are brought back."""
    paused: Pause | None = None
    """The pause of the queue; None if it is not paused."""

    @property
    def living(self) -> int:
        """Messages that are not dead: all that are still to be processed."""
        return self.pending + self.ready + self.active + self.backoff + self.retry + self.throttled + self.garbage


@dataclass(frozen=True, slots=True)
class Stats:
    """The counts, the next and the oldest due time, and totals since the queue was created."""

    counts: Counts
    at: datetime
    """The server's time of this snapshot."""
    next_due: datetime | None
    """When the next pending message becomes due."""
    oldest_due: datetime | None
    """The earliest due time of the messages that are due and wait for their first delivery."""
    next_deadline: datetime | None
    """When the next lease or nack delay ends; in the past if no consumer has seen it."""
    last_claim: datetime | None
    """When a message was last claimed."""
    held: int
    """Leases that have not expired: somebody is at work."""
    workers: int
    """Consumers that have reported lately, see `DelayQueue.workers`: they run, busy or not."""
    heard: int
    """Those of them that have done so within 30 s: all but workers of more than 20 queues, which report less often."""
    totals: Mapping[str, int]
    """How many messages were ever sent, delivered, acked, nacked, expired, dead, cancelled and so on, by name."""
    lateness: LatenessCounts = field(default_factory=LatenessCounts)
    """How late messages have started in this hour and the last, as consumers count it: `lateness.percentile(0.99)`."""
    slo: SloReport | None = None
    """How the objective `lateness_slo` was kept over 30 days; None if the queue has none."""
    limited: bool = False
    """Whether the queue or a name has a limit, or a name is paused: what is due may wait for that, see `limits`."""

    @property
    def lag(self) -> timedelta:
        """How long the first message has waited for a consumer; zero if none waits."""
        since = [at for at in (self.oldest_due, self.next_deadline) if at is not None and at < self.at]
        return self.at - min(since) if since else timedelta()

    @property
    def nobody_consumes(self) -> bool:
        """Whether messages wait, nobody has claimed one for 10 s, holds a lease, or has told for 30 s that it runs.

        Not said of a paused queue.
        """
        idle = self.last_claim is None or self.at - self.last_claim > UNCONSUMED_AFTER
        nobody = idle and not self.held and not self.heard
        return nobody and self.lag > UNCONSUMED_AFTER and not self.counts.paused


def stats_of(counted: CountsReply, lateness: LatenessCounts | None = None, slo: SloReport | None = None) -> Stats:
    """Return counts, times and totals, with the lateness of the last two hours and the report of the objective."""
    numbers = {name: int(value) for name, value in sorted(counted.meta.items()) if value.isdecimal()}
    claimed = numbers.get("token", -1) // 1000  # a claim takes the time (µs) for its token
    return Stats(
        counts=counts_of(counted),
        at=from_millis(counted.now),
        next_due=_time(counted.next_due),
        oldest_due=_time(counted.oldest_due),
        next_deadline=_time(counted.next_deadline),
        last_claim=_time(claimed),
        held=counted.held,
        workers=counted.workers,
        heard=counted.heard,
        totals={name: number for name, number in numbers.items() if name not in META_SETTINGS},
        lateness=lateness or LatenessCounts(),
        slo=slo,
        limited="limited" in counted.meta,
    )


def counts_of(counted: CountsReply) -> Counts:
    """Return the number of messages in each state, and the pause of the queue."""
    numbers = {name: getattr(counted, name) for name in Counts.__slots__ if name not in ("cold", "paused")}
    cold = int(counted.meta.get("cold", 0))
    return Counts(**numbers, cold=cold, paused=pause_in_force(counted.meta.get("paused", ""), counted.now))


def waiting_text(stats: Stats) -> str:
    """Return how many messages wait for a consumer, and how long: "4,075 messages, the first for 17m"."""
    return f"{pluralize(stats.counts.overdue, 'message')}, the first for {format_duration(stats.lag.total_seconds())}"


def throttled_text(counts: Counts) -> str:
    """Return how many due messages are held back, and by what: "45 throttled, by a limit or a paused name"."""
    return f"{counts.throttled:,} throttled, by a limit or a paused name"


def _time(at: int) -> datetime | None:
    return None if at < 0 else from_millis(at)
