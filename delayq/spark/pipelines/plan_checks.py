"""Checks the table to be planned: its columns, their types, and the values in its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from delayq.errors import ConfigurationError, did_you_mean, short_repr
from delayq.spark.pipelines.reminder_rules import Rule
from delayq.spark.spark_errors import reason_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NEEDED = {
    "id": ("a STRING or a whole number", ("string", "byte", "short", "integer", "long")),
    "time": ("a TIMESTAMP, a TIMESTAMP_NTZ, a DATE or a STRING", ("timestamp", "timestamp_ntz", "date", "string")),
    "zone": ("a STRING, the IANA name of a time zone", ("string",)),
}
"""The required columns: the types they must have, and the same as Spark's type names."""
IN_EVERY_PAYLOAD = ("source", "rule", "occurrence", "due")

_WALL_CLOCK = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?$"
"""Texts with an offset are refused: they are instants, and reading them as wall-clock times would drop the offset."""
_NOT_IANA = (
    *("ACT", "AET", "AGT", "ART", "AST", "BET", "BST", "CAT", "CNT", "CST", "CTT", "EAT", "ECT"),
    *("IET", "IST", "JST", "MIT", "NET", "NST", "PLT", "PNT", "PRT", "PST", "SST", "VST"),
)
"""Abbreviations that Java accepts as a zone, but rarely the intended one: BST is Bangladesh to it."""
_MESSAGES = {
    "id is null": "id is null in {n}",
    "time is null": "time is null in {n}, for example of {id}",
    "time": "time is invalid in {n}, for example {time} of {id}; a text must look like '2027-01-31 09:00' (a wall-clock"
    " time in the zone), and an instant must be a TIMESTAMP",
    "zone is null": "zone is null in {n}, for example of {id}",
    "zone": "zone is unknown in {n}, for example {zone} of {id}{hint}",
}


def payload_columns(rows: DataFrame, rule: Rule) -> list[str]:
    """Return the columns that go into the payloads of a rule, sorted by name."""
    if rule.payload is not None:
        return sorted(set(rule.payload))
    return sorted(name for name in rows.columns if name not in NEEDED)


def check_columns(rows: DataFrame, rules: tuple[Rule, ...]) -> None:
    """Raise `ConfigurationError` for missing columns, wrong types, and columns that cannot go into a payload."""
    names = rows.columns
    lowered = [name.lower() for name in names]
    for name in names:
        if lowered.count(name.lower()) > 1:
            raise ConfigurationError(f"column {name!r} exists more than once: drop or rename the others")
    for name, (wanted, allowed) in NEEDED.items():
        if name not in names:
            raise ConfigurationError(
                f"column {name!r} is missing: id, time and zone are required; the table has {', '.join(names)}"
            )
        kind = rows.schema[name].dataType
        if kind.typeName() not in allowed:
            raise ConfigurationError(f"column {name!r} must be {wanted}, not {kind.simpleString()}")
    for rule in rules:
        for name in payload_columns(rows, rule):
            if name not in names:
                hint = did_you_mean(name, tuple(names)) or f"; the table has {', '.join(names)}"
                raise ConfigurationError(f"rule {rule.name!r}: payload: there is no column {name!r}{hint}")
            if name.lower() in IN_EVERY_PAYLOAD:
                raise ConfigurationError(
                    f"column {name!r} has the name of a standard payload field: rename it, or leave it out"
                    f" of the payload of rule {rule.name!r}"
                )


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
            message = _MESSAGES[name].format(
                n=f"{counts[name]} of {counts['rows']} rows",
                **{column: short_repr(row[column]) for column in NEEDED},
                hint=_hint(row["zone"]),
            )
            raise ConfigurationError(message)
    if counts["repeated"]:
        example = by_id.where("rows > 1").orderBy("id").limit(1).collect()[0]
        raise ConfigurationError(
            f"{counts['repeated']} ids occur in more than one row, for example {short_repr(str(example['id']))}:"
            " ids must be unique"
        )


def _checks(rows: DataFrame) -> dict[str, Column]:
    time, zone = F.col("time"), F.col("zone")
    checks = {"id is null": F.col("id").isNull(), "time is null": time.isNull(), "zone is null": zone.isNull()}
    if rows.schema["time"].dataType.typeName() == "string":
        checks["time"] = ~(time.rlike(_WALL_CLOCK) & time.try_cast("timestamp_ntz").isNotNull())
    # Spark itself is asked, because it will look up the zone; Python's list may differ.
    is_known = F.concat(F.lit("2000-01-01 00:00:00 "), zone).try_cast("timestamp_ltz").isNotNull()
    checks["zone"] = ~(is_known & zone.rlike(r"^\S+$") & ~zone.isin(*_NOT_IANA))
    return checks


def _hint(zone: str | None) -> str:
    from zoneinfo import available_timezones

    known = available_timezones()
    if zone in known:
        return ": the time zone data of Spark's Java does not have it; update Java, or use a zone of equal rules"
    return f"{did_you_mean(zone or '', tuple(known))}; use an IANA name such as 'Europe/Berlin'"
