"""Checks the event log as a whole: no entry is missing, and its times are in the order of its offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from delayq.broker.log_entries import MIN_TIME_OFFSET

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame

CLOCK_STEP = 1_000_000
"""Microseconds by which a server's clock may be set back without a finding."""
AHEAD = "interval 1 hour"
"""How far an event may be ahead of the audit: it takes a while, and clocks differ."""
_SIZES, _OVERLAPS = (65_536, 3_600_000_000_000), (2, 1_000_000_000)
"""Offsets in a part, and how many of the last ones are read with the next part, too: if counted, and if times."""


class OutOfOrder(NamedTuple):
    """An event whose time does not fit its offset."""

    offset: int
    id: str | None
    detail: str


class LogOrder(NamedTuple):
    """What is wrong with a log."""

    last: int
    missing: int
    """Entries missing up to the last one; 0 where entries are numbered by time."""
    out_of_order: list[OutOfOrder]


def check_order(events: DataFrame, at: datetime, limit: int) -> LogOrder:
    """Look for missing entries and for times out of order, in one job; lists at most `limit` of the latter.

    The log is compared in parts of consecutive offsets, which are sorted by several tasks.
    """
    size, overlap = (f"if(offset < {MIN_TIME_OFFSET}, {dense}, {timed})" for dense, timed in (_SIZES, _OVERLAPS))
    rows = events.selectExpr(
        *("offset", "index", "unix_micros(at) AS at", "kind", "id", f"offset div {size} AS part"),
        f"explode(sequence(offset div {size}, (offset + {overlap}) div {size})) AS read_in",
    )
    order = Window.partitionBy("read_in").orderBy("offset", "index")
    lagged = {f"{name}_{n}": F.lag(name, n).over(order) for name, n in (("at", 1), ("at", 2), ("offset", 1))}
    lagged |= {"kind_1": F.lag("kind").over(order), "id_1": F.lag("id").over(order)}
    seen = rows.withColumns(lagged).where("part = read_in")
    counted = Observation()
    observed = seen.observe(
        counted,
        F.max("offset").alias("last"),
        F.count_if(F.expr("NOT (offset <=> offset_1)")).alias("entries"),
    )
    # Of two neighbours the one is wrong that does not fit the event before both.
    behind = f"at < at_1 - {CLOCK_STEP}"
    is_back = f"{behind} AND at_2 IS NOT NULL AND at < at_2 - {CLOCK_STEP}"
    late = f"at > unix_micros(greatest(current_timestamp(), timestamp_micros({round(at.timestamp() * 1e6)})) + {AHEAD})"
    wrong = observed.selectExpr(
        f"""CASE WHEN {is_back} THEN struct(offset, id, kind, 'earlier than the event before it' AS how)
            WHEN {behind}
            THEN struct(offset_1 AS offset, id_1 AS id, kind_1 AS kind, 'later than the event after it' AS how)
            WHEN {late} THEN struct(offset, id, kind, 'later than the audit' AS how) END AS wrong"""
    ).where("wrong IS NOT NULL")
    found = wrong.select("wrong.*").orderBy("offset").limit(limit).collect()
    counts = counted.get
    last = counts["last"] or 0
    return LogOrder(
        last,
        last - counts["entries"] if last < MIN_TIME_OFFSET else 0,
        [OutOfOrder(row.offset, row.id, f"its event {row.kind} at offset {row.offset} is {row.how}") for row in found],
    )
