"""Computes the tables of a report from an event log: lateness, rates, outcomes, errors, deaths and duplicates.

Only this module and `delivery_history` need Spark; times are in UTC, whatever the session's time zone.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from pyspark.sql import functions as f

from delayq.broker.event_log import MIN_TIME_OFFSET
from delayq.errors import ConfigurationError
from delayq.queue.inspecting.event_log import EventKind
from delayq.spark.datasource.log_gaps import BUCKET, gaps_of
from delayq.spark.datasource.schemas import EVENTS, check_schema, columns_of
from delayq.spark.report.delivery_history import (
    MAX_ROWS,
    delivery_history,
    duplicates,
    exprs,
    failures,
    funnel,
    redeliveries,
    totals,
)
from delayq.spark.report.html import overview_html
from delayq.spark.report.overview import overview_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_LINE = 200
"""Characters kept of the first line of an error or a reason."""

HOUR, MINUTE = 3600, 60
"""The widths of `lateness` and `rates`, in seconds, unless the log is short."""
_WIDTHS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, HOUR)
_MIN_POINTS = 60
_NEEDED = (
    "log_offset",
    "entry_index",
    "event_at",
    "kind",
    "id",
    "due",
    "attempt",
    "token",
    "retries_left",
    "reason",
    "error",
)


class Reports(UserDict[str, "DataFrame"]):
    """The report's DataFrames by name, computed when read; `tables` computes all and keeps the results."""

    def __init__(self, frames: Mapping[str, DataFrame], shared: tuple[DataFrame, ...] = ()) -> None:
        """Set the DataFrames, and the small intermediate results that several of them share."""
        super().__init__(frames)
        self._shared = shared
        self._tables: dict[str, pa.Table] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def tables(self, told: Callable[[str], object] | None = None) -> Mapping[str, pa.Table]:
        """Return every report as an Arrow table with times in UTC, computed once; `told` is called with each name."""
        for name, frame in self.items():
            if name not in self._tables:
                self._tables[name] = _in_utc(frame.toArrow())
                if told is not None:
                    told(name)
        self.release()
        return MappingProxyType(self._tables)

    def _repr_html_(self) -> str:
        """Return the main figures, which notebooks show; only the names of the reports before `tables` has run."""
        if self._tables.keys() != self.keys():
            return f"<p>Reports, not computed yet: {', '.join(self)}</p>"
        return overview_html(overview_of(self._tables))

    def release(self) -> None:
        """Free the intermediate results in Spark; DataFrames read afterwards are computed again."""
        for frame in self._shared:
            frame.unpersist()


def _check_events(events: DataFrame) -> None:
    """Raise `ConfigurationError` for a stream, or a table that is not from an event log."""
    if events.isStreaming:
        raise ConfigurationError("a report needs an archive or a batch read of the log, not a stream")
    check_schema(events, {name: columns_of(EVENTS)[name] for name in _NEEDED}, "the events are not from an event log")


def width_of(events: DataFrame) -> int:
    """Return the seconds of a row of `lateness` that give a log of this length 60 rows or more: at most an hour."""
    _check_events(events)
    row = events.selectExpr("max(unix_seconds(event_at)) - min(unix_seconds(event_at)) AS lasted").first()
    lasted = (row and row.lasted) or 0
    return max((width for width in _WIDTHS if lasted >= width * _MIN_POINTS), default=_WIDTHS[0])


def reports(events: DataFrame, *, width: int = HOUR) -> Reports:
    """Return the reports on an event log or its archive; nothing is computed yet.

    * `log`, one row: events, messages (those with more events than waiting ones), entries, missing entries (null where
      entries are numbered by time), first and last event.
    * `totals`: one row per kind of event.
    * `lateness_overall` (at most one row) and `lateness` by time of delivery, `width` seconds a row: exact percentiles
      of the lateness of first attempts, in milliseconds. Later attempts wait for a nack delay or an expired lease, and
      so measure the callback, not the queue. `early` counts deliveries before the due time, which must never happen.
    * `rates`: events of each kind by minute, or by `width` if that is less, without empty rows.
    * `funnel`: outcomes of the deliveries of each attempt; `share` is the share of acked ones. A null attempt collects
      deliveries from before the log. A late ack after an expired lease counts, so a delivery may have both outcomes.
    * `errors`: failed deliveries by the first line of the error. Each failure counts once: a nack by its error, an
      expired lease as such, a rejection by its reason.
    * `dead`: deaths by reason.
    * `redeliveries`: deliveries and acks after the first of a life, by the event before. After `expired` the callback
      may have run twice.
    * `duplicates`: the unexplained ones among them. If the log lacks entries, it may lack their explanations.
    * `gaps`: missing entries, where entries are numbered without gaps.

    Lists end after 1,000 rows. Raises `ConfigurationError` for a missing column or a wrong type.
    """
    _check_events(events)
    # In one partition, so that results derived from them are not shuffled again.
    each = min(MINUTE, width)
    made = _grid(events, each), _late(events, width), delivery_history(events)
    grid, late, history = (shared.repartition(1).persist() for shared in made)
    frames = {
        "log": _log(grid, history),
        "totals": _totals(grid),
        "lateness_overall": late.where("overall").drop("overall", "begin"),
        "lateness": _spaced(late.where("not overall").drop("overall"), width),
        "rates": _spaced(_rates(grid), each),
        "funnel": funnel(history),
        "errors": _most_frequent(failures(events), "error_text", "error", "failures", "min(id) AS example"),
        "dead": _most_frequent(
            events.where("kind = 'dead'"), "reason", "reason", "deaths", "min(first) AS first", "max(last) AS last"
        ),
        "redeliveries": redeliveries(history),
        "duplicates": duplicates(history),
        "gaps": _gaps(events, grid),
    }
    return Reports(frames, (grid, late, history))


