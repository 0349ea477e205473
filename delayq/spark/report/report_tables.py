"""The reports on an event log: what a queue did, how late, how often, and what it should not have done.

Each is a small DataFrame made from the archive in few passes. Hours and minutes are those of UTC, whatever the time
zone of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from delayq.answers import LEAST_TIME
from delayq.errors import ConfigurationError, shown
from delayq.events import EventKind
from delayq.spark.lives import MOST_ROWS, duplicates, failures, funnel, lives, redeliveries, total
from delayq.spark.schemas import EVENTS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

LONGEST_LINE = 200
"""Characters kept of the first line of an error or a reason."""

_HOUR, _MINUTE = 3_600_000_000, 60_000_000  # microseconds
_BUCKET = 1 << 16  # offsets counted together: gaps are looked for where some are missing
_NEEDED = ("offset", "index", "at", "kind", "id", "due", "attempt", "token", "retries_left", "reason", "error")


class Reports(Mapping[str, "DataFrame"]):
    """The reports by name, each computed when it is read; `tables` computes all and keeps them."""

    def __init__(self, frames: Mapping[str, DataFrame], shared: tuple[DataFrame, ...] = ()) -> None:
        """Take the reports, and the small results that several of them are made from."""
        self._frames = MappingProxyType(dict(frames))
        self._shared = shared
        self._tables: dict[str, pa.Table] = {}

    def __getitem__(self, name: str) -> DataFrame:
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def tables(self, told: Callable[[str], object] | None = None) -> Mapping[str, pa.Table]:
        """Return every report as an Arrow table, times in UTC; computed once, `told` the name of each that is done."""
        from delayq.spark.tables import in_utc

        for name, frame in self._frames.items():
            if name not in self._tables:
                self._tables[name] = in_utc(frame.toArrow())
                if told is not None:
                    told(name)
        self.release()
        return MappingProxyType(self._tables)

    def release(self) -> None:
        """Let go of what Spark keeps for them; what is read afterwards is computed anew."""
        for frame in self._shared:
            frame.unpersist()


def reports(events: DataFrame) -> Reports:
    """Return the reports on an event log or its archive; nothing is computed yet.

    * `log`, one row: events, messages (of which is told more than that they wait), entries and how many of them are
      missing (null where they are not numbered without gaps), the first and the last event.
    * `totals`, a row per kind of event.
    * `lateness_overall` (one row, or none) and `lateness` by hour: see `lateness`.
    * `rates`: events of each kind by minute; minutes without any are left out.
    * `funnel`: how the deliveries of each attempt ended; `share` is that of the acked ones. A null attempt gathers
      what was delivered before the log begins. After an expired lease a late ack still counts, so that one delivery
      may have both.
    * `errors`: the first lines of what failed deliveries said. Each failure counts once: a nack with its error, an
      expired lease as such, a rejection with its reason.
    * `dead`: deaths by reason.
    * `redeliveries`: deliveries beyond the first of a life and second acks, by what came before. After `expired` the
      callback may have run twice.
    * `duplicates`: those of them that nothing explains. Where entries are missing from the log, so may explanations.
    * `gaps`: the entries missing between the first and the last, where they are numbered without gaps.

    Lists end after 1,000 rows. `ConfigurationError` names a column that is missing or of another type.
    """
    _check_columns(events)
    # In one partition, so that nothing made from them is shuffled again.
    grid, late, told = (shared.repartition(1).persist() for shared in (_grid(events), _late(events), lives(events)))
    frames = {
        "log": _log(grid, told),
        "totals": _totals(grid),
        "lateness_overall": late.where("overall").drop("overall", "hour"),
        "lateness": late.where("not overall").drop("overall").orderBy("hour"),
        "rates": _rates(grid),
        "funnel": funnel(told),
        "errors": _errors(events),
        "dead": _dead(events),
        "redeliveries": redeliveries(told),
        "duplicates": duplicates(told),
        "gaps": _gaps(events, grid),
    }
    return Reports(frames, (grid, late, told))


def lateness(events: DataFrame) -> DataFrame:
    """Return percentiles of the lateness of first attempts by the hour of the delivery, exact, in milliseconds.

    Only first attempts: a later one waited for a nack delay or a lease that ran out, which tells of the callback, and
    would hide how punctual the queue is. `early` counts those before their due time, which never happens.
    """
    _check_columns(events)
    return _late(events).where("not overall").drop("overall").orderBy("hour")


def _check_columns(events: DataFrame) -> None:
    if events.isStreaming:
        raise ConfigurationError("reports are made from an archive or a batch read of the log, not from a stream")
    given, known = dict(events.dtypes), dict(part.split() for part in EVENTS.lower().split(", "))
    for name in _NEEDED:
        if name not in given:
            raise ConfigurationError(f"events have no column {shown(name)}; an archive of the event log has {EVENTS}")
        if given[name] != known[name]:
            raise ConfigurationError(f"column {shown(name)} of the events must be {known[name]}, not {given[name]}")


def _floor(time: Column, span: int) -> Column:
    """Return the begin of an hour or a minute; `date_trunc` would take those of the session's time zone."""
    micros = f.unix_micros(time)
    return f.timestamp_micros(micros - f.pmod(micros, f.lit(span)))


def _first_line(text: Column) -> Column:
    """Return the first line of a text, cut; '' for none."""
    line = f.regexp_extract(f.coalesce(text, f.lit("")), r"\A\s*([^\r\n]*)", 1)
    return f.rtrim(f.substring(line, 1, LONGEST_LINE))


