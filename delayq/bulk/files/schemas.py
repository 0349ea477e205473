"""Columns of the tables that delayq reads and writes on Spark, as Spark DDL and in Arrow.

Times are `TIMESTAMP`: instants in microseconds, independent of the session's time zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delayq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MESSAGES = "id STRING, due TIMESTAMP, payload STRING, retries INT, headers MAP<STRING,STRING>"
"""What is written to a queue; `id` and `payload` are required, and `payload` may also be `BINARY`.

Besides these, the options of a send may be columns, such as `name` or `priority`: see `delayq.bulk.option_columns`.

A message without `due`, or with null, is due at once; one without `retries` has three. The payload is stored unchanged:
for a queue with the JSON codec it must be JSON text, for example from `to_json`.
"""

EVENTS = (
    "log_offset BIGINT, entry_index INT, event_at TIMESTAMP, kind STRING, id STRING, due TIMESTAMP, attempt INT,"
    " token BIGINT, retries_left INT, holder STRING, run STRING, reason STRING, error STRING"
)
"""The event log and its archive: one row per message and event.

`log_offset` (the log entry) and `entry_index` (the message's position in it) identify a row. Columns that a kind of
event does not have are null; `id` is null for `purged`, `paused`, `resumed` and `audit` only. The lateness of a
delivery is `event_at - due`. No name is a reserved word of SQL, in Spark or elsewhere.
"""
LIFE_STARTS = ("sent", "replaced", "redriven")
"""The kinds of events that begin a new life of an id."""
OF_ENTRIES = ("dead_purged", "dead_trimmed")
"""The kinds of events of the dead letter alone: a living message with the id stays as it is."""
IMPORTED = "dead_imported"
"""The kind of event of a message that an import has put into the dead letter: it had its life in another queue."""
KILLED = "killed"
"""The reason of a message that was moved to the dead letter by hand while it waited."""
SPILLED, RESTORED = "spilled", "restored"
"""The kinds of events of a message that goes to the cold tier, and of one that comes back: it waits there, too."""
COLD_DROPPED = "cold_dropped"
"""The kind of event of a message that does not come back from it: a living message with the id stays as it is."""
NOTES = ("missed", "audit", "edited")
"""The kinds of events that move no message: they say why its next event happened, or who has acted."""

SNAPSHOT = (
    "id STRING, state STRING, due TIMESTAMP, deadline TIMESTAMP, retries_left INT, attempt INT, token BIGINT,"
    " holder STRING, reason STRING, error STRING, died TIMESTAMP, payload_size INT, payload BINARY,"
    " headers MAP<STRING,STRING>"
)
"""The current state of a queue: one row per message; `payload` is null unless requested."""

CLAIMED = (
    "id STRING, name STRING, due TIMESTAMP, payload BINARY, headers MAP<STRING,STRING>, attempt INT, retries_left INT,"
    " expires TIMESTAMP, token BIGINT"
)
"""The messages that a stream consumes, one row each; `id` and `token` are the right to settle one."""

PLAN = (
    "id STRING, source STRING, rule STRING, occurrence INT, due TIMESTAMP, payload STRING, revision INT,"
    " action STRING, retries INT"
)
"""Planned reminders: `id` is the message id, `action` is new, keep or cancel, `retries` comes from the rule."""


def columns_of(ddl: str) -> dict[str, str]:
    """Return the columns of one of these tables as name → type, in lower case like `DataFrame.dtypes`."""
    return dict(column.split(" ") for column in ddl.lower().split(", "))


def check_schema(table: DataFrame, columns: Mapping[str, str], problem: str) -> None:
    """Raise `ConfigurationError`, which begins with `problem`, unless a table has these columns of these types."""
    check_types(dict(table.dtypes), columns, problem)


def check_types(kinds: Mapping[str, str], columns: Mapping[str, str], problem: str) -> None:
    """Do the same for the types of a table by column."""
    for name, kind in columns.items():
        if kinds.get(name) != kind:
            actual = f"is {kinds[name]}" if name in kinds else "is missing"
            raise ConfigurationError(f"{problem}: its column {name!r} {actual} and must be {kind}")


_INSTANT = pa.timestamp("us", tz="UTC")
_ARROW_TYPES: dict[str, pa.DataType] = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "timestamp": _INSTANT,
    "binary": pa.binary(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
BATCH_ROWS = 10_000
"""Approximate rows of one Arrow batch; larger batches are no faster."""


def arrow_schema(ddl: str) -> pa.Schema:
    """Return the Arrow schema of one of these tables; Spark requires an exact match."""
    return pa.schema({name: _ARROW_TYPES[kind] for name, kind in columns_of(ddl).items()})


def record_batch(cells: Mapping[str, list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns as a batch: times are milliseconds since 1970, texts may be UTF-8."""
    return pa.RecordBatch.from_arrays([_array(cells[field.name], field.type) for field in schema], schema=schema)


def _array(cells: list[Any], kind: pa.DataType) -> pa.Array[Any]:
    if kind == _INSTANT:
        return pa.array(cells, pa.timestamp("ms", tz="UTC")).cast(_INSTANT)
    if kind != pa.string():
        return pa.array(cells, kind)
    stored = pa.array(cells, pa.binary())
    try:
        return stored.cast(kind)
    except pa.ArrowInvalid:  # invalid bytes are replaced, as wherever errors are shown
        return pa.array([cell and cell.decode("utf-8", "replace") for cell in stored.to_pylist()], kind)
