"""Loads a table of messages, or a plan, into a queue without Spark; times, numbers and headers may be texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute

from delayq.broker.batches import byte_slices
from delayq.bulk.connection import target_of
from delayq.bulk.files.arrow_tables import TableSource, table_of
from delayq.bulk.files.table_files import files_of
from delayq.bulk.load_options import LoadOptions, check_load
from delayq.bulk.load_run import Loaded, LoadRun, When, begin_load, cancel_ids, digest_of, window_of
from delayq.bulk.message_batches import COLUMNS, MessageSender, check_columns, spark_name, text_lengths, value_type
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.sweeps.bulk_runs import check_run
from delayq.values.codec import decode_headers
from delayq.values.times import Duration

pc: Any = pyarrow.compute
"""Untyped: its stubs lack plain values as arguments."""

_INSTANT = pa.timestamp("us", tz="UTC")
_HEADERS = pa.map_(pa.string(), pa.string())
_EXAMPLE = "2027-01-31T09:00:00+01:00"
_ADVICE = {"id": "write it as a text", "payload": "write it as a text, such as JSON"}
_TEXTS = ("id", "payload")


def message_table(table: pa.Table) -> pa.Table:
    """Return a table of messages with texts read as times, numbers and headers; raises `ConfigurationError`."""
    for at, field in enumerate(table.schema):
        if field.name in _TEXTS and pa.types.is_null(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(pa.string()))
    for name, read in _READERS.items():
        if name in table.column_names and _is_read(name, table.schema.field(name).type):
            column = read(table.column(name))
            table = table.set_column(table.column_names.index(name), name, column)
    kinds = [(field.name, value_type(field.type) if field.name == "payload" else field.type) for field in table.schema]
    columns = [(name, spark_name(kind), str(kind).upper()) for name, kind in kinds]
    check_columns(columns, _ADVICE, f"a text with its zone, such as {_EXAMPLE}")
    if "due" not in table.column_names:
        return table
    instants = pc.ceil_temporal(table.column("due"), 1, "microsecond").cast(_INSTANT)
    return table.set_column(table.column_names.index("due"), "due", instants)


def _is_read(name: str, kind: pa.DataType) -> bool:
    return spark_name(kind) == "string" or pa.types.is_null(kind) or (name == "headers" and pa.types.is_struct(kind))


def _cast(column: Any, kind: pa.DataType, name: str, wanted: str) -> Any:
    """Return texts as values of another type; an error names the first row that cannot be one."""
    texts = column.cast(pa.string())
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        return _each(texts, lambda text: pc.cast(pa.scalar(text), kind).as_py(), kind, name, wanted)


def _pairs(headers: Any) -> list[tuple[str, str]]:
    if isinstance(headers, str):
        headers = decode_headers(headers)
    # Arrow gives each row the names of all rows, with nulls.
    return [(name, value) for name, value in headers.items() if value is not None]


def _each(column: Any, read: Callable[[Any], Any], kind: pa.DataType, name: str, wanted: str) -> Any:
    values = []
    for row, value in enumerate(column.to_pylist(), 1):
        try:
            values.append(None if value is None else read(value))
        except (ValueError, msgspec.DecodeError):
            raise ConfigurationError(f"row {row}: {name} must be {wanted}, not {short_repr(value)}") from None
    try:
        return pa.chunked_array([pa.array(values, kind)])
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise ConfigurationError(f"{name} must be {wanted} in each row") from None


_READERS: dict[str, Callable[[Any], Any]] = {
    "due": lambda column: _cast(column, _INSTANT, "due", f"a time with its zone, such as {_EXAMPLE}"),
    "retries": lambda column: _cast(column, pa.int64(), "retries", "a whole number"),
    "headers": lambda column: _each(column, _pairs, _HEADERS, "headers", "an object of texts"),
}


BATCH_ROWS = 10_000
"""Rows that are checked and sent at a time, at most."""
BATCH_BYTES = 8 << 20
"""Bytes of their payloads, and then those of one more."""


class _Selection(NamedTuple):
    """The rows of a table that are sent, and how many others are not."""

    rows: pa.Table
    numbers: Any
    """The place of each in the table."""
    past: int
    later: int


def load(
    messages: TableSource,
    queue: str,
    *,
    url: str | None = None,
    prefix: str = "delayq",
    deadline: Duration | None = None,
    start: When | None = None,
    until: When | None = None,
    run: str | None = None,
    on_conflict: str = "skip",
    on_error: str = "fail",
    batch_size: int = 200,
    max_rows_per_second: float | None = None,
    default_retries: int = 3,
    max_payload: int = 1 << 20,
    dedupe_window: Duration | None = None,
) -> Loaded:
    """Send the messages of a table or file that are due from `start` (inclusive) to `until` (exclusive).

    Does what `delayq.spark.load` does, with the same parameters and result: see there. A table is whatever has
    `__arrow_c_stream__`, such as those of pandas, Polars, DuckDB and PyArrow. It has the columns id, due and payload,
    and optionally retries, headers and the options of a send, such as name or priority; or it is a plan. Where its
    columns are texts, as in CSV and JSON Lines, `due` is a time with its zone, such as `2027-01-31T09:00:00+01:00`, and
    `headers` a JSON object. All is in memory. `deadline` is how long a call is retried while Redis does not reply.

    Repeatable, like a load on Spark: a load of the same file, also of one that Spark began, resumes the unfinished run.

    Raises `ConfigurationError` for invalid options, columns, times and numbers before a row is sent, and the error of
    an invalid row unless `on_error` is "collect". Once rows may have been sent, the text of an error ends with what the
    run has stored; that of a `KeyboardInterrupt` is its note.
    """
    options = check_load(
        batch_size=batch_size,
        max_rows_per_second=max_rows_per_second,
        on_conflict=on_conflict,
        on_error=on_error,
        default_retries=default_retries,
        max_payload=max_payload,
    )
    return load_table(
        messages,
        queue,
        options,
        url=url,
        prefix=prefix,
        deadline=deadline,
        start=start,
        until=until,
        run=run,
        dedupe_window=dedupe_window,
    )


def load_table(
    messages: TableSource,
    queue: str,
    options: LoadOptions,
    *,
    url: str | None,
    prefix: str,
    deadline: Duration | None,
    start: When | None,
    until: When | None,
    run: str | None,
    dedupe_window: Duration | None,
) -> Loaded:
    """Do what `load` does, with options that are checked."""
    target = target_of(queue, url, prefix, deadline)
    if run is not None:
        check_run(run)
    table = table_of(messages, "messages", repeated=("payload",))
    source = files_of(messages) if isinstance(messages, str | Path) else ()
    to_send, to_cancel = _parts(table)
    to_send = message_table(to_send)
    begun = begin_load(
        target,
        start,
        until,
        run=run,
        source=digest_of(source),
        has_due="due" in to_send.column_names,
        dedupe_window=window_of(dedupe_window),
    )
    selected = _select(to_send, begun)
    sender = MessageSender(target, options, begun.name, lambda at: f"row {selected.numbers[at].as_py() + 1}")
    with begun.telling_what_is_stored():
        for batch in _batches(selected.rows):
            sender.send(batch)
        begun.commit(sender.refusals, sender.refused)
        cancelled = Counter(cancel_ids(target, to_cancel))
    return begun.result(past=selected.past, later=selected.later, cancelled=cancelled)


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in parts whose payloads fit into memory once more."""
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        sizes: list[Any] = pc.fill_null(text_lengths(batch.column("payload")), 0).to_pylist()
        for part in byte_slices(sizes, BATCH_BYTES):
            yield batch.slice(part.start, part.stop - part.start)


