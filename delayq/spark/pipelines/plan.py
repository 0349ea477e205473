"""Plan reminders: a table of things that happen, and rules, become messages; then only what is new or has changed."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from delayq.clock import timestamp
from delayq.errors import ConfigurationError
from delayq.spark.ids import message_id
from delayq.spark.rules import DAY, Rule, check_rules
from delayq.spark.schemas import PLAN
from delayq.spark.things import IN_EVERY_PAYLOAD, check_columns, check_rows, payload_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_COLUMNS = {name: kind.lower() for name, kind in (column.split() for column in PLAN.split(", "))}
_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
_DAY = DAY * 1000


def plan(
    things: DataFrame,
    rules: Rule | Iterable[Rule],
    *,
    previous: DataFrame | None = None,
    since: datetime | None = None,
) -> DataFrame:
    """Return the reminders of things as a table with the columns of `schemas.PLAN`.

    `things` has a column `id` (text or whole number, each once), `time` and `zone` (its IANA name). A TIMESTAMP is an
    instant; a TIMESTAMP_NTZ, a DATE (its 00:00) or a text such as `"2027-01-31 09:00"` is a time on the wall clock of
    the zone. A payload is the JSON of source (the id), rule, occurrence, due, and the columns that the rule names.

    Without `previous` every reminder is new. With the plan before, as it was answered and stored, the action is keep
    for what is equal; a reminder that is due at another time or carries something else is new under another id, and
    the old one, like one that is no longer wanted, is cancel. Cancels stay in the plans that follow, so that none is
    missed where a plan was never loaded, until they are due before `since` (default: for ever). An id that was
    cancelled is not planned again: queues refuse it. What comes back has the next `revision`, and so another id.

    Deterministic: the same rows and rules give the same plan, in whatever order, partitions and time zone of the
    session, and planned again it is nothing but keep. It does not ask what time it is; what is past is for `load`.

    One job looks through the things at once. `ConfigurationError` if columns are missing or of the wrong type, if an
    id comes twice, or if an id, a time or a zone is null or not understood. The plan itself is computed when it is
    read, with the things and `previous`: store it elsewhere than where that was read from.
    """
    known = check_rules(rules)
    check_columns(things, known)
    if previous is not None:
        _check_previous(previous)
    least = None if since is None else timestamp(since, "since")
    check_rows(things)
    wanted = _reminders(things, known)
    if previous is None:
        planned = wanted.select("*", F.lit(0).alias("revision"), F.lit("new").alias("action"))
    else:
        planned = _compared(wanted, previous, least)
    id = F.coalesce("id", message_id("source", "rule", "occurrence", F.unix_micros("due"), "revision"))
    return planned.select(id.alias("id"), *(name for name in _COLUMNS if name != "id"))


# What is wanted


def _reminders(things: DataFrame, rules: tuple[Rule, ...]) -> DataFrame:
    """The reminders as id (null), source, rule, occurrence, due, payload and retries."""
    carried = {"zone"}.union(*(payload_columns(things, rule) for rule in rules))
    each = things.select(
        F.col("id").cast("string").alias("source"),
        "zone",
        _instant(things).alias("time"),
        F.struct(*(things[f"`{name}`"].alias(name) for name in sorted(carried))).alias("thing"),
    )
    base = _moved(F.col("time"), F.col("shift_days"), F.col("shift_micros"))
    by_rule = each.select("*", F.inline(F.array(*map(_parameters, rules)))).withColumn("base", base)
    steps = F.sequence(F.lit(0), F.col("repeats") - 1)
    at = F.transform(steps, lambda k: _moved(F.col("base"), F.col("step_days") * k, F.col("step_micros") * k))
    placed = F.zip_with("at", F.transform("at", _to_wall), _placed)
    due = F.array_sort(F.array_distinct(F.when(F.col("placed"), placed).otherwise(F.col("at"))))
    timed = (
        by_rule.withColumn("at", at)
        .select("source", "rule", "thing", "retries", F.posexplode(due).alias("occurrence", "micros"))
        .withColumn("due", F.timestamp_micros("micros"))
    )
    id = F.lit(None).cast("string").alias("id")
    return timed.select(id, *IN_EVERY_PAYLOAD, _payload(things, rules).alias("payload"), "retries")


def _parameters(rule: Rule) -> Column:
    """What a rule says, as a row: all rules are then one expression, however many there are."""
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


# Times are microseconds: since 1970 in UTC (an instant), or on the wall clock as if that were UTC. Only so does the
# time zone of the session never enter. `to_utc_timestamp` does with gaps and repeated hours what `Rule` promises.


def _instant(things: DataFrame) -> Column:
    if things.schema["time"].dataType.typeName() == "timestamp":
        return F.unix_micros("time")
    wall = F.col("time").try_cast("timestamp_ntz") - F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'")
    return _from_wall((wall.cast("interval second").cast("decimal(20,6)") * 1_000_000).cast("bigint"))


def _to_wall(instant: Column) -> Column:
    return F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(instant), F.col("zone")))


def _from_wall(wall: Column) -> Column:
    return F.unix_micros(F.to_utc_timestamp(F.timestamp_micros(wall), F.col("zone")))


def _moved(instant: Column, days: Column, micros: Column) -> Column:
    """Go some days along the calendar, then some way along the clock."""
    return F.when(days == 0, instant).otherwise(_from_wall(_to_wall(instant) + days * _DAY)) + micros


def _placed(instant: Column, wall: Column) -> Column:
    """Go to `clock` on the same day, and days `back` to an allowed one."""
    time = F.pmod(wall, F.lit(_DAY))
    day = wall - time
    # Day 0 was a Thursday, so day 4 a Monday.
    back = F.get("back", (F.pmod(day - 4 * _DAY, F.lit(7 * _DAY)) / _DAY).cast("int"))
    placed = _from_wall(day - back * _DAY + F.coalesce("clock", time))
    # Back from the wall clock, the second of two equal times would become the first.
    return F.when(F.col("clock").isNull() & (back == 0), instant).otherwise(placed)


def _payload(things: DataFrame, rules: tuple[Rule, ...]) -> Column:
    names: dict[tuple[str, ...], list[str]] = {}
    for rule in rules:
        names.setdefault(tuple(payload_columns(things, rule)), []).append(rule.name)
    payload = F.lit(None).cast("string")
    for columns, of in names.items():
        carried = (F.col("thing").getField(name).alias(name) for name in columns)
        json = F.to_json(F.struct(*IN_EVERY_PAYLOAD, *carried), _JSON)
        payload = F.when(F.col("rule").isin(of), json).otherwise(payload) if len(names) > 1 else json
    return payload


# What was planned before


def _compared(wanted: DataFrame, previous: DataFrame, since: int | None) -> DataFrame:
    """Give what is wanted a revision and an action, and add the cancels. One shuffle, by what names a reminder."""
    unset = [F.lit(None).cast("int").alias("revision"), F.lit("new").alias("action")]
    fresh = wanted.select("*", *unset).select(*_COLUMNS, F.lit("now").alias("planned"))
    before = previous.select(*_COLUMNS, F.lit("before").alias("planned"))
    is_fresh, is_cancel = F.col("planned") == "now", F.col("action") == "cancel"
    same = Window.partitionBy(*IN_EVERY_PAYLOAD)
    # At the same revision a cancel counts more: several plans in one table are then understood as well.
    latest = F.struct("revision", is_cancel.alias("cancelled"), "payload")
    both = fresh.unionByName(before).select(
        "*",
        F.max(F.when(~is_fresh, latest)).over(same).alias("last"),
        F.max(F.when(is_fresh, F.col("payload"))).over(same).alias("carries"),
    )
    last = F.col("last.revision")
    equal = ~F.col("last.cancelled") & (F.col("last.payload") == F.col("carries"))
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


def _check_previous(previous: DataFrame) -> None:
    kinds = dict(previous.dtypes)
    for name, kind in _COLUMNS.items():
        if kinds.get(name) != kind:
            found = f"is {kinds[name]}" if name in kinds else "is missing"
            raise ConfigurationError(f"previous must be a plan: its column {name!r} {found} and must be {kind}")
