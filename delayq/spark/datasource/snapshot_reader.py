"""Reads the current state of a queue on Spark: see `delayq.bulk.reading.snapshot`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delayq.bulk.reading.snapshot import QueueSnapshot, SnapshotOptions, SnapshotRange
from delayq.errors import ConfigurationError
from delayq.spark.datasource.compat import Filter
from delayq.values.times import timestamp


@dataclass(frozen=True)
class SnapshotPartition(InputPartition):
    """What one task reads."""

    part: SnapshotRange


class SnapshotReader(DataSourceReader):
    """Reads the messages of a queue with the columns of SNAPSHOT, with the guarantees of a `QueueSnapshot`."""

    def __new__(cls, options: SnapshotOptions | None = None) -> Self:
        """Create a reader with `pushFilters` only if requested: without its own setting, Spark refuses such readers."""
        pushes = options is not None and options.pushdown
        return super().__new__(_PushdownSnapshotReader if pushes else cls)  # type: ignore[return-value]  # a subclass

    def __init__(self, options: SnapshotOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the queue, or each of its partitions; raises `ConfigurationError` if there is no such queue."""
        return [SnapshotPartition(part) for part in QueueSnapshot(self._options).ranges()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition."""
        if isinstance(partition, SnapshotPartition):  # else Spark's stand-in for an empty list
            yield from QueueSnapshot(self._options).read(partition.part)


class _PushdownSnapshotReader(SnapshotReader):
    """Reads only what the query's filters on states and due times allow."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Narrow the read; Spark applies all filters again, so it need not be exact."""
        self._options = narrowed(self._options, filters)
        return filters


def narrowed(options: SnapshotOptions, filters: Iterable[Filter]) -> SnapshotOptions:
    """Return options that exclude only what no filter can match; they may still include too much."""
    for one in filters:
        match one:
            case datasource.EqualTo(attribute=("state",), value=value):
                options = _with_states(options, [value])
            case datasource.In(attribute=("state",), value=values):
                options = _with_states(options, values)
            case datasource.EqualTo(attribute=("due",), value=value):
                options = _until(_since(options, value), value)
            case datasource.GreaterThan() | datasource.GreaterThanOrEqual() if one.attribute == ("due",):
                options = _since(options, one.value)
            case datasource.LessThan() | datasource.LessThanOrEqual() if one.attribute == ("due",):
                options = _until(options, one.value)
    return options


def _with_states(options: SnapshotOptions, allowed: Iterable[Any]) -> SnapshotOptions:
    allowed = set(allowed)
    return replace(options, states=tuple(state for state in options.states if state in allowed))


def _since(options: SnapshotOptions, value: Any) -> SnapshotOptions:
    at = _milliseconds(value)
    return options if at is None else replace(options, due_from=max(at - 1, options.due_from or 0))


def _until(options: SnapshotOptions, value: Any) -> SnapshotOptions:
    at = _milliseconds(value)
    if at is None:
        return options
    return replace(options, due_to=min(at + 1, at + 1 if options.due_to is None else options.due_to))


def _milliseconds(value: Any) -> int | None:
    """Return an instant, rounded up; None for other values and times that no message can be due at."""
    try:
        return timestamp(value) if isinstance(value, datetime) else None
    except ConfigurationError:
        return None
