"""Plans reminders: applies rules to the rows of a table, and compares the result with the previous plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import Window
from pyspark.sql import functions as F

from delayq.bulk.option_columns import columns_of_rules
from delayq.bulk.plan_columns import (
    IN_EVERY_PAYLOAD,
    NEEDED,
    NOT_IANA,
    WALL_CLOCK,
    check_columns,
    invalid_rows,
    payload_columns,
    repeated_ids,
    zone_hint,
)
from delayq.bulk.reminder_rules import DAY, Rule, check_rules
from delayq.errors import ConfigurationError
from delayq.spark.datasource.schemas import PLAN, check_schema, columns_of
from delayq.spark.pipelines.message_ids import UTC_JSON, message_id
from delayq.spark.spark_errors import reason_of
from delayq.values.times import timestamp

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


_COLUMNS = columns_of(PLAN)
_JSON = {**UTC_JSON, "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
_DAY = DAY * 1000


def plan(
    things: DataFrame, rules: Rule | Iterable[Rule], *, previous: DataFrame | None = None, since: datetime | None = None
) -> DataFrame:
    """Return the reminders of a table's rows, with the columns of `schemas.PLAN`.

    `things` has the columns `id` (unique text or whole number), `time` and `zone` (an IANA name). A TIMESTAMP is an
    instant; a TIMESTAMP_NTZ, a DATE (its 00:00) or a text such as `"2027-01-31 09:00"` is a wall-clock time in the
    zone. A payload is a JSON object of source (the row's id), rule, occurrence, due, and the columns chosen by the
    rule.

    Without `previous` every reminder is new. `previous` is the previous plan, as returned and stored: equal reminders
    then have the action keep. A reminder with another due time or payload is new under another id, and the old one,
    like one that is no longer wanted, is cancel. Cancels stay in later plans until they are due before `since`
    (default: forever), in case one of the plans was never loaded. A cancelled id is never reused, because queues refuse
    it; a reminder that comes back has the next `revision`, and so another id.

    Deterministic: the same rows and rules give the same plan, whatever their order, the partitions and the session's
    time zone; planned again, everything is keep. The current time does not matter: `load` skips what is past.

    One job checks the rows at once, and evaluates the conditions of the rules. Raises `ConfigurationError` if columns
    are missing or have the wrong type, if a condition is not valid, if an id is not unique, or if an id, time or zone
    is null or invalid. The plan itself is computed when it is read, so do not store it where `previous` is read from.
    """
    checked = check_rules(rules)
    check_table(things, checked)
    if previous is not None:
        check_schema(previous, _COLUMNS, "previous is not a plan")
    since_ms = None if since is None else timestamp(since, "since")
    check_conditions(things, checked)
    check_rows(things, checked)
    wanted = _reminders(things, checked)
    if previous is None:
        planned = wanted.select("*", F.lit(0).alias("revision"), F.lit("new").alias("action"))
    else:
        planned = _compare(wanted, previous, since_ms)
    id = F.coalesce("id", message_id("source", "rule", "occurrence", F.unix_micros("due"), "revision"))
    return planned.select(id.alias("id"), *(name for name in _COLUMNS if name != "id"), *_options(checked))


def _options(rules: tuple[Rule, ...]) -> list[Column]:
    """Return the columns of the options that the rules have; cancels have none."""
    columns = columns_of_rules({rule.name: rule.options for rule in rules})
    return [
        F.when(F.col("action") != "cancel", _by_rule(texts)).cast("string").alias(name)
        for name, texts in columns.items()
    ]


def _by_rule(texts: Mapping[str, str]) -> Column:
    return F.try_element_at(F.create_map(*(F.lit(one) for pair in texts.items() for one in pair)), F.col("rule"))


# The reminders of the rows


def _reminders(rows: DataFrame, rules: tuple[Rule, ...]) -> DataFrame:
    """Return reminders as id (null), source, rule, occurrence, due, payload and retries."""
    columns = {"zone"}.union(*(payload_columns(rows.columns, rule) for rule in rules))
    each = rows.select(
        F.col("id").cast("string").alias("source"),
        "zone",
        _instant(rows).alias("time"),
        F.struct(*(rows[f"`{name}`"].alias(name) for name in sorted(columns))).alias("row"),
        _rules_of_row(rules).alias("rules"),
    )
    base = _moved(F.col("time"), F.col("shift_days"), F.col("shift_micros"))
    by_rule = each.select("*", F.inline("rules")).drop("rules").withColumn("base", base)
    steps = F.sequence(F.lit(0), F.col("repeats") - 1)
    at = F.transform(steps, lambda k: _moved(F.col("base"), F.col("step_days") * k, F.col("step_micros") * k))
    placed = F.zip_with("at", F.transform("at", _to_wall), _placed)
    due = F.array_sort(F.array_distinct(F.when(F.col("placed"), placed).otherwise(F.col("at"))))
    timed = (
        by_rule.withColumn("at", at)
        .select("source", "rule", "row", "retries", F.posexplode(due).alias("occurrence", "micros"))
        .withColumn("due", F.timestamp_micros("micros"))
    )
    id = F.lit(None).cast("string").alias("id")
    return timed.select(id, *IN_EVERY_PAYLOAD, _payload(rows, rules).alias("payload"), "retries")


def _rules_of_row(rules: tuple[Rule, ...]) -> Column:
    """Return the parameters of the rules whose condition is true."""
    if all(rule.where is None for rule in rules):
        return F.array(*map(_parameters, rules))
    chosen = (
        _parameters(rule) if rule.where is None else F.when(F.expr(rule.where), _parameters(rule)) for rule in rules
    )
    return F.array_compact(F.array(*chosen))


def _parameters(rule: Rule) -> Column:
    """Return a rule's parameters as a struct, so that any number of rules is one expression."""
    return F.struct(
        F.lit(rule.name).alias("rule"),
        F.lit(rule.repeats).alias("repeats"),
        F.lit(rule.retries).alias("retries"),
        F.lit(rule.shift.days).cast("bigint").alias("shift_days"),
        F.lit(rule.shift.milliseconds * 1000).cast("bigint").alias("shift_micros"),
        F.lit(rule.step.days).cast("bigint").alias("step_days"),
        F.lit(rule.step.milliseconds * 1000).cast("bigint").alias("step_micros"),
        F.lit(None if rule.clock is None else rule.clock * 1000).cast("bigint").alias("clock"),
        F.array(*(F.lit(days) for days in rule.back)).alias("back"),
        F.lit(rule.clock is not None or any(rule.back)).alias("placed"),
    )


# Times are microseconds since 1970: of an instant, or of a wall clock as if it were UTC. So the session's time zone is
# never used. `to_utc_timestamp` handles skipped and repeated hours as `Rule` promises.


def _instant(rows: DataFrame) -> Column:
    if rows.schema["time"].dataType.typeName() == "timestamp":
        return F.unix_micros("time")
    wall = F.col("time").try_cast("timestamp_ntz") - F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'")
    return _from_wall((wall.cast("interval second").cast("decimal(20,6)") * 1_000_000).cast("bigint"))


def _to_wall(instant: Column) -> Column:
    return F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(instant), F.col("zone")))


