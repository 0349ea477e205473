"""Rows of a table become reminders: their checks, times and payloads, by the same code with Spark and without.

On Spark each task runs it over its rows, so that zones are those of Python's time zone data everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute

from delayq.bulk.files.json_values import instant_text, json_text
from delayq.bulk.message_batches import spark_name
from delayq.bulk.plan_columns import PROBLEMS, WALL_CLOCK, payload_columns
from delayq.bulk.reminder_rules import FIRST, LAST, Rule, RuleTimes, from_wall, is_zone
from delayq.errors import ConfigurationError

pc: Any = pyarrow.compute
"""Untyped: its stubs lack plain values as arguments."""

_MICROS = pa.timestamp("us")
_START = datetime(1970, 1, 1)  # noqa: DTZ001 - UTC, or a wall clock
_WALL_CLOCK = re.compile(WALL_CLOCK, re.ASCII)
_ORDER = tuple(PROBLEMS)


class ReminderKey(NamedTuple):
    """What tells one reminder from another; `due` is in microseconds since 1970."""

    source: str
    rule: str
    occurrence: int
    due: int


Wanted = tuple[ReminderKey, str, int]
"""The key, payload and retries of a reminder."""


def times_of(column: Any) -> tuple[list[int | None], bool]:
    """Return the times of rows in microseconds since 1970, None if null or invalid, and whether they are instants."""
    kind = spark_name(column.type)
    if kind == "string":
        return [None if text is None else _wall(text) for text in column.to_pylist()], False
    try:
        times: list[int | None] = column.cast(_MICROS, safe=False).cast(pa.int64()).to_pylist()
    except pa.ArrowInvalid as error:
        raise ConfigurationError("column 'time' has a time outside of the years 1 to 9999") from error
    return times, kind == "timestamp"


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


def texts_of(column: Any) -> list[str | None]:
    """Return the values of an id, a time or a zone as texts, for errors."""
    if pa.types.is_date(column.type) or not pa.types.is_temporal(column.type):
        texts: list[str | None] = column.cast(pa.string()).to_pylist()
        return texts
    micros: list[int | None] = column.cast(_MICROS, safe=False).cast(pa.int64()).to_pylist()
    end = "Z" if spark_name(column.type) == "timestamp" else ""
    return [None if at is None else _text(at).removesuffix("Z") + end for at in micros]


def _text(micros: int) -> str:
    return instant_text(micros) if FIRST <= micros <= LAST else str(micros)


class PlanRows:
    """The checks and the reminders of a table's rows, by rules that are checked; it can be sent to other processes."""

    def __init__(self, rules: Sequence[Rule], names: Iterable[str]) -> None:
        """`names` are the columns of the table."""
        listed = list(names)
        self._rules = [
            (rule.name, rule.retries, RuleTimes(rule), json_text(rule.name), payload_columns(listed, rule))
            for rule in rules
        ]
        bounds = [times.bounds for _, _, times, _, _ in self._rules]
        self._bounds = max(first for first, _ in bounds), min(last for _, last in bounds)

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns that go into the payloads of each rule."""
        return {name: columns for name, _, _, _, columns in self._rules}

    def problems(self, ids: Any, times: Any, zones: Any) -> list[str | None]:
        """Return the first of PROBLEMS that each row has, None if it is valid; ids may repeat."""
        micros, _ = times_of(times)
        first, last = self._bounds
        found: list[str | None] = []
        rows = zip(ids.is_valid().to_pylist(), times.is_valid().to_pylist(), zones.to_pylist(), micros, strict=True)
        for has_id, has_time, zone, time in rows:
            found.append(
                "id is null"
                if not has_id
                else "time is null"
                if not has_time
                else "zone is null"
                if zone is None
                else "time"
                if time is None
                else "range"
                if not first <= time <= last
                else None
                if is_zone(zone)
                else "zone"
            )
        return found

    def reminders(
        self,
        sources: Iterable[Any],
        zones: Iterable[Any],
        times: Any,
        texts: Mapping[str, Sequence[str]],
        chosen: Mapping[str, Sequence[bool | None]] | None = None,
    ) -> Iterator[Wanted]:
        """Yield the reminders of valid rows.

        `texts` are the columns of payloads as JSON. `chosen` says, for the rules that have conditions, of which rows
        they are true.
        """
        micros, is_instant = cast("tuple[list[int], bool]", times_of(times))
        conditions = chosen or {}
        timed = [
            (name, retries, rule, text, [(json_text(one), texts[one]) for one in columns], conditions.get(name))
            for name, retries, rule, text, columns in self._rules
        ]
        for row, (source, zone, given) in enumerate(zip(sources, zones, micros, strict=True)):
            time = given if is_instant else from_wall(given, zone)
            source_text = json_text(source)
            for name, retries, rule, rule_text, columns, condition in timed:
                if condition is not None and not condition[row]:
                    continue
                values = "".join(f",{one}:{column[row]}" for one, column in columns)
                for occurrence, due in enumerate(rule.of(time, zone)):
                    head = f'"source":{source_text},"rule":{rule_text},"occurrence":{occurrence}'
                    payload = f'{{{head},"due":"{instant_text(due)}"{values}}}'
                    yield ReminderKey(source, name, occurrence, due), payload, retries


def order_of(problem: str) -> int:
    """Return the place of one of PROBLEMS in the order of the checks."""
    return _ORDER.index(problem)
