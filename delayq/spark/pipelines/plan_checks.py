"""Checks the table to be planned: its columns, their types, and the values in its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from delayq.bulk.plan_columns import (
    NEEDED,
    NOT_IANA,
    WALL_CLOCK,
    check_columns,
    invalid_rows,
    repeated_ids,
    zone_hint,
)
from delayq.bulk.reminder_rules import Rule
from delayq.errors import ConfigurationError
from delayq.spark.spark_errors import reason_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def check_table(rows: DataFrame, rules: tuple[Rule, ...]) -> None:
    """Raise `ConfigurationError` for missing columns, wrong types, and columns that cannot go into a payload."""
    fields = rows.schema.fields
    check_columns([(one.name, one.dataType.typeName(), one.dataType.simpleString()) for one in fields], rules)


def check_conditions(rows: DataFrame, rules: tuple[Rule, ...]) -> None:
    """Raise `ConfigurationError` for a rule whose condition Spark does not accept; runs no job."""
    for rule in rules:
        if rule.where is not None:
            try:
                _ = rows.where(F.expr(rule.where)).schema
            except PySparkException as error:
                raise ConfigurationError(f"rule {rule.name!r}: where: {reason_of(error)}") from error


def check_rows(rows: DataFrame, rules: tuple[Rule, ...]) -> None:
    """Raise `ConfigurationError` for invalid rows, with their count and an example; one job, over ids and counts.

    It evaluates the conditions of the rules too: one that fails for a row fails here, before anything is written.
    """
    checks = _checks(rows)
    conditions = {f"rule {rule.name}": F.expr(rule.where) for rule in rules if rule.where is not None}
    flags = [F.count_if(wrong).alias(name) for name, wrong in (checks | conditions).items()]
    sums = [F.sum(f"`{name}`").alias(name) for name in checks]
    sums += [F.max(f"`{name}`") for name in conditions]
    try:
        by_id = rows.groupBy("id").agg(F.count("*").alias("rows"), *flags)
        totals = (F.sum("rows").alias("rows"), F.count_if(F.col("rows") > 1).alias("repeated"))
        counts = by_id.agg(*totals, *sums).collect()[0]
    except PySparkException as error:
        if not conditions:
            raise
        names = ", ".join(repr(rule.name) for rule in rules if rule.where is not None)
        raise ConfigurationError(f"where of a rule ({names}): {reason_of(error)}") from error
    for name, wrong in checks.items():
        if counts[name]:
            texts = [F.col(column).cast("string").alias(column) for column in NEEDED]
            row = rows.where(wrong).select(*texts).orderBy(*NEEDED).limit(1).collect()[0]
            raise invalid_rows(name, counts[name], counts["rows"], row.asDict(), _hint(row["zone"]))
    if counts["repeated"]:
        example = by_id.where("rows > 1").orderBy("id").limit(1).collect()[0]
        raise repeated_ids(counts["repeated"], str(example["id"]))


def _checks(rows: DataFrame) -> dict[str, Column]:
    time, zone = F.col("time"), F.col("zone")
    checks = {"id is null": F.col("id").isNull(), "time is null": time.isNull(), "zone is null": zone.isNull()}
    if rows.schema["time"].dataType.typeName() == "string":
        checks["time"] = ~(time.rlike(WALL_CLOCK) & time.try_cast("timestamp_ntz").isNotNull())
    # Spark itself is asked, because it will look up the zone; Python's list may differ.
    is_known = F.concat(F.lit("2000-01-01 00:00:00 "), zone).try_cast("timestamp_ltz").isNotNull()
    checks["zone"] = ~(is_known & zone.rlike(r"^\S+$") & ~zone.isin(*NOT_IANA))
    return checks


def _hint(zone: str | None) -> str:
    from zoneinfo import available_timezones

    if zone in available_timezones():
        return ": the time zone data of Spark's Java does not have it; update Java, or use a zone of equal rules"
    return zone_hint(zone)
