"""Missing entries of an event log: where they are, as ranges of offsets, and how an error tells it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from delayq.archive.sql_engine import SqlEngine, rows_of
from delayq.broker.event_log import MIN_TIME_OFFSET
from delayq.values.text import pluralize

T = TypeVar("T")

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


def buckets_of(engine: SqlEngine[T], events: T) -> T:
    """Count the entries of each bucket of a log that is numbered without gaps."""
    return engine.query(
        f"""SELECT {BUCKET} AS bucket, count(*) AS entries, min(log_offset) AS low, max(log_offset) AS high
        FROM {{events}} WHERE entry_index = 0 AND log_offset < {MIN_TIME_OFFSET} GROUP BY {BUCKET}""",
        events=events,
    )


def gaps_of(engine: SqlEngine[T], events: T, buckets: T) -> T:
    """Return the gaps, as first and last offset: between buckets by their ends, within incomplete ones by offsets."""
    return engine.query(
        f"""WITH offsets AS (
            SELECT {BUCKET} AS bucket, log_offset FROM {{events}}
            WHERE entry_index = 0 AND log_offset < {MIN_TIME_OFFSET}
        ), lacking AS (
            SELECT bucket FROM {{buckets}} WHERE entries < high - low + 1
        ), gaps AS (
            SELECT lag(high) OVER (ORDER BY bucket) + 1 AS first, low - 1 AS last FROM {{buckets}}
            UNION ALL
            SELECT lag(log_offset) OVER (PARTITION BY bucket ORDER BY log_offset) + 1 AS first, log_offset - 1 AS last
            FROM offsets LEFT SEMI JOIN lacking USING (bucket)
        ) SELECT first, last FROM gaps WHERE first <= last ORDER BY first""",
        events=events,
        buckets=buckets,
    )


def missing(engine: SqlEngine[T], events: T, first: int, last: int) -> list[Gap]:
    """Return the gaps of an archive between two offsets, of which entries before the first may be there."""
    if last >= MIN_TIME_OFFSET:
        return []
    near = engine.query(f"SELECT * FROM {{events}} WHERE log_offset BETWEEN {first - 1} AND {last}", events=events)
    with engine.kept(buckets_of(engine, near)) as buckets:
        ends = engine.query("SELECT min(low) AS low, max(high) AS high FROM {buckets}", buckets=buckets)
        ((low, high),) = (row.values() for row in rows_of(engine, ends))
        if low is None:
            return [Gap(first, last)]
        inner = [Gap(**row) for row in rows_of(engine, gaps_of(engine, near, buckets))]
    before = [Gap(first, low - 1)] if low > first else []
    return [*before, *inner, *([Gap(high + 1, last)] if high < last else [])]
