"""Plans reminders on Spark: each task applies the rules to its rows, and Spark compares them with the last plan.

The rows are checked and planned by the Python of `delayq.bulk`: zones, numbers and texts are the same with and without
Spark. Spark evaluates conditions, and writes what `delayq.bulk` does not take, such as lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Window
from pyspark.sql import functions as F

from delayq.broker.batches import batched
from delayq.bulk.files.json_values import NULL, json_column
from delayq.bulk.files.schemas import BATCH_ROWS, PLAN, arrow_schema, check_schema, columns_of
from delayq.bulk.load_options import ON_ERRORS, check_choice
from delayq.bulk.option_columns import columns_of_rules
from delayq.bulk.plan_columns import (
    IN_EVERY_PAYLOAD,
    NEEDED,
    REPEATED,
    Told,
    check_changes,
    check_columns,
    invalid_rows,
    reason_of_row,
    repeated_ids,
)
from delayq.bulk.plan_rows import PlanRows, order_of, texts_of
from delayq.bulk.reminder_rules import Rule, check_rules
from delayq.errors import ConfigurationError
from delayq.spark.pipelines.message_ids import UTC_JSON, message_id
from delayq.spark.spark_errors import error_of, reason_of
from delayq.values.times import timestamp

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_COLUMNS = columns_of(PLAN)
_JSON = {**UTC_JSON, "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
_CHECKED = "id STRING, time STRING, zone STRING, problem STRING, place INT"
_WANTED = "source STRING, rule STRING, occurrence INT, due TIMESTAMP, payload STRING, retries INT"
_REFUSED = "id STRING, reason STRING"
_PLAIN = (
    *("string", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal"),
    *("timestamp", "timestamp_ntz", "date", "binary", "void"),
)
"""Types that `delayq.bulk` writes as JSON; the others are written by Spark."""
_BEFORE, _AFTER = len('{"v":'), len("}")
"""What `to_json` puts around a value."""


def _check_table(rows: DataFrame, rules: tuple[Rule, ...]) -> PlanRows:
    """Return what plans a table; raises `ConfigurationError` for columns and conditions that cannot be planned."""
    fields = rows.schema.fields
    check_columns([(one.name, one.dataType.typeName(), one.dataType.simpleString()) for one in fields], rules)
    for rule in rules:
        if rule.where is not None:
            try:
                _ = rows.where(F.expr(rule.where)).schema
            except PySparkException as error:
                raise ConfigurationError(f"rule {rule.name!r}: where: {reason_of(error)}") from error
    return PlanRows(rules, rows.columns)


def _checked(rows: DataFrame, planner: PlanRows, *more: Column) -> DataFrame:
    """Return id, time and zone of each row as texts, and its problem; `more` is evaluated too."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids, times, zones = (batch.column(at) for at in range(len(NEEDED)))
            problems = planner.problems(ids, times, zones)
            places = [None if problem is None else order_of(problem) for problem in problems]
            yield pa.RecordBatch.from_arrays(
                [
                    *(pa.array(texts_of(one), pa.string()) for one in (ids, times, zones)),
                    pa.array(problems, pa.string()),
                    pa.array(places, pa.int32()),
                ],
                names=list(columns_of(_CHECKED)),
            )

    return rows.select(*NEEDED, *more).mapInArrow(check, _CHECKED)


