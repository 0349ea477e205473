"""What the consumers of a queue have done in each hour or day, and how late its messages started."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Literal

from delayq.broker.context import QueueContext
from delayq.broker.stored_presence import HOUR, KEPT_HOURS, HourCounts, sum_of
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.inspecting.forecast_periods import MILLIS, edges_of, local_times
from delayq.queue.inspecting.lateness_report import LatenessCounts, read_hours
from delayq.schedules.recurring.local_times import check_zone
from delayq.values.checks import check_int
from delayq.values.times import from_millis

MAX_DAYS = KEPT_HOURS // 24
HOURS_UP_TO = 2
"""Days that are shown by the hour by default: some fifty lines."""


@dataclass(frozen=True, slots=True)
class HistoryBucket:
    """What consumers have done in one hour or day, as they counted it."""

    start: datetime
    """The start, with the offset from UTC that its time zone has then."""
    end: datetime
    """The end, which belongs to the next one."""
    delivered: int
    """Messages that consumers have claimed; a message that is tried again counts again."""
    acked: int
    """Messages that are done."""
    discarded: int
    """Messages that were discarded, with those that had expired."""
    nacked: int
    """Attempts that have failed."""
    rejected: int
    """Messages that went to the dead letter at once."""
    released: int
    """Messages that were given back, or snoozed."""
    callbacks: int
    """Calls of callbacks that have ended; one may have taken many messages."""
    busy: timedelta
    """The time that these took together."""
    lateness: LatenessCounts
    """How late messages started."""

    @property
    def mean_time(self) -> timedelta | None:
        """How long a call of a callback took on average; None if none has ended."""
        return self.busy / self.callbacks if self.callbacks else None


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """What the consumers of a queue have done."""

    at: datetime
    """The server's time."""
    unit: Literal["hour", "day"]
    buckets: tuple[HistoryBucket, ...] = field(repr=False)
    """All hours or days, also those in which nothing was done, the earliest first; the last one goes on."""

    @property
    def total(self) -> HistoryBucket:
        """The sum of all."""
        return sum_of_buckets(self.buckets)


def read_history(
    context: QueueContext, days: int, buckets: str | None, tz: str | tzinfo | None
) -> Operation[QueueHistory]:
    """Read the hours of the last days."""
    check_int(days, "days", 1, MAX_DAYS)
    if buckets not in (None, "hour", "day"):
        raise ConfigurationError(f"buckets must be 'hour' or 'day', not {short_repr(buckets)}")
    zone = tz if tz is None or isinstance(tz, tzinfo) else check_zone(tz)
    hourly = days <= HOURS_UP_TO if buckets is None else buckets == "hour"
    unit: Literal["hour", "day"] = "hour" if hourly else "day"
    now, hours = yield from read_hours(context, 24 * (days + 1))
    length = MILLIS[unit]
    start = now - 24 * days * HOUR + length
    _, edges = edges_of(start, now + 1 - start, unit, zone)
    parts: list[list[HourCounts]] = [[] for _ in edges[1:]]
    for hour, counts in hours:
        at = bisect_right(edges, hour) - 1
        if 0 <= at < len(parts):
            parts[at].append(counts)
    times = pairwise(local_times(edges, zone))
    made = tuple(_bucket(*span, part) for span, part in zip(times, parts, strict=True))
    return QueueHistory(from_millis(now), unit, made)


def sum_of_buckets(buckets: Sequence[HistoryBucket]) -> HistoryBucket:
    """Return what was done in all of these, from the start of the first to the end of the last."""
    return _bucket(buckets[0].start, buckets[-1].end, map(_counts, buckets))


def _counts(bucket: HistoryBucket) -> HourCounts:
    numbers = (getattr(bucket, name) for name in HourCounts._fields[:7])
    return HourCounts._make([*numbers, bucket.busy // timedelta(microseconds=1), bucket.lateness.numbers])


def _bucket(start: datetime, end: datetime, hours: Iterable[HourCounts]) -> HistoryBucket:
    total = sum_of(hours)
    fields = {**total._asdict(), "busy": timedelta(microseconds=total.busy), "lateness": LatenessCounts(total.lateness)}
    return HistoryBucket(start, end, **fields)
