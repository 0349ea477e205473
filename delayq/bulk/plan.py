"""Plans reminders without Spark: applies rules to the rows of a table, and compares the result with the last plan.

Values become JSON in the very text that Spark's `to_json` gives: plans are compared by their payloads.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute

from delayq.bulk.files.arrow_tables import TableSource, table_of
from delayq.bulk.message_batches import spark_name
from delayq.bulk.message_ids import id_of
from delayq.bulk.option_columns import columns_of_rules
from delayq.bulk.plan_columns import (
    NEEDED,
    NOT_IANA,
    WALL_CLOCK,
    check_columns,
    invalid_rows,
    payload_columns,
    repeated_ids,
    zone_hint,
)
from delayq.bulk.reminder_rules import Rule, RuleTimes, check_rules, from_wall, zone_of
from delayq.errors import ConfigurationError
from delayq.values.times import timestamp

NULL = "null"
_START = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC, or a wall clock
_ESCAPES: dict[int, str] = {
    **{code: f"\\u{code:04X}" for code in range(32)},
    **str.maketrans({'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}),
}
_NOT_A_NUMBER = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_FIXED = (-3, 7)
"""The decimal exponents for which Java writes a number without one: from the first, below the second."""


def json_text(text: str) -> str:
    """Return a text in quotes."""
    return f'"{text.translate(_ESCAPES)}"'


def instant_text(microseconds: int) -> str:
    """Return an instant, in microseconds since 1970, as ISO 8601 in UTC with six digits; without quotes."""
    return f"{(_START + timedelta(microseconds=microseconds)).isoformat(timespec='microseconds')}Z"


def json_column(name: str, column: Any) -> list[str]:
    """Return the values of a column as JSON; raises `ConfigurationError` for a type that only Spark can write."""
    kind = column.type
    for fits, casts, convert in _KINDS:
        if fits(kind):
            for cast in casts:
                column = column.cast(cast)
            return [NULL if value is None else convert(value) for value in column.to_pylist()]
    raise ConfigurationError(
        f"column {name!r} is {kind}, which only Spark can put into a payload: use `delayq spark plan`, or list the"
        " other columns as the payload of the rule"
    )


def _java_number(text: str) -> str:
    """Write the shortest digits of a floating-point number as Java does."""
    if text in _NOT_A_NUMBER:
        return _NOT_A_NUMBER[text]
    number = Decimal(text)
    exponent = number.adjusted() if number else 0
    if _FIXED[0] <= exponent < _FIXED[1]:
        fixed = f"{number:f}"
        return fixed if "." in fixed else f"{fixed}.0"
    sign, digits, _ = number.as_tuple()
    rest = "".join(map(str, digits[1:])).rstrip("0") or "0"
    return f"{'-' * sign}{digits[0]}.{rest}E{exponent}"


_KINDS: list[tuple[Callable[[pa.DataType], bool], list[pa.DataType], Callable[[Any], str]]] = [
    (lambda kind: spark_name(kind) == "string", [], json_text),
    (pa.types.is_boolean, [], lambda value: "true" if value else "false"),
    (pa.types.is_integer, [], str),
    (pa.types.is_floating, [pa.string()], _java_number),
    (pa.types.is_decimal, [], str),
    (
        lambda kind: spark_name(kind) == "timestamp",
        [pa.timestamp("us", tz="UTC"), pa.int64()],
        lambda microseconds: f'"{instant_text(microseconds)}"',
    ),
    (pa.types.is_timestamp, [pa.timestamp("us")], lambda at: f'"{at.isoformat(timespec="microseconds")}"'),
    (pa.types.is_date, [pa.date32()], lambda day: f'"{day.isoformat()}"'),
    (lambda kind: spark_name(kind) == "binary", [], lambda value: f'"{base64.b64encode(value).decode()}"'),
    (pa.types.is_null, [], str),
]
"""Types of columns: what they are cast to, one after the other, and how their values are written."""


_WALL_CLOCK = re.compile(WALL_CLOCK, re.ASCII)


def check_table(things: pa.Table, rules: tuple[Rule, ...]) -> None:
    """Raise `ConfigurationError` for columns or rows that cannot be planned, with an example."""
    check_columns([(field.name, spark_name(field.type), str(field.type)) for field in things.schema], rules)
    values: list[list[Any]] = [things.column(name).to_pylist() for name in NEEDED]
    texts: list[list[Any]] = [things.column(name).cast(pa.string()).to_pylist() for name in NEEDED]
    is_text = spark_name(things.schema.field("time").type) == "string"
    found: dict[str, list[int]] = {}
    for row, (id, time, zone) in enumerate(zip(*values, strict=True)):
        for problem in _problems(id, time, zone, is_text=is_text):
            found.setdefault(problem, []).append(row)
    for problem in ("id is null", "time is null", "zone is null", "time", "zone"):
        if rows := found.get(problem):
            row = min(rows, key=lambda one: [text[one] or "" for text in texts])
            example = {name: text[row] for name, text in zip(NEEDED, texts, strict=True)}
            raise invalid_rows(problem, len(rows), things.num_rows, example, zone_hint(example["zone"]))
    repeated = sorted(id for id, count in Counter(values[0]).items() if count > 1)
    if repeated:
        raise repeated_ids(len(repeated), str(repeated[0]))


def _problems(id: object, time: Any, zone: str | None, *, is_text: bool) -> Iterator[str]:
    for name, value in (("id", id), ("time", time), ("zone", zone)):
        if value is None:
            yield f"{name} is null"
    if is_text and time is not None and _wall(time) is None:
        yield "time"
    if zone is not None and not _is_zone(zone):
        yield "zone"


def _is_zone(name: str) -> bool:
    if name in NOT_IANA:
        return False
    try:
        zone_of(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def times_of(things: pa.Table) -> list[int]:
    """Return the instants of the rows, in microseconds since 1970; the rows are checked."""
    column: Any = things.column("time")
    kind = spark_name(column.type)
    if kind == "timestamp":
        instants: list[Any] = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        return instants
    zones: Sequence[Any] = things.column("zone").to_pylist()
    walls: Sequence[Any]
    if kind == "string":
        texts: Sequence[Any] = column.to_pylist()
        walls = [_wall(text) for text in texts]
    else:
        walls = column.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
    return [from_wall(wall, zone) for wall, zone in zip(walls, zones, strict=True)]


def _wall(text: str) -> int | None:
    """Return a wall-clock time in microseconds since 1970, None if it is not one."""
    found = _WALL_CLOCK.fullmatch(text)
    if not found:
        return None
    *parts, fraction = found.groups()
    year, month, day, hour, minute, second = (int(part or 0) for part in parts)
    try:
        at = datetime(year, month, day, hour, minute, second, int((fraction or "").ljust(6, "0")))  # noqa: DTZ001
    except ValueError:
        return None
    return (at - _START) // timedelta(microseconds=1)


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
    things: TableSource,
    rules: Rule | Iterable[Rule],
    *,
    previous: TableSource | None = None,
    since: datetime | None = None,
) -> pa.Table:
    """Return the reminders of a table's rows: what `delayq.spark.plan` returns for the same rows, even the payloads.

    See there for the columns, `previous` and `since`. A table is the path of a file, or whatever has
    `__arrow_c_stream__`, such as those of pandas, Polars, DuckDB and PyArrow. The order is that of the rows and rules.
    All is in memory: above a million rows, Spark is faster. A `where`, and columns of a nested type such as lists, need
    Spark.

    Raises `ConfigurationError` if a rule needs Spark, if columns are missing or have the wrong type, if an id is not
    unique, or if an id, time or zone is null or invalid.
    """
    checked = check_rules(rules)
    for rule in checked:
        if rule.where is not None:
            raise ConfigurationError(f"rule {rule.name!r}: a where is a condition of Spark: use `delayq spark plan`")
    table = table_of(things, "things")
    check_table(table, checked)
    since_micros = None if since is None else timestamp(since, "since") * 1000
    wanted = _reminders(table, checked)
    rows: Iterable[_Reminder]
    if previous is None:
        rows = (_Reminder(id_of(*key, 0), key, payload, 0, "new", retries) for key, payload, retries in wanted)
    else:
        rows = _compare(wanted, list(_rows_of(table_of(previous, "previous"))), since_micros)
    return _with_options(_table(rows), checked)


def _with_options(planned: pa.Table, rules: tuple[Rule, ...]) -> pa.Table:
    """Add the columns of the options that the rules have; cancels have none."""
    for name, texts in columns_of_rules({rule.name: rule.options for rule in rules}).items():
        names: list[Any] = planned["rule"].to_pylist()
        actions = planned["action"].to_pylist()
        cells = [None if action == "cancel" else texts.get(rule) for rule, action in zip(names, actions, strict=True)]
        planned = planned.append_column(name, pa.array(cells, pa.string()))
    return planned


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
        yield _Reminder(id, _Key(source, rule, occurrence, due), payload, revision, action, retries)


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
