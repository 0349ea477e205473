"""The lives of messages, told by the event log: how each delivery ended, and whether what came before explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from delayq.spark.account import OUTCOMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_ROWS = 1000
"""Rows of a report that lists texts, messages or gaps: the first or the most frequent."""
BIRTHS = ("sent", "replaced", "redriven")
"""With what a life of an id begins."""
SPENT = "retries spent"
"""The reason that collect_garbage.lua gives for a death; any other was given with a rejection."""

_SETTLED = ("acked", "discarded")
_LAST = " for good"  # marks the failure that spent the last retry
_ENDED = ("delivered", *_SETTLED, "dead", "rejected", "cancelled", f"nacked{_LAST}", f"expired{_LAST}")
"""What no delivery may follow: somebody holds the message, or it is over."""
_UNMOVED = ("promoted", "retried", "rescheduled")
"""What happens to a message that waits and goes on waiting."""


def lives(events: DataFrame) -> DataFrame:
    """Look at every delivery and what became of it in the order of its message's life, and count alike ones.

    `after` is what came before a delivery: its explanation, if it is one. What nothing explains is not only counted but
    `found`: a row each, with its place. One shuffle and one pass serve funnel, duplicates and the number of messages.
    """
    kind, step = f.col("kind"), f.col("step")
    is_last = kind.isin("nacked", "expired") & f.col("retries_left").isNull()
    # One text for all there is to know of an event: what is shuffled and sorted here takes most of the time.
    told = f.when(is_last, f.concat(kind, f.lit(_LAST))).when(_is_rejected(), "rejected").otherwise(kind)
    steps = events.where(f.col("id").isNotNull() & ~kind.isin(*_UNMOVED)).select(
        f.xxhash64("id").alias("hash"), "id", "offset", "index", "at", "token", "attempt", told.alias("step")
    )
    # The number goes before the text because it is faster to sort by.
    life = Window.partitionBy("hash", "id").orderBy("offset", "index")
    so_far = life.rowsBetween(Window.unboundedPreceding, -1)
    settled = f.last(f.when(step.isin(*BIRTHS, *_SETTLED), step), ignorenulls=True).over(so_far)
    seen = steps.select(
        *("id", "offset", "index", "at", "token", "step"),
        f.max("attempt").over(Window.partitionBy("hash", "id", "token")).alias("attempt"),
        f.lag("step").over(life).alias("before"),
        settled.alias("settled"),
    )
    again = f.when(step.isin(*_SETTLED) & f.col("settled").isin(*_SETTLED), f.col("settled"))
    after = f.when(step == "delivered", f.col("before")).otherwise(again)
    wrong = f.when(step == "delivered", after.isin(*_ENDED)).otherwise(after.isNotNull())
    return (
        seen.groupBy(
            "step",
            "attempt",
            after.alias("after"),
            f.col("before").isNull().alias("begins"),
            f.when(wrong, f.struct("id", "at", "token", "offset", "index")).alias("found"),
        )
        .agg(f.count("*").alias("events"))
        .withColumn("kind", f.when(step == "rejected", "dead").otherwise(f.substring_index(step, " ", 1)))
    )


def failures(events: DataFrame) -> DataFrame:
    """Return the events by which deliveries failed, with what they say as `said`; each failure is one of them."""
    kind = f.col("kind")
    said = f.when(kind == "nacked", f.col("error")).when(kind == "expired", "lease expired").otherwise(f.col("reason"))
    return events.where(kind.isin("nacked", "expired") | _is_rejected()).withColumn("said", said)


def _is_rejected() -> Column:
    """Say whether a death is one at once; any other follows a failure that is told already."""
    return (f.col("kind") == "dead") & (f.col("reason") != SPENT)


def total(condition: Column) -> Column:
    """Return how many events of an aggregate with a column `events` meet a condition."""
    return f.sum(f.when(condition, f.col("events")).otherwise(0))


def funnel(told: DataFrame) -> DataFrame:
    """Return how the deliveries of each attempt ended."""
    kind = f.col("kind")
    ends = [total((f.col("step") if end == "rejected" else kind) == end).alias(end) for end in OUTCOMES]
    counted = (
        told.where(kind.isin("delivered", "dead", *OUTCOMES))
        .groupBy("attempt")
        .agg(total(kind == "delivered").alias("delivered"), *ends, total(kind == "dead").alias("dead"))
    )
    share = f.when(f.col("delivered") > 0, f.col("acked") / f.col("delivered"))
    return counted.orderBy(f.asc_nulls_last("attempt")).withColumn("share", share)


def redeliveries(told: DataFrame) -> DataFrame:
    """Return the deliveries beyond the first of a life, and the acks beyond the first, by what came before."""
    explained = f.col("found").isNull()
    again = f.col("after").isNotNull() & ~f.col("after").isin(*BIRTHS)
    return (
        told.where(again)
        .groupBy("kind", "after", explained.alias("explained"))
        .agg(f.sum("events").alias("events"))
        .orderBy("explained", f.desc("events"), "kind", "after")
    )


def duplicates(told: DataFrame) -> DataFrame:
    """Return what nothing explains, one row each, in the order of the log."""
    return (
        told.where("found is not null")
        .select("found.id", "kind", "after", "found.at", "attempt", "found.token", "found.offset", "found.index")
        .orderBy("offset", "index")
        .limit(MOST_ROWS)
    )
