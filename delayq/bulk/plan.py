"""Plans reminders without Spark: applies rules to the rows of a table, and compares the result with the last plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from delayq.bulk.files.arrow_tables import TableSource, table_of
from delayq.bulk.files.json_values import json_column
from delayq.bulk.load_options import ON_ERRORS, check_choice
from delayq.bulk.message_batches import spark_name
from delayq.bulk.message_ids import id_of
from delayq.bulk.option_columns import columns_of_rules
from delayq.bulk.plan_columns import (
    NEEDED,
    REPEATED,
    Told,
    check_changes,
    check_columns,
    invalid_rows,
    payload_columns,
    reason_of_row,
    repeated_ids,
)
from delayq.bulk.plan_rows import PlanRows, ReminderKey, Wanted, order_of, texts_of
from delayq.bulk.reminder_rules import Rule, check_rules
from delayq.errors import ConfigurationError
from delayq.values.times import timestamp

REFUSED = pa.schema({"id": pa.string(), "reason": pa.string()})
"""The columns of refused rows, as `delayq runs QUEUE RUN` has them."""


def _check_table(things: pa.Table, rules: tuple[Rule, ...]) -> PlanRows:
    """Return what plans a table; raises `ConfigurationError` for columns and rules that cannot be planned."""
    for rule in rules:
        if rule.where is not None:
            raise ConfigurationError(f"rule {rule.name!r}: a where is a condition of Spark: use `delayq spark plan`")
    check_columns([(field.name, spark_name(field.type), str(field.type)) for field in things.schema], rules)
    return PlanRows(rules, things.column_names)


def nested_column(things: pa.Table, rules: Iterable[Rule]) -> str | None:
    """Return a column that only Spark can write into a payload: a list, a map or a struct; None if there is none."""
    names = {name for rule in rules for name in payload_columns(things.column_names, rule)}
    return next((one.name for one in things.schema if one.name in names and pa.types.is_nested(one.type)), None)


def _refusals(things: pa.Table, rows: PlanRows, *, collect: bool) -> dict[int, tuple[str | None, str]]:
    """Return the id and reason of each invalid row, by its number; raises `ConfigurationError` unless `collect`."""
    problems = rows.problems(*(things.column(name) for name in NEEDED))
    ids = texts_of(things.column("id"))
    repeated = {id for id, count in Counter(ids).items() if count > 1 and id is not None}
    if not repeated and not any(problems):
        return {}
    texts = {name: texts_of(things.column(name)) for name in NEEDED}

    def example(row: int) -> dict[str, str | None]:
        return {name: column[row] for name, column in texts.items()}

    if collect:
        return {
            row: (id, REPEATED if problem is None else reason_of_row(problem, example(row)))
            for row, (id, problem) in enumerate(zip(ids, problems, strict=True))
            if problem is not None or id in repeated
        }
    if found := sorted({one for one in problems if one is not None}, key=order_of):
        wrong = [example(row) for row, problem in enumerate(problems) if problem == found[0]]
        first = min(wrong, key=lambda one: [text or "" for text in one.values()])
        raise invalid_rows(found[0], len(wrong), things.num_rows, first)
    raise repeated_ids(len(repeated), min(repeated))


def refused_rows(things: TableSource, rules: Rule | Iterable[Rule]) -> pa.Table:
    """Return the rows that `plan` leaves out with `on_error="collect"`: their `id` and the `reason`.

    Raises `ConfigurationError` for columns and rules that cannot be planned.
    """
    table = table_of(things, "things")
    refused = _refusals(table, _check_table(table, check_rules(rules)), collect=True)
    return pa.Table.from_pylist([{"id": id, "reason": reason} for id, reason in refused.values()], REFUSED)


_COLUMNS: dict[str, pa.DataType] = {
    "id": pa.string(),
    "source": pa.string(),
    "rule": pa.string(),
    "occurrence": pa.int32(),
    "due": pa.timestamp("us", tz="UTC"),
    "payload": pa.string(),
    "revision": pa.int32(),
    "action": pa.string(),
    "retries": pa.int32(),
}
PLAN = pa.schema(_COLUMNS)
"""The columns of a plan, as on Spark: see `delayq.spark.plan`."""


class _Reminder(NamedTuple):
    """A row of a plan."""

    id: str
    key: ReminderKey
    payload: str
    revision: int
    action: str
    retries: int


def plan(
    things: TableSource,
    rules: Rule | Iterable[Rule],
    *,
    previous: TableSource | None = None,
    since: datetime | None = None,
    on_error: str = "fail",
    accept_changes: bool = False,
    tell: Told = None,
) -> pa.Table:
    """Return the reminders of a table's rows: what `delayq.spark.plan` returns for the same rows, even the payloads.

    Tables are those of Arrow, what gives an Arrow stream, such as a DataFrame, and paths of files. See there for the
    columns and parameters. The order is that of the rows and rules. All is in memory: above a million rows, Spark is
    faster. A `where`, and columns of a nested type such as lists, need Spark.

    Raises `ConfigurationError` if a rule needs Spark, if columns are missing or have the wrong type, and, unless
    `on_error` is "collect", if an id is not unique, or if an id, time or zone is null or invalid. Raises
    `PlanChangedError` unless `accept_changes`.
    """
    checked = check_rules(rules)
    collect = check_choice(on_error, "on_error", ON_ERRORS) == "collect"
    table = table_of(things, "things")
    rows = _check_table(table, checked)
    since_micros = None if since is None else timestamp(since, "since") * 1000
    before = None if previous is None else list(_rows_of(table_of(previous, "previous")))
    refused = _refusals(table, rows, collect=collect)
    if refused:
        table = table.filter(pa.array([row not in refused for row in range(table.num_rows)], pa.bool_()))
    last = _last_of(before or ())
    check_changes(_live(last, since_micros), rows.columns, accept=accept_changes, tell=tell)
    texts = {name: json_column(name, table.column(name)) for name in sorted(set().union(*rows.columns.values()))}
    sources: list[Any] = table.column("id").cast(pa.string()).to_pylist()
    zones: list[Any] = table.column("zone").to_pylist()
    wanted = rows.reminders(sources, zones, table.column("time"), texts)
    reminders: Iterable[_Reminder]
    if before is None:
        reminders = (_Reminder(id_of(*key, 0), key, payload, 0, "new", retries) for key, payload, retries in wanted)
    else:
        held = _held(last, {id for id, _ in refused.values() if id is not None})
        reminders = _compare([*wanted, *held], before, last, since_micros)
    return _with_options(_table(reminders), checked)


def _with_options(planned: pa.Table, rules: tuple[Rule, ...]) -> pa.Table:
    """Add the columns of the options that the rules have; cancels have none."""
    for name, texts in columns_of_rules({rule.name: rule.options for rule in rules}).items():
        names: list[Any] = planned["rule"].to_pylist()
        actions = planned["action"].to_pylist()
        cells = [None if action == "cancel" else texts.get(rule) for rule, action in zip(names, actions, strict=True)]
        planned = planned.append_column(name, pa.array(cells, pa.string()))
    return planned


_Last = dict[ReminderKey, tuple[int, bool, str, int]]
"""The last of each reminder in a plan: revision, whether it is cancelled, payload and retries."""


def _last_of(before: Iterable[_Reminder]) -> _Last:
    last: _Last = {}
    for one in before:
        # At the same revision a cancel wins, so that several plans in one table work as well.
        known = (one.revision, one.action == "cancel", one.payload, one.retries)
        last[one.key] = max(known, last.get(one.key, known))
    return last


def _live(last: _Last, since: int | None) -> dict[str, tuple[int, str]]:
    """Return of each rule how many reminders are wanted and not past, and the payload of one."""
    found: dict[str, tuple[int, str]] = {}
    for key, (_, cancelled, payload, _) in last.items():
        if not cancelled and (since is None or key.due >= since):
            count, example = found.get(key.rule, (0, ""))
            found[key.rule] = count + 1, max(example, payload)
    return found


def _held(last: _Last, sources: set[str]) -> Iterator[Wanted]:
    """Yield the reminders of rows that are refused now: they stay as they are planned."""
    for key, (_, cancelled, payload, retries) in last.items():
        if key.source in sources and not cancelled:
            yield key, payload, retries


def _compare(
    wanted: Iterable[Wanted], before: Sequence[_Reminder], last: _Last, since: int | None
) -> Iterator[_Reminder]:
    """Yield the wanted reminders with their revisions and actions, and then the cancels."""
    kept: set[ReminderKey] = set()
    for key, payload, retries in wanted:
        revision, cancelled, planned, _ = last.get(key, (-1, True, "", 0))
        if not cancelled and planned == payload:
            kept.add(key)
            yield _Reminder(id_of(*key, revision), key, payload, revision, "keep", retries)
        else:
            yield _Reminder(id_of(*key, revision + 1), key, payload, revision + 1, "new", retries)
    for one in before:
        over = one.key in kept and one.revision == last[one.key][0]
        if not (over or (since is not None and one.key.due < since)):
            yield one._replace(action="cancel")


def _rows_of(previous: pa.Table) -> Iterator[_Reminder]:
    _check_plan(previous)
    columns = {name: previous.column(name).to_pylist() for name in PLAN.names if name != "due"}
    columns["due"] = previous.column("due").cast(PLAN.field("due").type).cast(pa.int64()).to_pylist()
    for row in zip(*(columns[name] for name in PLAN.names), strict=True):
        id, source, rule, occurrence, due, payload, revision, action, retries = row
        yield _Reminder(id, ReminderKey(source, rule, occurrence, due), payload, revision, action, retries)


def _check_plan(table: pa.Table) -> None:
    for field in PLAN:
        if field.name not in table.column_names:
            raise ConfigurationError(f"previous is not a plan: its column {field.name!r} is missing")
        kind = table.schema.field(field.name).type
        fits = (
            isinstance(kind, pa.TimestampType) and kind.tz is not None
            if field.name == "due"
            else spark_name(kind) == spark_name(field.type)
        )
        if not fits:
            raise ConfigurationError(f"previous is not a plan: its column {field.name!r} is {kind}, not {field.type}")


def _table(rows: Iterable[_Reminder]) -> pa.Table:
    columns: list[list[Any]] = [[] for _ in PLAN]
    for id, key, *rest in rows:
        for column, value in zip(columns, (id, *key, *rest), strict=True):
            column.append(value)
    due = PLAN.names.index("due")
    arrays = [
        pa.array(values, pa.int64()).cast(field.type) if at == due else pa.array(values, field.type)
        for at, (values, field) in enumerate(zip(columns, PLAN, strict=True))
    ]
    return pa.Table.from_arrays(arrays, schema=PLAN)
