"""Converts Arrow batches to messages, and checks the columns and rows of the table that is written.

Whatever Arrow can check is checked for a whole batch at once; single rows are examined only if one is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from delayq.broker.keys import ID, check_id
from delayq.broker.requests import OutgoingTable
from delayq.bulk.connection import TargetQueue
from delayq.bulk.load_options import LoadOptions
from delayq.bulk.option_columns import NO_COLUMNS, OPTION_COLUMNS, Cells, OptionRows
from delayq.bulk.table_sender import Refusal, TableSender
from delayq.errors import ConfigurationError, DelayqError, PayloadError, PayloadTooLargeError, did_you_mean
from delayq.queue.sending.message_options import keeping
from delayq.values.checks import MAX_RETRIES, check_retries
from delayq.values.codec import encode_headers
from delayq.values.times import LATEST, from_millis, timestamp

pc: Any = pyarrow.compute
"""Untyped: its stubs lack plain values as arguments, and the types of the resulting arrays."""

_NAMES = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.null(): "void",
}


def spark_name(kind: pa.DataType) -> str:
    """Return what Spark calls a type, as far as the columns of plans and messages may have it."""
    if isinstance(kind, pa.TimestampType):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "binary"
    if pa.types.is_duration(kind):
        return "daytimeinterval"
    if isinstance(kind, pa.MapType):
        return f"map<{spark_name(kind.key_type)},{spark_name(kind.item_type)}>"
    return _NAMES.get(kind, str(kind))


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values that a column has, also one that has each of them once."""
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def text_lengths(column: Any) -> Any:
    """Return how many bytes each text of a column has, without decoding one that has each of them once."""
    if isinstance(column, pa.DictionaryArray):
        return pc.take(pc.binary_length(column.dictionary), column.indices)
    return pc.binary_length(column)


_TYPES = {
    "id": ("STRING", ("string",)),
    "due": ("TIMESTAMP", ("timestamp",)),
    "payload": ("STRING or BINARY", ("string", "binary")),
    "retries": ("INT", ("byte", "short", "integer", "long")),
    "headers": ("MAP<STRING,STRING>", ("map<string,string>",)),
    **{name: (one.wanted, one.allowed) for name, one in OPTION_COLUMNS.items()},
}
"""The columns of messages: the type they must have, and the same as Spark's type names."""
COLUMNS = tuple(_TYPES)
_REQUIRED = ("id", "payload")


def check_columns(columns: Sequence[tuple[str, str, str]], advice: Mapping[str, str], to_instant: str) -> None:
    """Check that a table has the columns of messages; raises `ConfigurationError`.

    A column is its name, the name of its type in Spark, and the same as users write it. `advice` says how to convert a
    column, by its name, or by name and type such as "due date"; `to_instant` a `due` without a zone.
    """
    names = [name for name, _, _ in columns]
    for name in names:
        if name not in COLUMNS:
            raise _unknown(name, names)
        if names.count(name) > 1:
            raise ConfigurationError(f"column {name} exists {names.count(name)} times: keep one")
    for name in _REQUIRED:
        if name not in names:
            raise ConfigurationError(f"column {name} ({_TYPES[name][0]}) is missing; the table has {', '.join(names)}")
    for name, kind, shown in columns:
        wanted, allowed = _TYPES[name]
        if kind == "timestamp_ntz" and "timestamp" in allowed:
            raise ConfigurationError(
                f"column {name} is {shown}, a local time without a zone; convert it to an instant: {to_instant}"
            )
        if kind not in allowed:
            said = advice.get(f"{name} {kind}", advice.get(name))
            hint = f": {said}" if said else ""
            raise ConfigurationError(f"column {name} must be {wanted}, not {shown}{hint}")