def _grid(events: DataFrame) -> DataFrame:
    """Count events by minute, kind and part of the log: what `log`, `totals`, `rates` and `gaps` are made from."""
    dense = f.when(f.col("offset") < LEAST_TIME, f.expr(f"offset div {_BUCKET}"))
    return events.groupBy(_floor(f.col("at"), _MINUTE).alias("minute"), "kind", dense.alias("bucket")).agg(
        f.count("*").alias("events"),
        f.count_if(f.col("index") == 0).alias("entries"),
        f.min("at").alias("first"),
        f.max("at").alias("last"),
        f.min("offset").alias("low"),
        f.max("offset").alias("high"),
    )


def _late(events: DataFrame) -> DataFrame:
    first = events.where((f.col("kind") == "delivered") & (f.col("attempt") == 1) & f.col("due").isNotNull())
    # Counting equal ones first makes the groups that percentiles are taken of small.
    counts = (
        first.select(
            _floor(f.col("at"), _HOUR).alias("hour"),
            (f.unix_millis("at") - f.unix_millis("due")).alias("ms"),
            (f.col("at") < f.col("due")).alias("early"),
        )
        .groupBy("hour", "ms")
        .agg(f.count("*").alias("n"), f.count_if("early").alias("early"))
    )
    ranks = f.percentile("ms", f.array(f.lit(0.5), f.lit(0.9), f.lit(0.99)), f.col("n")).alias("ranks")
    rolled = counts.rollup("hour").agg(
        (f.grouping("hour") == 1).alias("overall"),
        f.sum("n").alias("deliveries"),
        f.sum("early").alias("early"),
        ranks,
        f.max("ms").alias("max_ms"),
    )
    marks = [f.col("ranks")[n].alias(name) for n, name in enumerate(("p50_ms", "p90_ms", "p99_ms"))]
    return rolled.select("overall", "hour", "deliveries", "early", *marks, "max_ms")


def _log(grid: DataFrame, told: DataFrame) -> DataFrame:
    messages = told.agg(f.coalesce(f.sum(f.when(f.col("begins"), f.col("events"))), f.lit(0)).alias("messages"))
    whole = grid.agg(
        f.coalesce(f.sum("events"), f.lit(0)).alias("events"),
        f.coalesce(f.sum("entries"), f.lit(0)).alias("entries"),
        f.min("first").alias("first"),
        f.max("last").alias("last"),
        f.min("low").alias("first_offset"),
        f.max("high").alias("last_offset"),
    )
    expected = f.col("last_offset") - f.col("first_offset") + 1
    missing = f.when(f.col("last_offset") < LEAST_TIME, expected - f.col("entries"))
    return whole.crossJoin(messages).select(
        "events", "messages", "entries", missing.alias("missing"), "first", "last", "first_offset", "last_offset"
    )


def _totals(grid: DataFrame) -> DataFrame:
    every = f.array(*(f.lit(kind.value) for kind in EventKind))
    none = grid.sparkSession.range(1).select(f.explode(every).alias("kind"))
    counted = grid.groupBy("kind").agg(
        f.sum("events").alias("events"), f.min("first").alias("first"), f.max("last").alias("last")
    )
    place = f.array_position(every, f.col("kind"))  # 0 for a kind of the future
    return (
        none.join(counted, "kind", "full_outer")
        .orderBy(place == 0, place, "kind")
        .select("kind", f.coalesce("events", f.lit(0)).alias("events"), "first", "last")
    )


def _rates(grid: DataFrame) -> DataFrame:
    counts = [total(f.col("kind") == kind.value).alias(kind.value) for kind in EventKind]
    return grid.groupBy("minute").agg(*counts).orderBy("minute")


def _errors(events: DataFrame) -> DataFrame:
    return (
        failures(events)
        .groupBy(_first_line(f.col("said")).alias("error"), "id")
        .agg(f.count("*").alias("n"))
        .groupBy("error")
        .agg(f.sum("n").alias("failures"), f.count("*").alias("messages"), f.min("id").alias("example"))
        .orderBy(f.desc("failures"), "error")
        .limit(MOST_ROWS)
    )


def _dead(events: DataFrame) -> DataFrame:
    return (
        events.where(f.col("kind") == "dead")
        .groupBy(_first_line(f.col("reason")).alias("reason"), "id")
        .agg(f.count("*").alias("n"), f.min("at").alias("first"), f.max("at").alias("last"))
        .groupBy("reason")
        .agg(
            f.sum("n").alias("deaths"),
            f.count("*").alias("messages"),
            f.min("first").alias("first"),
            f.max("last").alias("last"),
        )
        .orderBy(f.desc("deaths"), "reason")
        .limit(MOST_ROWS)
    )


def _gaps(events: DataFrame, grid: DataFrame) -> DataFrame:
    """Find gaps between the buckets of offsets from their ends, and within those that lack some from the offsets."""
    buckets = (
        grid.where("bucket is not null")
        .groupBy("bucket")
        .agg(f.sum("entries").alias("entries"), f.min("low").alias("low"), f.max("high").alias("high"))
    )
    between = buckets.select(
        (f.lag("high").over(Window.orderBy("bucket")) + 1).alias("first"), (f.col("low") - 1).alias("last")
    )
    lacking = buckets.where("entries < high - low + 1").select("bucket")
    bucket = f.expr(f"offset div {_BUCKET}").alias("bucket")
    offsets = events.where((f.col("index") == 0) & (f.col("offset") < LEAST_TIME)).select(bucket, "offset")
    neighbour = f.lag("offset").over(Window.partitionBy("bucket").orderBy("offset"))
    within = offsets.join(f.broadcast(lacking), "bucket").select(
        (neighbour + 1).alias("first"), (f.col("offset") - 1).alias("last")
    )
    return (
        between.union(within)
        .where("first <= last")
        .select("first", "last", (f.col("last") - f.col("first") + 1).alias("missing"))
        .orderBy("first")
        .limit(MOST_ROWS)
    )
