"""Checks that a log is whole and in order: numbers without gaps, and times that rise with the offsets."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from delayq.broker.event_log import MIN_TIME_OFFSET

CLOCK_STEP = 1_000_000
"""Microseconds by which a server's clock may be set back without a finding."""
AHEAD = "interval 1 hour"
"""How far an event may be ahead of the audit: it takes a while, and clocks differ."""
_SIZES, _OVERLAPS = (65_536, 3_600_000_000_000), (2, 1_000_000_000)
"""Offsets in a part, and how many of the last ones are read with the next part, too: if counted, and if times."""


class Disorder(NamedTuple):
    """What is wrong at a place of the log."""

    what: str
    """`wrong order`: the time of an event does not fit its offset; `event lost`: an event of an entry is gone."""
    id: str
    """The message of the event; "" for one that is gone."""
    detail: str


class LogOrder(NamedTuple):
    """What is wrong with a log."""

    first: int
    last: int
    missing: int
    """Entries missing from offset 1 or `first` on; 0 where entries are numbered by time."""
    disorders: list[Disorder]


def check_order(events: DataFrame, at: datetime, limit: int, *, is_cut: bool = False) -> LogOrder:
    """Look for missing entries, events missing in entries, and times out of order, in one job.

    At most `limit` of the latter two are listed. If the events were deleted up to some day (`is_cut`), no entry is
    missing before the first one.

    The log is compared in parts of consecutive offsets, which are sorted by several tasks.
    """
    size, overlap = (f"if(log_offset < {MIN_TIME_OFFSET}, {dense}, {timed})" for dense, timed in (_SIZES, _OVERLAPS))
    rows = events.selectExpr(
        *(
            "log_offset",
            "entry_index",
            "unix_micros(event_at) AS event_at",
            "kind",
            "id",
            f"log_offset div {size} AS part",
        ),
        f"explode(sequence(log_offset div {size}, (log_offset + {overlap}) div {size})) AS read_in",
    )
    order = Window.partitionBy("read_in").orderBy("log_offset", "entry_index")
    lagged = {
        f"{name}_{n}": F.lag(name, n).over(order)
        for name, n in (
            *(("event_at", 1), ("event_at", 2), ("log_offset", 1)),
            *(("entry_index", 1), ("kind", 1), ("id", 1)),
        )
    }
    seen = rows.withColumns(lagged).where("part = read_in")
    counted = Observation()
    observed = seen.observe(
        counted,
        F.min("log_offset").alias("first"),
        F.max("log_offset").alias("last"),
        F.count_if(F.expr("NOT (log_offset <=> log_offset_1)")).alias("entries"),
    )
    # Of two neighbours the one is wrong that does not fit the event before both.
    behind = f"event_at < event_at_1 - {CLOCK_STEP}"
    is_back = f"{behind} AND event_at_2 IS NOT NULL AND event_at < event_at_2 - {CLOCK_STEP}"
    now = f"greatest(current_timestamp(), timestamp_micros({round(at.timestamp() * 1e6)}))"
    late = f"event_at > unix_micros({now} + {AHEAD})"
    # An entry has the indexes 0, 1, 2 …: a removed event leaves a gap before the next one, which tells no id.
    following = "if(log_offset <=> log_offset_1, entry_index_1 + 1, 0)"
    wrong = observed.selectExpr(
        f"""CASE WHEN {is_back} THEN struct(log_offset, id, kind, 'earlier than the event before it' AS how)
            WHEN {behind}
            THEN struct(log_offset_1 AS log_offset, id_1 AS id, kind_1 AS kind, 'later than the event after it' AS how)
            WHEN {late} THEN struct(log_offset, id, kind, 'later than the audit' AS how)
            WHEN entry_index > {following} THEN struct(log_offset, '' AS id, kind, CAST({following} AS STRING) AS how)
            END AS wrong""",
    ).where("wrong IS NOT NULL")
    found = wrong.select("wrong.*").orderBy("log_offset").limit(limit).collect()
    counts = counted.get
    last = counts["last"] or 0
    first = (counts["first"] or 1) if is_cut else 1
    return LogOrder(
        first,
        last,
        last - first + 1 - counts["entries"] if last < MIN_TIME_OFFSET else 0,
        [_disorder(**row.asDict()) for row in found],
    )


def _disorder(log_offset: int, id: str | None, kind: str, how: str) -> Disorder:
    if how.isdecimal():
        return Disorder("event lost", "", f"number {how} of the entry at offset {log_offset}, {kind}, is not there")
    return Disorder("wrong order", id or "", f"its event {kind} at offset {log_offset} is {how}")
