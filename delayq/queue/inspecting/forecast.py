"""The forecast of a queue: how many messages become due in each minute, hour or day."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from itertools import pairwise, starmap
from operator import add
from typing import Any, NamedTuple

from delayq.broker.calls import QUEUE, Calls
from delayq.broker.context import QueueContext
from delayq.broker.replies import CountsReply
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.queue.control.limit_calls import StoredLimit
from delayq.queue.control.limits import limit_of
from delayq.queue.control.pausing import Pause
from delayq.queue.inspecting.cold_tier import ColdTier, read_cold
from delayq.queue.inspecting.counts import counts_of
from delayq.queue.inspecting.forecast_periods import MILLIS, Unit, check_unit, check_until, edges_of, local_times
from delayq.schedules.occurrence_counts import OccurrenceCounts, count_occurrences
from delayq.schedules.recurring.local_times import check_zone
from delayq.values.rates import parse_rate
from delayq.values.times import Duration, from_millis, timestamp

MAX_PERIODS = 499
"""Periods that one call counts: a thousand ZCOUNTs."""
BY_MINUTES = 8 * MILLIS["hour"]
"""How far ahead (ms) minutes are counted where a rate limit is judged: one call more."""
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
    """Messages that become due. Those in the cold tier are taken to be due evenly over their day (UTC)."""
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
    """Pending messages that become due after the last bucket, also in the cold tier."""
    cold: int
    """Messages in the cold tier, whenever they are due."""
    names: Mapping[str, int]
    """How many of the pending messages and occurrences until the end have each name, '' for none; without retries and
    the cold tier.
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
    peak: int | None
    """The most that will wait at a time, at this rate; None if there is none. By the minute in the first 8 h; within a
    later hour or day, messages are taken to fire evenly."""
    peak_at: datetime | None
    """When that is: now, if it never gets more than what waits now."""
    peak_until: datetime | None
    """When nothing waits any more after that; None if that is not before the end."""
    paused: Pause | None
    """The pause of the queue, in which nothing starts; None if it is not paused."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The schedules that are not counted, as their times cannot be worked out here, and why."""

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
    periods = _with_minutes(counted.now, edges, zone) if unit != "minute" and "limited" in counted.meta else edges
    starts = [counted.now + 1, *periods[1:-1]]  # what is due now is overdue
    calls = [
        forecast_call(context.calls, starts[at], periods[at + 1 : at + 1 + MAX_PERIODS])
        for at in range(0, len(starts), MAX_PERIODS)
    ]
    *replies, named = yield [*calls, sample_names_call(context.calls, edges[-1], size=SAMPLE)]
    occurrences = yield from count_occurrences(context, counted.now, periods)
    counts, more = counts_of(counted), occurrences.complete_until
    (tier,) = (yield [read_cold(context.calls)]) if counts.cold else [ColdTier()]
    cold = list(starmap(tier.due_between, pairwise(periods)))
    due = [count for reply in replies for count in reply.due]
    rows = list(zip(map(add, due, cold), _retries(replies, counted.held), occurrences.periods, strict=True))
    parts = _buckets(periods, rows, zone)
    made = parts if periods is edges else _buckets(edges, _added_up(rows, periods, edges), zone)
    return Forecast(
        at=from_millis(counted.now),
        unit=unit,
        buckets=made,
        overdue=counts.overdue,
        throttled=counts.throttled,
        retrying=counts.backoff + counts.retry,
        later=max(0, counts.pending - sum(due)) + counts.cold - sum(cold),
        cold=counts.cold,
        names=_names(named, occurrences),
        sampled=named.sampled,
        sampled_of=named.total,
        scheduled_until=None if more is None else from_millis(more),
        **_backlog(counted, replies[0].limit, parts),
        paused=counts.paused,
        left_out=occurrences.left_out,
    )


def _with_minutes(now: int, edges: list[int], zone: tzinfo | None) -> list[int]:
    """Return the edges of hours or days with those of the next minutes: in these, a rate limit is judged."""
    _, minutes = edges_of(now, BY_MINUTES, "minute", zone)
    return sorted({*edges, *(edge for edge in minutes[1:] if edge < edges[-1])})