def _parts(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """Return the messages to send and, of a plan, the ids to cancel."""
    if "action" not in table.column_names:
        return table, []
    is_cancel = pc.fill_null(pc.equal(table.column("action"), "cancel"), fill_value=False)
    ids: list[Any] = table.filter(is_cancel).column("id").drop_null().to_pylist()
    columns = [name for name in table.column_names if name in COLUMNS]
    return table.filter(pc.invert(is_cancel)).select(columns), ids


def _select(table: pa.Table, run: LoadRun) -> _Selection:
    """Return the rows within the horizon; those without a due time are always sent."""
    numbers = pa.array(range(table.num_rows), pa.int64())
    if not run.has_horizon:
        return _Selection(table, numbers, 0, 0)
    dues = table.column("due").cast(pa.int64())
    past = _where(pc.less, dues, run.first)
    later = _where(pc.greater_equal, dues, run.last)
    within = pc.invert(pc.or_(past, later))
    return _Selection(table.filter(within), pc.filter(numbers, within), _count(past), _count(later))


def _where(compare: Any, dues: Any, end: int | None) -> Any:
    """Return where due times (µs) compare with an end (ms) of the horizon; nowhere without one."""
    return pc.fill_null(compare(dues, pa.scalar(None if end is None else end * 1000, pa.int64())), fill_value=False)


def _count(mask: Any) -> int:
    return int(pc.sum(mask).as_py() or 0)
