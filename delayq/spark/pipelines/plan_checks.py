"""The table of things that a plan is made for: which columns it must have, and what cannot be planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from delayq.errors import ConfigurationError, shown
from delayq.spark.given import did_you_mean
from delayq.spark.rules import Rule

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NEEDED = {
    "id": ("a STRING or a whole number", ("string", "byte", "short", "integer", "long")),
    "time": ("a TIMESTAMP, a TIMESTAMP_NTZ, a DATE or a STRING", ("timestamp", "timestamp_ntz", "date", "string")),
    "zone": ("a STRING, the IANA name of a time zone", ("string",)),
}
"""The columns that are needed: what they must be, and that in Spark's words."""
IN_EVERY_PAYLOAD = ("source", "rule", "occurrence", "due")

_WALL_CLOCK = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?$"
"""With an offset a text is an instant, and as a time on the wall clock it would lose that offset without a word."""
_NOT_IANA = (
    *("ACT", "AET", "AGT", "ART", "AST", "BET", "BST", "CAT", "CNT", "CST", "CTT", "EAT", "ECT"),
    *("IET", "IST", "JST", "MIT", "NET", "NST", "PLT", "PNT", "PRT", "PST", "SST", "VST"),
)
"""Abbreviations that Java takes for a zone, and seldom for the one that is meant: BST is Bangladesh to it."""
_REFUSALS = {
    "id is null": "{n} have no id",
    "time is null": "{n} have no time; {id} is one",
    "time": "the time of {n} cannot be read, {time} of {id} for one; a text must look like '2027-01-31 09:00',"
    " the time on the wall clock of the zone, and an instant must be a TIMESTAMP",
    "zone is null": "{n} have no zone; {id} is one",
    "zone": "the zone of {n} is unknown, {zone} of {id} for one{hint}; a zone is an IANA name such as 'Europe/Berlin'",
}


def payload_columns(things: DataFrame, rule: Rule) -> list[str]:
    """Return the columns of the things that go into the payloads of a rule, in order of their names."""
    if rule.payload is not None:
        return sorted(set(rule.payload))
    return sorted(name for name in things.columns if name not in NEEDED)


def check_columns(things: DataFrame, rules: tuple[Rule, ...]) -> None:
    """Refuse a table without the columns that are needed, or with others that cannot go into a payload."""
    names = things.columns
    lowered = [name.lower() for name in names]
    for name in names:
        if lowered.count(name.lower()) > 1:
            raise ConfigurationError(f"things has a column {name!r} more than once; drop or rename the others")
    for name, (wanted, allowed) in NEEDED.items():
        if name not in names:
            raise ConfigurationError(
                f"things has no column {name!r}; it needs id, time and zone, and has {', '.join(names)}"
            )
        kind = things.schema[name].dataType
        if kind.typeName() not in allowed:
            raise ConfigurationError(f"the column {name!r} of things must be {wanted}, not {kind.simpleString()}")
    for rule in rules:
        for name in payload_columns(things, rule):
            if name not in names:
                hint = did_you_mean(name, tuple(names)) or f"; there are {', '.join(names)}"
                raise ConfigurationError(f"rule {rule.name!r}: payload: things has no column {name!r}{hint}")
            if name.lower() in IN_EVERY_PAYLOAD:
                raise ConfigurationError(
                    f"the column {name!r} of things is called like a part of every payload; rename it,"
                    f" or name others in the payload of rule {rule.name!r}"
                )


def check_rows(things: DataFrame) -> None:
    """Refuse things that cannot be planned, with their count and an example; one job, which moves ids and counts."""
    faults = _faults(things)
    flags = (F.count_if(wrong).alias(name) for name, wrong in faults.items())
    by_id = things.groupBy("id").agg(F.count("*").alias("rows"), *flags)
    sums = (F.sum(name).alias(name) for name in faults)
    found = by_id.agg(F.sum("rows").alias("rows"), F.count_if(F.col("rows") > 1).alias("repeated"), *sums).collect()[0]
    for name, wrong in faults.items():
        if found[name]:
            texts = [F.col(column).cast("string").alias(column) for column in NEEDED]
            row = things.where(wrong).select(*texts).orderBy(*NEEDED).limit(1).collect()[0]
            told = _REFUSALS[name].format(
                n=f"{found[name]} of {found['rows']} things",
                **{column: shown(row[column]) for column in NEEDED},
                hint=_hint(row["zone"]),
            )
            raise ConfigurationError(told)
    if found["repeated"]:
        example = by_id.where("rows > 1").orderBy("id").limit(1).collect()[0]
        raise ConfigurationError(
            f"{found['repeated']} ids of things stand in more than one row, {shown(str(example['id']))} for one;"
            " a thing is told by its id, so make them unique"
        )


def _faults(things: DataFrame) -> dict[str, Column]:
    time, zone = F.col("time"), F.col("zone")
    faults = {"id is null": F.col("id").isNull(), "time is null": time.isNull(), "zone is null": zone.isNull()}
    if things.schema["time"].dataType.typeName() == "string":
        faults["time"] = ~(time.rlike(_WALL_CLOCK) & time.try_cast("timestamp_ntz").isNotNull())
    # Asked of Spark itself, which will look the zone up: Python's list of zones may be another.
    found = F.concat(F.lit("2000-01-01 00:00:00 "), zone).try_cast("timestamp_ltz").isNotNull()
    faults["zone"] = ~(found & zone.rlike(r"^\S+$") & ~zone.isin(*_NOT_IANA))
    return faults


def _hint(zone: str | None) -> str:
    from zoneinfo import available_timezones

    return did_you_mean(zone or "", tuple(available_timezones()))