def _in_utc(table: pa.Table) -> pa.Table:
    """Label the times of a table as UTC, whatever the session's time zone; the instants stay."""
    zoned = [
        pa.field(column.name, pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(column.type) else column
        for column in table.schema
    ]
    return table.cast(pa.schema(zoned))


def _floor(time: Column, width: int) -> Column:
    """Round down to a multiple of some seconds in UTC; `date_trunc` would use the session's time zone."""
    seconds = f.unix_seconds(time)
    return f.timestamp_seconds(seconds - f.pmod(seconds, f.lit(width)))


def _spaced(rows: DataFrame, width: int) -> DataFrame:
    """Put rows in order of time, and say how many seconds each covers."""
    others = [name for name in rows.columns if name != "begin"]
    return rows.orderBy("begin").select("begin", f.lit(width).cast("bigint").alias("seconds"), *others)


def _first_line(text: Column) -> Column:
    """Return the first line of a text, truncated; '' for null."""
    line = f.regexp_extract(f.coalesce(text, f.lit("")), r"\A\s*([^\r\n]*)", 1)
    return f.rtrim(f.substring(line, 1, MAX_LINE))


def _grid(events: DataFrame, width: int) -> DataFrame:
    """Count events by time, kind and part of the log; `log`, `totals`, `rates` and `gaps` are derived from this."""
    bucket = f.expr(f"CASE WHEN log_offset < {MIN_TIME_OFFSET} THEN {BUCKET} END AS bucket")
    return events.groupBy(_floor(f.col("event_at"), width).alias("begin"), "kind", bucket).agg(
        *exprs(
            "count(*) AS events",
            "count_if(entry_index = 0) AS entries",
            "min(event_at) AS first",
            "max(event_at) AS last",
        ),
        *exprs("min(log_offset) AS low", "max(log_offset) AS high"),
    )


def _late(events: DataFrame, width: int) -> DataFrame:
    first = events.where("kind = 'delivered' AND attempt = 1 AND due IS NOT NULL")
    begin = _floor(f.col("event_at"), width).alias("begin")
    # Counting equal values first keeps the groups small that percentiles are computed of.
    counts = (
        first.select(begin, *exprs("unix_millis(event_at) - unix_millis(due) AS ms", "event_at < due AS early"))
        .groupBy("begin", "ms")
        .agg(*exprs("count(*) AS n", "count_if(early) AS early"))
    )
    ranks = "percentile(ms, array(0.5, 0.9, 0.99), n) AS ranks"
    rolled = counts.rollup("begin").agg(
        *exprs(
            "grouping(begin) = 1 AS overall", "sum(n) AS deliveries", "sum(early) AS early", ranks, "max(ms) AS max_ms"
        )
    )
    marks = ("ranks[0] AS p50_ms", "ranks[1] AS p90_ms", "ranks[2] AS p99_ms")
    return rolled.selectExpr("overall", "begin", "deliveries", "early", *marks, "max_ms")


def _log(grid: DataFrame, history: DataFrame) -> DataFrame:
    messages = history.selectExpr("coalesce(sum(events) FILTER (WHERE begins), 0) AS messages")
    whole = grid.selectExpr(
        *("coalesce(sum(events), 0) AS events", "coalesce(sum(entries), 0) AS entries"),
        *("min(first) AS first", "max(last) AS last", "min(low) AS first_offset", "max(high) AS last_offset"),
    )
    missing = f"CASE WHEN last_offset < {MIN_TIME_OFFSET} THEN last_offset - first_offset + 1 - entries END AS missing"
    return whole.crossJoin(messages).selectExpr(
        "events", "messages", "entries", missing, "first", "last", "first_offset", "last_offset"
    )


def _totals(grid: DataFrame) -> DataFrame:
    every = f.array(*(f.lit(kind.value) for kind in EventKind))
    none = grid.sparkSession.range(1).select(f.explode(every).alias("kind"))
    counted = grid.groupBy("kind").agg(*exprs("sum(events) AS events", "min(first) AS first", "max(last) AS last"))
    position = f.array_position(every, f.col("kind"))  # 0 for a kind of a later version
    return (
        none.join(counted, "kind", "full_outer")
        .orderBy(position == 0, position, "kind")
        .selectExpr("kind", "coalesce(events, 0) AS events", "first", "last")
    )


def _rates(grid: DataFrame) -> DataFrame:
    counts = totals({kind.value: f"kind = '{kind}'" for kind in EventKind})
    return grid.groupBy("begin").agg(*counts)


def _most_frequent(events: DataFrame, text: str, name: str, number: str, *more: str) -> DataFrame:
    """Count events and messages by the first line of a text, the most frequent first."""
    by_id = events.groupBy(_first_line(f.col(text)).alias(name), "id").agg(
        *exprs("count(*) AS n", "min(event_at) AS first", "max(event_at) AS last")
    )
    counted = by_id.groupBy(name).agg(*exprs(f"sum(n) AS {number}", "count(*) AS messages", *more))
    return counted.orderBy(f.desc(number), name).limit(MAX_ROWS)


def _gaps(events: DataFrame, grid: DataFrame) -> DataFrame:
    known = grid.where("bucket IS NOT NULL").groupBy("bucket")
    buckets = known.agg(*exprs("sum(entries) AS entries", "min(low) AS low", "max(high) AS high"))
    return gaps_of(events, buckets).selectExpr("first", "last", "last - first + 1 AS missing").limit(MAX_ROWS)