def _unknown(name: str, names: Sequence[str]) -> ConfigurationError:
    """Return the error for a column that no message has, in a table with these columns."""
    if name in NO_COLUMNS:
        return ConfigurationError(f"the option {name!r} cannot be a column: {NO_COLUMNS[name]}")
    hint = did_you_mean(name, tuple(one for one in COLUMNS if one not in names)) or "; select only these"
    if hint.startswith(","):
        return ConfigurationError(f"unknown column {name!r}: {hint.removeprefix(', ')}")
    first = ", ".join(one for one in COLUMNS if one not in OPTION_COLUMNS)
    options = ", ".join(OPTION_COLUMNS)
    return ConfigurationError(
        f"unknown column {name!r}: a message has {first} and the options of a send ({options}){hint}"
    )


def to_messages(
    batch: pa.RecordBatch, options: LoadOptions, option_rows: OptionRows
) -> tuple[OutgoingTable, list[Refusal]]:
    """Return the messages of a batch, and the rows that cannot become one."""
    errors = dict(_invalid_rows(batch, options))
    headers = [b""] * batch.num_rows
    if "headers" in batch.schema.names:
        headers = [_headers(row, pairs, errors) for row, pairs in enumerate(batch.column("headers").to_pylist())]
    whole, rows = batch, list(range(batch.num_rows))
    if errors:
        rows = [row for row in rows if row not in errors]
        headers = [headers[row] for row in rows]
        batch = batch.take(pa.array(rows, pa.int64()))
    ids: Any = batch.column("id").to_pylist()
    payloads: Any = _payloads(batch).to_pylist()
    messages = OutgoingTable(ids, _dues(batch), _retries(batch, options), payloads, headers, [b""] * len(ids))
    if not OPTION_COLUMNS.keys().isdisjoint(batch.schema.names):
        dues, attributes, wrong = option_rows.place(messages, _cells(batch), is_json=_is_text(batch))
        messages = messages._replace(dues=dues, attributes=attributes)
        if wrong:
            errors |= {rows[at]: error for at, error in wrong.items()}
            valid = [at for at in range(len(ids)) if at not in wrong]
            messages = OutgoingTable._make([column[at] for at in valid] for column in messages)
            batch = batch.take(pa.array(valid, pa.int64()))
    if options.on_conflict == "replace":
        messages = messages._replace(attributes=_kept(batch, messages.attributes))
    return messages, [Refusal(row, whole.column("id")[row].as_py() or "", errors[row]) for row in sorted(errors)]


def _cells(batch: pa.RecordBatch) -> list[Cells]:
    """Return the options that each row has; nulls are left out."""
    names = [name for name in batch.schema.names if name in OPTION_COLUMNS]
    columns = [_plain_values(batch.column(name)) for name in names]
    return [
        tuple(cell for cell in zip(names, row, strict=True) if cell[1] is not None)
        for row in zip(*columns, strict=True)
    ]


def _plain_values(column: Any) -> list[Any]:
    # In microseconds, since Arrow returns objects of pandas for nanoseconds.
    if pa.types.is_timestamp(column.type):
        column = pc.ceil_temporal(column, 1, "microsecond").cast(pa.timestamp("us", tz="UTC"))
    elif pa.types.is_duration(column.type):
        column = column.cast(pa.duration("us"), safe=False)
    return list(column.to_pylist())


def _is_text(batch: pa.RecordBatch) -> bool:
    return spark_name(value_type(batch.column("payload").type)) == "string"


def _payloads(batch: pa.RecordBatch) -> Any:
    column = batch.column("payload")
    return column.cast(pa.large_binary() if value_type(column.type) == pa.large_string() else pa.binary())


def _dues(batch: pa.RecordBatch) -> list[Any]:
    """Return due times as the scripts take them, 0 for at once. They are rounded up, so that nothing is early."""
    if "due" not in batch.schema.names:
        return [0] * batch.num_rows
    milliseconds = pc.divide(pc.add(_microseconds(batch), 999), 1000)
    texts = pc.fill_null(pc.binary_join_element_wise("@", milliseconds.cast(pa.string()), ""), "0")
    return list(texts.to_pylist())


def _microseconds(batch: pa.RecordBatch) -> Any:
    return batch.column("due").cast(pa.int64())  # since 1970, whatever the session's time zone


def _retries(batch: pa.RecordBatch, options: LoadOptions) -> list[Any]:
    if "retries" not in batch.schema.names:
        return [options.default_retries] * batch.num_rows
    return list(pc.fill_null(batch.column("retries").cast(pa.int64()), options.default_retries).to_pylist())


