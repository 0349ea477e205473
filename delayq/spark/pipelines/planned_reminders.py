"""The planned reminders of an audit: those of all plans, and which of them the loads were to send."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from delayq.bulk.load_run import UNKNOWN, digest_of
from delayq.queue.sweeps.bulk_runs import RunInfo

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Horizon = tuple[datetime | None, datetime | None]
"""Start (inclusive) and end (exclusive); None for no limit."""


def source_of(table: DataFrame) -> str:
    """Return a digest of the names of the files that a table is read from, by which its loads are recognized."""
    return digest_of(table.inputFiles())


def horizons(plan: DataFrame, runs: Iterable[RunInfo]) -> list[Horizon]:
    """Return the horizons of a plan's loads: of those from its files, if there are any, else of all loads."""
    loads = [info for info in runs if info.source is not None]
    source = source_of(plan) if loads else UNKNOWN
    own = [info for info in loads if info.source == source != UNKNOWN]
    return [(info.start, info.until) for info in own or loads]


def planned(
    plans: Sequence[DataFrame], runs: Sequence[RunInfo], start: datetime | None, until: datetime | None
) -> DataFrame:
    """Return the reminders of all plans, one row for each id: the last plan decides.

    `expected` tells whether a load was to send it, `in_period` whether it is to be audited. `rows` is how often its id
    is in one plan, `first_id` another id of a plan with the same source, rule and occurrence.
    """
    parts = []
    for number, plan in enumerate(plans):
        action = F.col("action") if "action" in plan.columns else F.lit("new")
        payload = digest("payload") if "payload" in plan.columns else F.lit(None).cast("string")
        expected = [_within(*horizon) for horizon in horizons(plan, runs)] or [F.expr("true")]
        # Cancels are carried out, and rows without a due time sent, whatever the horizon.
        always = action.eqNullSafe("cancel") | F.col("due").isNull()
        parts.append(
            plan.select(
                "id",
                F.struct(F.col("due").alias("planned_due"), action.alias("action"), payload.alias("payload")).alias(
                    "row"
                ),
                (reduce(lambda one, other: one | other, expected) | always).alias("expected"),
                F.lit(number).alias("number"),
                _first_id(plan, action).alias("first_id"),
            )
        )
    every = reduce(lambda one, other: one.unionByName(other), parts)
    columns = (
        "max_by(row, number) AS row",
        "bool_or(expected) AS expected",
        "max_by(first_id, number) AS first_id",
        "count(*) - size(collect_set(number)) + 1 AS rows",
    )
    every = every.groupBy("id").agg(*map(F.expr, columns))
    in_period = F.coalesce(_within(start, until, "row.planned_due"), F.expr("true"))
    return every.select(
        "id", "row.*", "expected", "first_id", "rows", in_period.alias("in_period"), F.expr("true").alias("planned")
    )


def _first_id(plan: DataFrame, action: Column) -> Column:
    """Return the first id of a plan with the source, rule and occurrence of a row; null if that is its own, or none."""
    key = ("source", "rule", "occurrence")
    if not set(key) <= set(plan.columns):
        return F.lit(None).cast("string")
    wanted = ~action.eqNullSafe("cancel") & F.expr(" AND ".join(f"{name} IS NOT NULL" for name in key))
    first = F.min(F.when(wanted, F.col("id"))).over(Window.partitionBy(*key))
    return F.when(wanted & (first != F.col("id")), first)


def _within(start: datetime | None, until: datetime | None, column: str = "due") -> Column:
    within = F.expr("true")
    if start is not None:
        within &= F.col(column) >= F.lit(start)
    if until is not None:
        within &= F.col(column) < F.lit(until)
    return within


def digest(column: str) -> Column:
    """Return a digest of a text or of bytes."""
    return F.sha2(F.col(column).cast("binary"), 256)
