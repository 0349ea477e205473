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
from delayq.bulk.option_columns import TYPES as OPTION_TYPES
from delayq.bulk.option_columns import StoredOptions, keeping_options, options_in
from delayq.bulk.table_sender import Refusal, TableSender
from delayq.errors import ConfigurationError, DelayqError, PayloadError, PayloadTooLargeError, did_you_mean
from delayq.values.checks import MAX_RETRIES, check_retries
from delayq.values.codec import encode_headers
from delayq.values.times import LATEST, from_millis, timestamp

pc: Any = pyarrow.compute
"""Untyped: its stubs lack plain values as arguments, and the types of the resulting arrays."""

_NAMES = {pa.int8(): "byte", pa.int16(): "short", pa.int32(): "integer", pa.int64(): "long", pa.date32(): "date"}


def spark_name(kind: pa.DataType) -> str:
    """Return what Spark calls a type, as far as the columns of plans and messages may have it."""
    if isinstance(kind, pa.TimestampType):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "binary"
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
    **OPTION_TYPES,
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
            hint = did_you_mean(name, tuple(one for one in COLUMNS if one not in names))
            raise ConfigurationError(
                f"unknown column {name!r}{hint or f': a message has {_told()}; select only these'}"
            )
        if names.count(name) > 1:
            raise ConfigurationError(f"column {name} exists {names.count(name)} times: keep one")
    for name in _REQUIRED:
        if name not in names:
            raise ConfigurationError(f"column {name} ({_TYPES[name][0]}) is missing; the table has {', '.join(names)}")
    for name, kind, shown in columns:
        wanted, allowed = _TYPES[name]
        if name == "due" and kind == "timestamp_ntz":
            raise ConfigurationError(
                f"column due is {shown}, a local time without a zone; convert it to an instant: {to_instant}"
            )
        if kind not in allowed:
            said = advice.get(f"{name} {kind}", advice.get(name))
            hint = f": {said}" if said else ""
            raise ConfigurationError(f"column {name} must be {wanted}, not {shown}{hint}")


def _told() -> str:
    own = [name for name in COLUMNS if name not in OPTION_TYPES]
    return f"{', '.join(own)}, and the options {', '.join(OPTION_TYPES)}"


def to_messages(
    batch: pa.RecordBatch, options: LoadOptions, stored: StoredOptions
) -> tuple[OutgoingTable, list[Refusal]]:
    """Return the messages of a batch, and the rows that cannot become one."""
    errors = dict(_invalid_rows(batch, options))
    headers = [b""] * batch.num_rows
    if "headers" in batch.schema.names:
        headers = [_headers(row, pairs, errors) for row, pairs in enumerate(batch.column("headers").to_pylist())]
    dues, rows = _dues(batch), options_in(batch)
    attributes = [b""] * batch.num_rows
    if rows:
        dues, attributes = stored.of(rows, dues, batch.column("id").to_pylist(), errors)
    if options.on_conflict == "replace":
        attributes = keeping_options(attributes, rows, _given(batch))
    refusals = []
    if errors:
        refusals = [Refusal(row, batch.column("id")[row].as_py() or "", errors[row]) for row in sorted(errors)]
        valid = [row for row in range(batch.num_rows) if row not in errors]
        headers, dues, attributes = ([column[row] for row in valid] for column in (headers, dues, attributes))
        batch = batch.take(pa.array(valid, pa.int64()))
    ids: Any = batch.column("id").to_pylist()
    payloads: Any = _payloads(batch).to_pylist()
    return OutgoingTable(ids, dues, _retries(batch, options), payloads, headers, attributes), refusals


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


def _given(batch: pa.RecordBatch) -> list[dict[str, object]]:
    """Return which of its retries and headers each row has."""
    columns = [name for name in ("retries", "headers") if name in batch.schema.names]
    given = {name: batch.column(name).is_valid().to_pylist() for name in columns}
    rows = zip(*given.values(), strict=True) if given else [()] * batch.num_rows
    return [{name: valid or None for name, valid in zip(given, row, strict=True)} for row in rows]


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
        self._stored = StoredOptions(self._contexts[0], replace=options.on_conflict == "replace")
        self._rows_before = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a batch; all are validated before the first is sent."""
        messages, refusals = to_messages(batch, self._options, self._stored)
        if refusals:
            self.refuse(refusals, lambda row: self._name_row(self._rows_before + row))
        self._rows_before += batch.num_rows
        self.send_tables([messages])