def _kept(batch: pa.RecordBatch, attributes: Sequence[bytes]) -> list[bytes]:
    """Return attributes that let a message which is replaced keep what its row has not."""
    columns = [name for name in ("retries", "headers", *OPTION_COLUMNS) if name in batch.schema.names]
    given = {name: batch.column(name).is_valid().to_pylist() for name in columns}
    rows = zip(*given.values(), strict=True) if given else [()] * batch.num_rows
    return [
        keeping(stored, {name: valid or None for name, valid in zip(given, row, strict=True)})
        for stored, row in zip(attributes, rows, strict=True)
    ]


def _headers(row: int, pairs: list[tuple[str, str]] | None, errors: dict[int, DelayqError]) -> bytes:
    """Return the headers of a row as they are stored; if they are invalid, add the error to `errors`."""
    if not pairs:
        return b""
    try:
        return encode_headers(dict(pairs))
    except ConfigurationError as error:
        errors.setdefault(row, error)
        return b""


def _invalid_rows(batch: pa.RecordBatch, options: LoadOptions) -> Iterator[tuple[int, DelayqError]]:
    """Find the rows with an invalid value; for a row with several, the id's error comes last."""
    names = batch.schema.names
    if "retries" in names:
        retries = batch.column("retries").cast(pa.int64())
        for row in _rows(pc.or_(pc.less(retries, 0), pc.greater(retries, MAX_RETRIES))):
            yield row, _error_of(check_retries, retries[row].as_py())
    if "due" in names:
        dues = _microseconds(batch)
        for row in _rows(pc.or_(pc.less(dues, 0), pc.greater(dues, LATEST * 1000))):
            yield row, _error_of(_check_due, dues[row].as_py())
    payloads = _payloads(batch)
    for row in _rows(pc.greater(pc.binary_length(payloads), options.max_payload), null=True):
        size = pc.binary_length(payloads[row]).as_py()
        if size is None:
            yield row, PayloadError("payload is null")
        else:
            option = options.spelling("max_payload")
            limit = f"at most {options.max_payload} are allowed (option {option})"
            yield row, PayloadTooLargeError(f"payload is {size} bytes, and {limit}")
    ids = batch.column("id")
    for row in _rows(pc.invert(pc.match_substring_regex(ids, f"^{ID}$")), null=True):
        id = ids[row].as_py()
        yield row, ConfigurationError("id is null") if id is None else _error_of(check_id, id)


def _rows(mask: Any, *, null: bool = False) -> list[int]:
    """Return the rows where a mask is true; `null` is its value where the column is null."""
    mask = pc.fill_null(mask, null)
    return pc.indices_nonzero(mask).to_pylist() if pc.any(mask).as_py() else []


def _check_due(microseconds: int) -> None:
    try:
        at = from_millis(microseconds // 1000)
    except OverflowError:
        raise ConfigurationError(f"due is {microseconds} µs since 1970, which is out of range") from None
    timestamp(at, "due")


def _error_of(check: Callable[[Any], object], value: Any) -> DelayqError:
    """Return the error that a check raises for a value known to be invalid."""
    try:
        check(value)
    except DelayqError as error:
        return error
    raise AssertionError(f"{check} accepts {value!r}")


class MessageSender(TableSender):
    """Sends the rows of a table, or of one task of Spark."""

    def __init__(self, target: TargetQueue, options: LoadOptions, run: str, name_row: Callable[[int], str]) -> None:
        """Send as part of a run. `name_row` returns what errors call a row, from its place among all rows sent."""
        super().__init__(target, options, run)
        self._name_row = name_row
        self._option_rows = OptionRows(self._contexts[0], replaces=options.on_conflict == "replace")
        self._rows_before = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a batch; all are validated before the first is sent."""
        messages, refusals = to_messages(batch, self._options, self._option_rows)
        if refusals:
            self.refuse(refusals, lambda row: self._name_row(self._rows_before + row))
        self._rows_before += batch.num_rows
        self.send_tables([messages])
