"""Missing entries of an event log: where they are, as ranges of offsets, and how an error tells it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from delayq.broker.event_log import MIN_TIME_OFFSET
from delayq.values.text import pluralize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKET = "log_offset DIV 65536"
"""Offsets counted together: gaps are looked for where some are missing."""
_TOLD = 5
"""Ranges that a text lists."""


class Gap(NamedTuple):
    """Consecutive missing entries; both ends are inclusive."""

    first: int
    last: int


def gaps_between(offsets: Iterable[int], low: int, high: int) -> list[Gap]:
    """Return the gaps in a range, of which these offsets are there, in order."""
    gaps, following = list[Gap](), low
    for offset in [*offsets, high + 1]:
        if offset > following:
            gaps.append(Gap(following, offset - 1))
        following = offset + 1
    return gaps


def told(gaps: Sequence[Gap]) -> str:
    """Return how many entries are missing, and where: "5 entries, offsets 3, 7 to 10"."""
    number = sum(gap.last - gap.first + 1 for gap in gaps)
    parts = [f"{gap.first}" if gap.first == gap.last else f"{gap.first} to {gap.last}" for gap in gaps[:_TOLD]]
    more = f" and {pluralize(len(gaps) - _TOLD, 'more range')}" if len(gaps) > _TOLD else ""
    entries = "1 entry" if number == 1 else f"{number} entries"
    return f"{entries}, offset{'s' if number > 1 else ''} {', '.join(parts)}{more}"


def buckets_of(events: DataFrame) -> DataFrame:
    """Count the entries of each bucket of a log that is numbered without gaps."""
    entries = events.where(f"entry_index = 0 AND log_offset < {MIN_TIME_OFFSET}")
    counts = ("count(*) AS entries", "min(log_offset) AS low", "max(log_offset) AS high")
    return entries.groupBy(F.expr(f"{BUCKET} AS bucket")).agg(*map(F.expr, counts))


def gaps_of(events: DataFrame, buckets: DataFrame) -> DataFrame:
    """Return the gaps, as first and last offset: between buckets by their ends, within incomplete ones by offsets."""
    between = buckets.selectExpr("lag(high) OVER (ORDER BY bucket) + 1 AS first", "low - 1 AS last")
    lacking = buckets.where("entries < high - low + 1").select("bucket")
    offsets = events.where(f"entry_index = 0 AND log_offset < {MIN_TIME_OFFSET}").selectExpr(
        f"{BUCKET} AS bucket", "log_offset"
    )
    within = offsets.join(F.broadcast(lacking), "bucket").selectExpr(
        "lag(log_offset) OVER (PARTITION BY bucket ORDER BY log_offset) + 1 AS first", "log_offset - 1 AS last"
    )
    return between.union(within).where("first <= last").orderBy("first")


def missing(events: DataFrame, first: int, last: int) -> list[Gap]:
    """Return the gaps of an archive between two offsets, of which entries before the first may be there."""
    if last >= MIN_TIME_OFFSET:
        return []
    near = events.where(f"log_offset BETWEEN {first - 1} AND {last}")
    buckets = buckets_of(near).persist()
    try:
        row = buckets.selectExpr("min(low) AS low", "max(high) AS high").first()
        if row is None or row.low is None:
            return [Gap(first, last)]
        inner = [Gap(*gap) for gap in gaps_of(near, buckets).collect()]
    finally:
        buckets.unpersist()
    before = [Gap(first, row.low - 1)] if row.low > first else []
    return [*before, *inner, *([Gap(row.high + 1, last)] if row.high < last else [])]
