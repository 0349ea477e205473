"""Checks the rows of a table to be planned, and reads their times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from delayq.bulk.files.arrow_types import spark_name
from delayq.bulk.planning.plan_columns import (
    NEEDED,
    NOT_IANA,
    WALL_CLOCK,
    check_columns,
    invalid_rows,
    repeated_ids,
    zone_hint,
)
from delayq.bulk.planning.reminder_rules import Rule
from delayq.bulk.planning.reminder_times import from_wall, zone_of

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock
_MICROSECOND = timedelta(microseconds=1)
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
    return (at - _EPOCH) // _MICROSECOND