def _added_up(rows: list[tuple[int, int, int]], periods: list[int], edges: list[int]) -> list[tuple[int, ...]]:
    """Return the counts between edges, of which the periods are parts."""
    places = pairwise(bisect_left(periods, edge) for edge in edges)
    return [tuple(map(sum, zip(*rows[first:last], strict=True))) for first, last in places]


def _buckets(edges: list[int], rows: Sequence[tuple[int, ...]], zone: tzinfo | None) -> tuple[ForecastBucket, ...]:
    spans = pairwise(local_times(edges, zone))
    return tuple(ForecastBucket(*span, *row) for span, row in zip(spans, rows, strict=True))


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
    """Return the rate limit of the queue, when all that is due has started at this rate, what is left and the peak.

    Within a bucket, messages are taken to fire evenly.
    """
    limit = limit_of(StoredLimit(QUEUE, stored, "", 0, 0), counted.now) if stored else None
    if limit is None or limit.rate_limit is None:
        return dict.fromkeys(("rate_limit", "clear_at", "left", "peak", "peak_at", "peak_until"))
    pause = counts_of(counted).paused
    opens: float = counted.now if limit.closed_until is None else timestamp(limit.closed_until)
    if pause is not None:
        opens = math.inf if pause.until is None else max(opens, timestamp(pause.until))
    rate = 1000 / float(stored.split(" ")[1])  # starts a millisecond
    waiting: float = counted.overdue + counted.throttled
    clear_at = None if waiting else counted.now
    peak, peak_at, peak_until = waiting, counted.now, clear_at
    for bucket in buckets:
        start, end = max(counted.now, timestamp(bucket.start)), timestamp(bucket.end)
        begins = min(max(start, opens), end)
        fires = bucket.total / (end - start)
        found = waiting + fires * (begins - start)
        if (clear_at is None or peak_until is None) and rate > fires and begins + found / (rate - fires) < end:
            gone = math.ceil(begins + found / (rate - fires))
            clear_at, peak_until = clear_at or gone, peak_until or gone
        waiting = max(0.0, waiting + bucket.total - rate * (end - begins))
        held_back = waiting if clear_at is None else waiting - (limit.burst or 0)  # after a time without any
        if held_back > peak:
            peak, peak_at, peak_until = held_back, end, None
    return {
        "rate_limit": limit.rate_limit,
        "clear_at": None if clear_at is None else from_millis(clear_at),
        "left": round(waiting),
        "peak": round(peak),
        "peak_at": from_millis(peak_at),
        "peak_until": None if peak_until is None else from_millis(peak_until),
    }


class ForecastReply(NamedTuple):
    """What becomes due in some periods, and what is redelivered."""

    limit: str
    """The limit of the queue as stored, '' for none."""
    leases: int
    """How many leases were told from backoffs, and so are not in `redelivered`."""
    inspected: int
    """In how many of the periods all leases were."""
    due: list[int]
    """Pending messages that become due, per period."""
    redelivered: list[int]
    """Backoffs that end, per period, and the other leases."""


class NamesReply(NamedTuple):
    """How many messages there are, how many of them were read, and how many of these have each name ('' for none)."""

    total: int
    sampled: int
    names: dict[str, int]


def forecast_call(calls: Calls, start: int, ends: Sequence[int]) -> ScriptCall[ForecastReply]:
    """Count what becomes due in up to 499 periods, the first from `start` (ms) on, each before its end."""
    return calls.script("forecast", [start, *ends], _read_forecast)


def sample_names_call(calls: Calls, before: int, *, size: int) -> ScriptCall[NamesReply]:
    """Count the names of a sample of the pending messages that are due before a time (ms)."""
    return calls.script("sample_names", [before, size], _read_names)


def _read_forecast(reply: list[Any]) -> ForecastReply:
    limit, *others = reply
    return ForecastReply(limit.decode(), *others)


def _read_names(reply: list[Any]) -> NamesReply:
    total, sampled, *cells = reply
    names = {name.decode(): count for name, count in zip(cells[::2], cells[1::2], strict=True)}
    return NamesReply(total, sampled, names)
