"""Plans reminders without Spark: applies rules to the rows of a table, and compares the result with the last plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute

from delayq.bulk.planning.json_texts import instant_text, json_column, json_text
from delayq.bulk.planning.message_ids import id_of
from delayq.bulk.planning.plan_columns import payload_columns
from delayq.bulk.planning.plan_rows import check_table, times_of
from delayq.bulk.planning.reminder_rules import Rule, check_rules
from delayq.bulk.planning.reminder_times import RuleTimes
from delayq.errors import ConfigurationError
from delayq.values.times import timestamp

pc: Any = pyarrow.compute
"""Untyped: its stubs lack plain values as arguments."""

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


class _Key(NamedTuple):
    """What tells one reminder from another; `due` is in microseconds since 1970."""

    source: str
    rule: str
    occurrence: int
    due: int


class _Reminder(NamedTuple):
    """A row of a plan."""

    id: str
    key: _Key
    payload: str
    revision: int
    action: str
    retries: int


def plan(
    things: pa.Table, rules: Rule | Iterable[Rule], *, previous: pa.Table | None = None, since: datetime | None = None
) -> pa.Table:
    """Return the reminders of a table's rows: what `delayq.spark.plan` returns for the same rows, even the payloads.

    See there for the columns, `previous` and `since`. The order is that of the rows and rules. All is in memory:
    above a million rows, Spark is faster. A `where`, and columns of a nested type such as lists, need Spark.

    Raises `ConfigurationError` if a rule needs Spark, if columns are missing or have the wrong type, if an id is not
    unique, or if an id, time or zone is null or invalid.
    """
    checked = check_rules(rules)
    for rule in checked:
        if rule.where is not None:
            raise ConfigurationError(f"rule {rule.name!r}: a where is a condition of Spark: use `delayq spark plan`")
    check_table(things, checked)
    since_micros = None if since is None else timestamp(since, "since") * 1000
    wanted = _reminders(things, checked)
    if previous is None:
        return _table(_Reminder(_new_id(key, 0), key, payload, 0, "new", retries) for key, payload, retries in wanted)
    return _table(_compare(wanted, list(_rows_of(previous)), since_micros))


def _reminders(things: pa.Table, rules: tuple[Rule, ...]) -> Iterator[tuple[_Key, str, int]]:
    """Yield the key, payload and retries of each reminder."""
    names = things.column_names
    carried = {rule.name: payload_columns(names, rule) for rule in rules}
    texts = {name: json_column(name, things.column(name)) for name in set().union(*carried.values())}
    fields = {rule.name: [(json_text(name), texts[name]) for name in carried[rule.name]] for rule in rules}
    timed = [(rule, RuleTimes(rule), json_text(rule.name), fields[rule.name]) for rule in rules]
    sources: list[Any] = things.column("id").cast(pa.string()).to_pylist()
    zones: list[Any] = things.column("zone").to_pylist()
    for row, (source, zone, time) in enumerate(zip(sources, zones, times_of(things), strict=True)):
        source_text = json_text(source)
        for rule, times, rule_text, columns in timed:
            values = "".join(f",{name}:{column[row]}" for name, column in columns)
            for occurrence, due in enumerate(times.of(time, zone)):
                head = (
                    f'"source":{source_text},"rule":{rule_text},"occurrence":{occurrence},"due":"{instant_text(due)}"'
                )
                yield _Key(source, rule.name, occurrence, due), f"{{{head}{values}}}", rule.retries


def _new_id(key: _Key, revision: int) -> str:
    return id_of(*key, revision)


def _compare(
    wanted: Iterable[tuple[_Key, str, int]], before: Sequence[_Reminder], since: int | None
) -> Iterator[_Reminder]:
    """Yield the wanted reminders with their revisions and actions, and then the cancels."""
    last: dict[_Key, tuple[int, bool, str]] = {}
    for one in before:
        # At the same revision a cancel wins, so that several plans in one table work as well.
        known = (one.revision, one.action == "cancel", one.payload)
        last[one.key] = max(known, last.get(one.key, known))
    kept: set[_Key] = set()
    for key, payload, retries in wanted:
        revision, cancelled, planned = last.get(key, (-1, True, ""))
        if not cancelled and planned == payload:
            kept.add(key)
            yield _Reminder(_new_id(key, revision), key, payload, revision, "keep", retries)
        else:
            yield _Reminder(_new_id(key, revision + 1), key, payload, revision + 1, "new", retries)
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
        yield _Reminder(id, _Key(source, rule, occurrence, due), payload, revision, action, retries)


def _check_plan(table: pa.Table) -> None:
    for field in PLAN:
        if field.name not in table.column_names:
            raise ConfigurationError(f"previous is not a plan: its column {field.name!r} is missing")
        kind = table.schema.field(field.name).type
        fits = isinstance(kind, pa.TimestampType) and kind.tz is not None if field.name == "due" else kind == field.type
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
