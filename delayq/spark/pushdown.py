"""What the filters of a query say about which messages have to be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from delayq.clock import timestamp
from delayq.errors import ConfigurationError
from delayq.spark.options import SnapshotOptions


def narrowed(options: SnapshotOptions, filters: Iterable[Filter]) -> SnapshotOptions:
    """Return options that leave out what no filter lets through; they may leave in more than that."""
    for one in filters:
        match one:
            case EqualTo(attribute=("state",), value=value):
                options = _of_states(options, [value])
            case In(attribute=("state",), value=values):
                options = _of_states(options, values)
            case EqualTo(attribute=("due",), value=value):
                options = _until(_since(options, value), value)
            case GreaterThan() | GreaterThanOrEqual() if one.attribute == ("due",):
                options = _since(options, one.value)
            case LessThan() | LessThanOrEqual() if one.attribute == ("due",):
                options = _until(options, one.value)
    return options


def _of_states(options: SnapshotOptions, wanted: Iterable[Any]) -> SnapshotOptions:
    kept = set(wanted)
    return replace(options, states=tuple(state for state in options.states if state in kept))


def _since(options: SnapshotOptions, value: Any) -> SnapshotOptions:
    at = _milliseconds(value)
    if at is None:
        return options
    return replace(options, due_from=max(at - 1, options.due_from or 0))


def _until(options: SnapshotOptions, value: Any) -> SnapshotOptions:
    at = _milliseconds(value)
    if at is None:
        return options
    return replace(options, due_to=min(at + 1, at + 1 if options.due_to is None else options.due_to))


def _milliseconds(value: Any) -> int | None:
    """Return an instant, rounded up; None for what is none, or is beyond what a message can be due at."""
    try:
        return timestamp(value) if isinstance(value, datetime) else None
    except ConfigurationError:
        return None