def _from_wall(wall: Column) -> Column:
    return F.unix_micros(F.to_utc_timestamp(F.timestamp_micros(wall), F.col("zone")))


def _moved(instant: Column, days: Column, micros: Column) -> Column:
    """Add calendar days, then elapsed time."""
    return F.when(days == 0, instant).otherwise(_from_wall(_to_wall(instant) + days * _DAY)) + micros


def _placed(instant: Column, wall: Column) -> Column:
    """Set the wall-clock time to `clock`, and move back to an allowed day."""
    time = F.pmod(wall, F.lit(_DAY))
    day = wall - time
    # Day 0 was a Thursday, so day 4 a Monday.
    back = F.get("back", (F.pmod(day - 4 * _DAY, F.lit(7 * _DAY)) / _DAY).cast("int"))
    placed = _from_wall(day - back * _DAY + F.coalesce("clock", time))
    # Unmoved times keep their instant: from the wall clock, the second of two equal times would become the first.
    return F.when(F.col("clock").isNull() & (back == 0), instant).otherwise(placed)


def _payload(rows: DataFrame, rules: tuple[Rule, ...]) -> Column:
    names: dict[tuple[str, ...], list[str]] = {}
    for rule in rules:
        names.setdefault(tuple(payload_columns(rows.columns, rule)), []).append(rule.name)
    payload = F.lit(None).cast("string")
    for columns, users in names.items():
        values = (F.col("row").getField(name).alias(name) for name in columns)
        json = F.to_json(F.struct(*IN_EVERY_PAYLOAD, *values), _JSON)
        payload = F.when(F.col("rule").isin(users), json).otherwise(payload) if len(names) > 1 else json
    return payload


# Comparison with the previous plan


def _compare(wanted: DataFrame, previous: DataFrame, since: int | None) -> DataFrame:
    """Add revisions and actions to the reminders, and append the cancels; one shuffle, by the key of a reminder."""
    unset = [F.lit(None).cast("int").alias("revision"), F.lit("new").alias("action")]
    fresh = wanted.select("*", *unset).select(*_COLUMNS, F.lit("now").alias("planned"))
    before = previous.select(*_COLUMNS, F.lit("before").alias("planned"))
    is_fresh, is_cancel = F.col("planned") == "now", F.col("action") == "cancel"
    same = Window.partitionBy(*IN_EVERY_PAYLOAD)
    # At the same revision a cancel wins, so that several plans in one table work as well.
    latest = F.struct("revision", is_cancel.alias("cancelled"), "payload")
    both = fresh.unionByName(before).select(
        "*",
        F.max(F.when(~is_fresh, latest)).over(same).alias("last"),
        F.max(F.when(is_fresh, F.col("payload"))).over(same).alias("new_payload"),
    )
    last = F.col("last.revision")
    equal = ~F.col("last.cancelled") & (F.col("last.payload") == F.col("new_payload"))
    kept = F.coalesce(equal, F.expr("false"))
    over = kept & (F.col("revision") == last)
    if since is not None:
        over |= F.unix_micros("due") < since * 1000
    next_revision = F.coalesce(last + 1, F.lit(0))
    return both.where(is_fresh | ~over).withColumns(
        {
            "revision": F.when(~is_fresh, F.col("revision")).when(kept, last).otherwise(next_revision),
            "action": F.when(~is_fresh, "cancel").when(kept, "keep").otherwise("new"),
        }
    )