def _check_rows(rows: DataFrame, planner: PlanRows, rules: tuple[Rule, ...], *, collect: bool) -> None:
    """Raise `ConfigurationError` for invalid rows, with their count and an example; one job, over ids and counts.

    It evaluates the conditions of the rules too: one that fails for a row fails here, before anything is written. With
    `collect` it only does that.
    """
    conditions = [F.expr(rule.where).alias(f"where_{at}") for at, rule in enumerate(rules) if rule.where is not None]
    if collect and not conditions:
        return
    checked = _checked(rows, planner, *conditions)
    first = F.when(F.col("problem").isNotNull(), F.struct("place", *(F.coalesce(one, F.lit("")) for one in NEEDED)))
    by_id = checked.groupBy("id").agg(F.count("*").alias("rows"), F.min(first).alias("first"))
    repeated = F.when(F.col("rows") > 1, F.col("id"))
    totals = (F.sum("rows"), F.count(repeated), F.min(repeated), F.min("first"))
    try:
        if conditions:  # an aggregation refuses conditions that are random; it is not run
            _ = rows.agg(*map(F.count_if, conditions)).schema
        count, repeats, example, found = by_id.agg(*totals).collect()[0]
    except PySparkException as error:
        ours = error_of(error)
        if ours is not None:
            raise ours from error
        if not conditions:
            raise
        names = ", ".join(repr(rule.name) for rule in rules if rule.where is not None)
        raise ConfigurationError(f"where of a rule ({names}): {reason_of(error)}") from error
    if collect:
        return
    if found is not None:
        wrong = checked.where(F.col("place") == found[0])
        row = wrong.orderBy(*(F.coalesce(one, F.lit("")) for one in NEEDED)).limit(1).collect()[0]
        raise invalid_rows(row["problem"], wrong.count(), count, {name: row[name] for name in NEEDED})
    if repeats:
        raise repeated_ids(repeats, example)


def refused_rows(things: DataFrame, rules: Rule | Iterable[Rule]) -> DataFrame:
    """Return the rows that `plan` leaves out with `on_error="collect"`: their `id` and the `reason`.

    Raises `ConfigurationError` for columns and rules that cannot be planned.
    """
    checked = check_rules(rules)
    return _refused(things, _check_table(things, checked)).select("id", "reason")


def _refused(things: DataFrame, planner: PlanRows) -> DataFrame:
    count = F.count("*").over(Window.partitionBy("id"))
    with_count = _checked(things, planner).withColumn("rows", F.when(F.col("id").isNotNull(), count))

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            reasons = [
                REPEATED if row["problem"] is None else reason_of_row(row["problem"], row) for row in batch.to_pylist()
            ]
            yield pa.RecordBatch.from_arrays([batch.column("id"), pa.array(reasons, pa.string())], ["id", "reason"])

    return with_count.where("problem IS NOT NULL OR rows > 1").mapInArrow(tell, _REFUSED)


