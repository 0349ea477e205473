"""The history of every delivery according to the event log: its outcome, and whether a redelivery is explained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from delayq.queue.inspecting.event_log import EventKind
from delayq.spark.datasource.schemas import IMPORTED, KILLED, LIFE_STARTS, NOTES, OF_ENTRIES
from delayq.spark.report.overview import OUTCOMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MAX_ROWS = 1000
"""Rows of a list of texts, messages or gaps: the first or the most frequent."""
SPENT = "retries spent"
"""The reason that collect_garbage.lua sets for a death; any other but `KILLED` comes from a rejection."""

_SETTLED = ("acked", "discarded")
_LAST = " for good"  # marks the failure that spent the last retry
_ENDED = ("delivered", *_SETTLED, "dead", "rejected", "cancelled", f"nacked{_LAST}", f"expired{_LAST}")
"""After these no delivery may follow: the message is in flight, or its life has ended."""
_REJECTED = f"(kind = 'dead' AND reason NOT IN ('{SPENT}', '{KILLED}'))"
"""Whether a death is due to a rejection; others follow a failure that has an event of its own, or are by hand."""
_UNMOVED = ("promoted", "retried", "rescheduled", *OF_ENTRIES, IMPORTED, *NOTES)
"""Events that leave a message where it is, or a waiting one waiting, or that are of no life in this queue."""


_STEPS = (*(kind.value for kind in EventKind), *(f"{kind}{_LAST}" for kind in ("nacked", "expired")), "rejected")
_STEPS_SQL = f"array({', '.join(map(repr, _STEPS))})"


def _codes(*steps: str) -> list[int]:
    """Return the numbers of steps."""
    return [_STEPS.index(step) + 1 for step in steps]


def delivery_history(events: DataFrame) -> DataFrame:
    """Follow each message's deliveries and outcomes in order, and count equal steps.

    `after` is the event before a delivery or ack, which may explain it. Unexplained ones also have their location in
    `found`, a row each. One shuffle, one sort and one pass serve funnel, duplicates and the number of messages.
    """
    is_last = "kind IN ('nacked', 'expired') AND retries_left IS NULL"
    name = f"CASE WHEN {is_last} THEN concat(kind, '{_LAST}') WHEN {_REJECTED} THEN 'rejected' ELSE kind END"
    # Shuffling and sorting take most of the time: a number in place of a text makes the rows shorter.
    step = f"CAST(array_position({_STEPS_SQL}, {name}) AS TINYINT) AS step"
    steps = events.where(f.col("id").isNotNull() & ~f.col("kind").isin(*_UNMOVED)).selectExpr(
        *("xxhash64(id) AS hash", "id", "log_offset", "entry_index", "event_at", "token", "attempt", step),
        "if(kind = 'delivered', token, NULL) AS given",
    )
    # The hash comes before the id because it is faster to sort by.
    life = Window.partitionBy("hash", "id").orderBy("log_offset", "entry_index")
    so_far, until_now = (life.rowsBetween(Window.unboundedPreceding, end) for end in (-1, 0))
    marks = f.when(f.col("step").isin(*_codes(*LIFE_STARTS, *_SETTLED)), f.col("step"))
    # Only the latest delivery can have an outcome: a later one makes the token of the one before invalid.
    seen = steps.select(
        *("id", "log_offset", "entry_index", "event_at", "token", "step", "attempt"),
        f.last("given", ignorenulls=True).over(until_now).alias("given"),
        f.last("attempt", ignorenulls=True).over(until_now).alias("given_attempt"),
        f.lag("step").over(life).alias("before"),
        f.last(marks, ignorenulls=True).over(so_far).alias("settled"),
    )
    is_delivery = f.col("step") == _codes("delivered")[0]
    settled = _codes(*_SETTLED)
    again = f.when(f.col("step").isin(*settled) & f.col("settled").isin(*settled), f.col("settled"))
    after = f.when(is_delivery, f.col("before")).otherwise(again)
    wrong = f.when(is_delivery, after.isin(*_codes(*_ENDED))).otherwise(after.isNotNull())
    found = f.when(wrong, f.struct("id", "event_at", "token", "log_offset", "entry_index")).alias("found")
    attempt = f.expr("coalesce(attempt, if(token = given, given_attempt, NULL)) AS attempt")
    counted = seen.groupBy("step", attempt, after.alias("after"), f.expr("before IS NULL AS begins"), found).agg(
        f.count("*").alias("events")
    )
    named = {name: f.expr(f"if({name} = 0, 'other', get({_STEPS_SQL}, {name} - 1))") for name in ("step", "after")}
    return counted.withColumns(named).withColumn(
        "kind", f.expr("if(step = 'rejected', 'dead', substring_index(step, ' ', 1))")
    )


def failures(events: DataFrame) -> DataFrame:
    """Return the events of failed deliveries, one per failure, with their error or reason as `error_text`."""
    text = "CASE kind WHEN 'nacked' THEN error WHEN 'expired' THEN 'lease expired' ELSE reason END"
    return events.where(f"kind IN ('nacked', 'expired') OR {_REJECTED}").withColumn("error_text", f.expr(text))


def exprs(*columns: str) -> list[Column]:
    """Return columns from SQL."""
    return [f.expr(column) for column in columns]


def totals(conditions: Mapping[str, str]) -> list[Column]:
    """Return columns that sum `events` over the rows that meet a condition, by name."""
    return exprs(*(f"sum(if({condition}, events, 0)) AS {name}" for name, condition in conditions.items()))


def funnel(history: DataFrame) -> DataFrame:
    """Return the outcomes of the deliveries of each attempt."""
    conditions = {name: f"kind = '{name}'" for name in ("delivered", *OUTCOMES, "dead")}
    conditions["rejected"] = "step = 'rejected'"
    kinds = history.where(f.col("kind").isin("delivered", "dead", *OUTCOMES))
    counted = kinds.groupBy("attempt").agg(*totals(conditions))
    share = f.expr("CASE WHEN delivered > 0 THEN acked / delivered END")
    return counted.orderBy(f.asc_nulls_last("attempt")).withColumn("share", share)


def redeliveries(history: DataFrame) -> DataFrame:
    """Return the deliveries and acks after the first of a life, by the event before."""
    return (
        history.where(~f.col("after").isin(*LIFE_STARTS))
        .groupBy("kind", "after", f.expr("found IS NULL AS explained"))
        .agg(f.sum("events").alias("events"))
        .orderBy("explained", f.desc("events"), "kind", "after")
    )


def duplicates(history: DataFrame) -> DataFrame:
    """Return the unexplained deliveries and acks, one row each, in log order."""
    return (
        history.where("found is not null")
        .select(
            "found.id",
            "kind",
            "after",
            "found.event_at",
            "attempt",
            "found.token",
            "found.log_offset",
            "found.entry_index",
        )
        .orderBy("log_offset", "entry_index")
        .limit(MAX_ROWS)
    )
