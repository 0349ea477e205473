"""The forecast of a queue: how many messages become due in each minute, hour or day."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from itertools import pairwise
from typing import Any

from delayq.broker.context import QueueContext
from delayq.broker.forecast_calls import MAX_PERIODS, ForecastReply, NamesReply
from delayq.broker.limit_calls import QUEUE, StoredLimit
from delayq.broker.replies import CountsReply
from delayq.broker.transport.operation import Operation
from delayq.queue.counts import counts_of
from delayq.queue.forecast_periods import MILLIS, Unit, check_unit, check_until, edges_of, local_times
from delayq.queue.limits import limit_of
from delayq.rates import parse_rate
from delayq.schedules.local_times import check_zone
from delayq.schedules.occurrence_counts import OccurrenceCounts, count_occurrences
from delayq.times import Duration, from_millis, timestamp

SAMPLE = 500
"""Messages of which the names are read, at most: shares are exact to about 4 %."""


@dataclass(frozen=True, slots=True)
class ForecastBucket:
    """What fires in one minute, hour or day; in the first one, from now on."""

    start: datetime
    """The start, with the offset from UTC that its time zone has then."""
    end: datetime
    """The end, which belongs to the next one."""
    pending: int
    """Messages that become due."""
    retries: int
    """Messages that are delivered again after a failure."""
    scheduled: int
    """Occurrences of schedules that are no messages yet."""

    @property
    def total(self) -> int:
        """All that fires."""
        return self.pending + self.retries + self.scheduled


@dataclass(frozen=True, slots=True)
class Forecast:
    """What fires when, if nothing is sent, cancelled or fails any more."""

    at: datetime
    """The server's time."""
    unit: Unit
    buckets: tuple[ForecastBucket, ...] = field(repr=False)
    """All minutes, hours or days, also those in which nothing fires; the last one is whole."""
    overdue: int
    """Messages that are due and wait for a consumer, as in `counts`; in no bucket."""
    throttled: int
    """Messages that are due and wait until a limit lets them start; in no bucket."""
    retrying: int
    """Messages that wait for a redelivery, due or not."""
    later: int
    """Pending messages that become due after the last bucket."""
    names: Mapping[str, int]
    """How many of the pending messages and occurrences until the end have each name, '' for none; without retries.
    Estimated from a sample if `sampled` is less than `sampled_of`."""
    sampled: int
    """The messages of which the names were read."""
    sampled_of: int
    """The pending messages that are due before the end, also overdue ones that no consumer has seen."""
    scheduled_until: datetime | None
    """From when on occurrences are not counted, as there are more than 100,000 times before; None if all are."""
    rate_limit: str | None
    """The `rate_limit` of the queue; None for none."""
    clear_at: datetime | None
    """When nothing that is due waits any more, if workers start all that `rate_limit` lets them; None if it is not set,
    or if that is not before the end."""
    left: int | None
    """How many would wait at the end, at this rate; None if there is none."""

    @property
    def until(self) -> datetime:
        """The end of the last bucket."""
        return self.buckets[-1].end

    def above(self, rate: str) -> list[ForecastBucket]:
        """Return the buckets in which more fires than at a rate such as `"5000/m"`; raises `ConfigurationError`."""
        count, period = parse_rate(rate, "rate")
        return [bucket for bucket in self.buckets if bucket.total * period > count * MILLIS[self.unit]]


def forecast(
    context: QueueContext, until: Duration | datetime, buckets: str | None, tz: str | tzinfo | None
) -> Operation[Forecast]:
    """Count what fires until a time."""
    unit, end = check_unit(buckets), check_until(until)
    zone = tz if tz is None or isinstance(tz, tzinfo) else check_zone(tz)
    (counted,) = yield [context.calls.counts()]
    unit, edges = edges_of(counted.now, end, unit, zone)
    starts = [counted.now + 1, *edges[1:-1]]  # what is due now is overdue
    calls = [
        context.calls.forecast(starts[at], edges[at + 1 : at + 1 + MAX_PERIODS])
        for at in range(0, len(starts), MAX_PERIODS)
    ]
    *replies, named = yield [*calls, context.calls.sample_names(edges[-1], size=SAMPLE)]
    occurrences = yield from count_occurrences(context, counted.now, edges)
    due = [count for reply in replies for count in reply.due]
    rows = zip(due, _retries(replies, counted.held), occurrences.periods, strict=True)
    times = local_times(edges, zone)
    made = tuple(ForecastBucket(*span, *row) for span, row in zip(pairwise(times), rows, strict=True))
    counts, more = counts_of(counted), occurrences.complete_until
    return Forecast(
        at=from_millis(counted.now),
        unit=unit,
        buckets=made,
        overdue=counts.overdue,
        throttled=counts.throttled,
        retrying=counts.backoff + counts.retry,
        later=max(0, counts.pending - named.total),
        names=_names(named, occurrences),
        sampled=named.sampled,
        sampled_of=named.total,
        scheduled_until=None if more is None else from_millis(more),
        **_backlog(counted, replies[0].limit, made),
    )


def _retries(replies: list[ForecastReply], held: int) -> list[int]:
    """Return the backoffs that end in each period.

    Where there are many, not all leases were told from them. The others are taken for those that end first.
    """
    counts: list[int] = []
    for reply in replies:
        unknown = held - sum(one.leases for one in replies) if reply.inspected < len(reply.due) else 0
        for period, count in enumerate(reply.redelivered):
            taken = min(count, max(0, unknown)) if period >= reply.inspected else 0
            unknown, held = unknown - taken, held - taken
            counts.append(count - taken)
    return counts


def _names(named: NamesReply, occurrences: OccurrenceCounts) -> dict[str, int]:
    """Return how many have each name, the most frequent first."""
    share = named.total / max(1, named.sampled)
    counts = Counter({name: round(count * share) for name, count in named.names.items()}) + occurrences.names
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def _backlog(counted: CountsReply, stored: str, buckets: tuple[ForecastBucket, ...]) -> dict[str, Any]:
    """Return the rate limit of the queue, when all that is due has started at this rate, and what is left at the end.

    Within a bucket, messages are taken to fire evenly.
    """
    limit = limit_of(StoredLimit(QUEUE, stored, "", 0, 0), counted.now) if stored else None
    if limit is None or limit.rate_limit is None:
        return {"rate_limit": None, "clear_at": None, "left": None}
    pause = counts_of(counted).paused
    opens: float = counted.now if limit.held_until is None else timestamp(limit.held_until)
    if pause is not None:
        opens = math.inf if pause.until is None else max(opens, timestamp(pause.until))
    rate = 1000 / float(stored.split(" ")[1])  # starts a millisecond
    waiting: float = counted.overdue + counted.throttled
    clear_at = None if waiting else counted.now
    for bucket in buckets:
        start, end = max(counted.now, timestamp(bucket.start)), timestamp(bucket.end)
        begins = min(max(start, opens), end)
        fires = bucket.total / (end - start)
        found = waiting + fires * (begins - start)
        if clear_at is None and rate > fires and begins + found / (rate - fires) < end:
            clear_at = math.ceil(begins + found / (rate - fires))
        waiting = max(0.0, waiting + bucket.total - rate * (end - begins))
    return {
        "rate_limit": limit.rate_limit,
        "clear_at": None if clear_at is None else from_millis(clear_at),
        "left": round(waiting),
    }