def plan(
    things: DataFrame,
    rules: Rule | Iterable[Rule],
    *,
    previous: DataFrame | None = None,
    since: datetime | None = None,
    on_error: str = "fail",
    accept_changes: bool = False,
    tell: Told = None,
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

    With `on_error="collect"` invalid rows are left out: `refused_rows` has them, and what `previous` has planned for
    their ids stays as it is. If the payloads get or lose columns, `tell` is called with how many reminders are sent
    again, and why; if it is more than half of those that `previous` wants after `since`, `accept_changes` must be true.

    Deterministic: the same rows and rules give the same plan, whatever their order, the partitions and the session's
    time zone; planned again, everything is keep. The current time does not matter: `load` skips what is past.

    One job checks the rows at once, and evaluates the conditions of the rules. Raises `ConfigurationError` if columns
    are missing or have the wrong type, if a condition is not valid, or, unless rows are collected, if an id is not
    unique, or if an id, time or zone is null or invalid; `PlanChangedError` unless changes are accepted. The plan
    itself is computed when it is read, so do not store it where `previous` is read from.
    """
    checked = check_rules(rules)
    collect = check_choice(on_error, "on_error", ON_ERRORS) == "collect"
    planner = _check_table(things, checked)
    if previous is not None:
        check_schema(previous, _COLUMNS, "previous is not a plan")
    since_ms = None if since is None else timestamp(since, "since")
    _check_rows(things, planner, checked, collect=collect)
    last = None if previous is None else _last_of(previous)
    if last is not None:
        check_changes(_live(last, since_ms), planner.columns, accept=accept_changes, tell=tell)
    sources = None
    if collect:
        sources = _refused(things, planner).select(F.col("id").alias("source")).where("source IS NOT NULL").distinct()
    wanted = _reminders(things, planner, checked, only_valid=collect)
    if sources is not None:
        wanted = wanted.join(sources, "source", "left_anti")
        if last is not None:
            held = last.where("NOT cancelled").join(sources, "source", "left_semi")
            wanted = wanted.unionByName(held.drop("cancelled"))
    id = F.lit(None).cast("string").alias("id")
    wanted = wanted.select(id, *IN_EVERY_PAYLOAD, "payload", "retries")
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


def _reminders(rows: DataFrame, planner: PlanRows, rules: Sequence[Rule], *, only_valid: bool) -> DataFrame:
    """Return the reminders as source, rule, occurrence, due, payload and retries."""
    names = sorted(set().union(*planner.columns.values()))
    plain = [rows.schema[name].dataType.typeName() in _PLAIN for name in names]
    columns = [rows[f"`{name}`"] for name in names]
    values = [
        (one if is_plain else F.to_json(F.struct(one.alias("v")), _JSON)).alias(f"value_{at}")
        for at, (one, is_plain) in enumerate(zip(columns, plain, strict=True))
    ]
    conditional = [rule for rule in rules if rule.where is not None]
    chosen = [F.expr(str(rule.where)).alias(f"where_{at}") for at, rule in enumerate(conditional)]
    given = rows.select(*NEEDED, *values, *chosen)
    make = _maker(planner, names, plain, [rule.name for rule in conditional], only_valid=only_valid)
    return given.mapInArrow(make, _WANTED)


def _maker(
    planner: PlanRows, names: Sequence[str], plain: Sequence[bool], conditional: Sequence[str], *, only_valid: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does with its rows."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for given in batches:
            batch = given
            if only_valid:
                problems = planner.problems(*(batch.column(at) for at in range(len(NEEDED))))
                batch = batch.filter(pa.array([problem is None for problem in problems], pa.bool_()))
            id, time, zone, *rest = batch.columns
            texts = {
                name: json_column(name, column) if is_plain else _values_of(column)
                for name, is_plain, column in zip(names, plain, rest, strict=False)
            }
            chosen = {name: column.to_pylist() for name, column in zip(conditional, rest[len(names) :], strict=True)}
            wanted = planner.reminders(texts_of(id), zone.to_pylist(), time, texts, chosen)
            for part in batched(wanted, BATCH_ROWS):
                yield _batch_of(part)

    return make


def _values_of(column: Any) -> list[str]:
    return [NULL if text is None else text[_BEFORE:-_AFTER] for text in column.to_pylist()]


def _batch_of(wanted: Sequence[Any]) -> pa.RecordBatch:
    keys, payloads, retries = zip(*wanted, strict=True)
    schema = arrow_schema(_WANTED)
    columns = [*zip(*keys, strict=True), payloads, retries]
    due = schema.get_field_index("due")
    arrays = [
        pa.array(column, pa.int64()).cast(field.type) if at == due else pa.array(column, field.type)
        for at, (column, field) in enumerate(zip(columns, schema, strict=True))
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# Comparison with the previous plan


def _last_of(previous: DataFrame) -> DataFrame:
    """Return the last of each reminder in a plan, with whether it is cancelled."""
    # At the same revision a cancel wins, so that several plans in one table work as well.
    last = F.max(F.struct("revision", F.col("action").eqNullSafe("cancel").alias("cancelled"), "payload", "retries"))
    found = previous.groupBy(*IN_EVERY_PAYLOAD).agg(last.alias("last"))
    return found.select(*IN_EVERY_PAYLOAD, "last.payload", "last.retries", "last.cancelled")


def _live(last: DataFrame, since: int | None) -> dict[str, tuple[int, str]]:
    """Return of each rule how many reminders are wanted and not past, and the payload of one."""
    live = last.where("NOT cancelled")
    if since is not None:
        live = live.where(F.unix_micros("due") >= since * 1000)
    rows = live.groupBy("rule").agg(F.count("*"), F.max("payload")).collect()
    return {rule: (count, payload) for rule, count, payload in rows}


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
