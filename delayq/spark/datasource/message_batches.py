"""The columns of messages: what a table must have to be written, and how its Arrow batches become messages.

Whatever can be checked for a batch is checked for the whole of it at once, in Arrow; single rows are looked at only
where one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute

from delayq.clock import LATEST, moment, timestamp
from delayq.config import MOST_RETRIES, check_retries
from delayq.errors import ConfigurationError, DelayqError, PayloadError, PayloadTooLargeError
from delayq.keys import ID, check_id
from delayq.producer import encode_headers
from delayq.spark.given import did_you_mean
from delayq.spark.options import WriteOptions
from delayq.values import OutgoingTable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

pc: Any = pyarrow.compute
"""Untyped: its stubs know neither plain values among the arguments nor which arrays come out."""

KNOWN = ("id", "due", "payload", "retries", "headers")
_REQUIRED = ("id", "payload")
_RIGHT = {
    "id": "STRING",
    "due": "TIMESTAMP",
    "payload": "STRING or BINARY",
    "retries": "INT",
    "headers": "MAP<STRING,STRING>",
}


class Refusal(NamedTuple):
    """A row that cannot be a message, by its place in the batch, and why."""

    row: int
    id: str
    error: DelayqError


def check_columns(schema: StructType) -> None:
    """Check that a table has the columns of messages; `ConfigurationError` names those that are wrong."""
    from pyspark.sql.types import TimestampNTZType

    names = schema.fieldNames()
    for name in names:
        if name not in KNOWN:
            hint = did_you_mean(name, tuple(one for one in KNOWN if one not in names)) or "; select these"
            raise ConfigurationError(f"unknown column {name!r}: a message has {', '.join(KNOWN)}{hint}")
        if names.count(name) > 1:
            raise ConfigurationError(f"there are {names.count(name)} columns {name}: keep one")
    for name in _REQUIRED:
        if name not in names:
            raise ConfigurationError(f"column {name} ({_RIGHT[name]}) is missing; there are: {', '.join(names)}")
    for one in schema.fields:
        if isinstance(one.dataType, TimestampNTZType):
            raise ConfigurationError(
                f"column {one.name} is TIMESTAMP_NTZ, a wall clock's time without a zone; "
                f"make it an instant: to_utc_timestamp({one.name}, 'Europe/Berlin')"
            )
        if not isinstance(one.dataType, _kinds(one.name)):
            kind = one.dataType.simpleString().upper()
            raise ConfigurationError(f"column {one.name} must be {_RIGHT[one.name]}, not {kind}{_advice(one.name)}")
        if one.name == "headers":
            _check_headers(one.dataType)


def _kinds(name: str) -> Any:
    from pyspark.sql import types

    whole = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
    text = types.StringType
    kinds = {"id": text, "due": types.TimestampType, "payload": (text, types.BinaryType), "retries": whole}
    return kinds.get(name, types.MapType)


def _check_headers(kind: Any) -> None:
    from pyspark.sql.types import StringType

    if not (isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)):
        raise ConfigurationError(f"column headers must be {_RIGHT['headers']}, not {kind.simpleString().upper()}")


def _advice(name: str) -> str:
    return {"id": ": cast it to STRING", "payload": ": make it a text, with to_json(payload)"}.get(name, "")


def to_messages(batch: pa.RecordBatch, options: WriteOptions) -> tuple[OutgoingTable, list[Refusal]]:
    """Return the messages of a batch, and the rows that cannot be one."""
    wrong = dict(_faults(batch, options))
    tops = [b""] * batch.num_rows
    if "headers" in batch.schema.names:
        tops = [_top(row, pairs, wrong) for row, pairs in enumerate(batch.column("headers").to_pylist())]
    refusals = []
    if wrong:
        refusals = [Refusal(row, batch.column("id")[row].as_py() or "", wrong[row]) for row in sorted(wrong)]
        kept = [row for row in range(batch.num_rows) if row not in wrong]
        tops = [tops[row] for row in kept]
        batch = batch.take(pa.array(kept, pa.int64()))
    ids: Any = batch.column("id").to_pylist()
    payloads: Any = _payloads(batch).to_pylist()
    return OutgoingTable(ids, _dues(batch), _retries(batch, options), payloads, tops), refusals


def _payloads(batch: pa.RecordBatch) -> Any:
    column = batch.column("payload")
    return column.cast(pa.large_binary() if column.type == pa.large_string() else pa.binary())


def _dues(batch: pa.RecordBatch) -> list[Any]:
    """Return due times as the scripts take them; none is at once. Rounded up, so that nothing is early."""
    if "due" not in batch.schema.names:
        return [0] * batch.num_rows
    whole = pc.divide(pc.add(_microseconds(batch), 999), 1000)
    texts: list[str] = pc.fill_null(pc.binary_join_element_wise("@", whole.cast(pa.string()), ""), "0").to_pylist()
    return texts


def _microseconds(batch: pa.RecordBatch) -> Any:
    return batch.column("due").cast(pa.int64())  # since 1970, whatever the time zone of the session


def _retries(batch: pa.RecordBatch, options: WriteOptions) -> list[Any]:
    if "retries" not in batch.schema.names:
        return [options.default_retries] * batch.num_rows
    numbers: list[int] = pc.fill_null(batch.column("retries").cast(pa.int64()), options.default_retries).to_pylist()
    return numbers


def _top(row: int, pairs: list[tuple[str, str]] | None, wrong: dict[int, DelayqError]) -> bytes:
    """Return the headers of a row as they are stored, or note what is wrong with them."""
    if not pairs:
        return b""
    try:
        return encode_headers(dict(pairs))
    except ConfigurationError as error:
        wrong.setdefault(row, error)
        return b""


def _faults(batch: pa.RecordBatch, options: WriteOptions) -> Iterator[tuple[int, DelayqError]]:
    """Find the rows with something wrong in a column; where a row has several faults, the id's comes last."""
    names = batch.schema.names
    if "retries" in names:
        retries = batch.column("retries").cast(pa.int64())
        for row in _rows(pc.or_(pc.less(retries, 0), pc.greater(retries, MOST_RETRIES))):
            yield row, _refused(check_retries, retries[row].as_py())
    if "due" in names:
        dues = _microseconds(batch)
        for row in _rows(pc.or_(pc.less(dues, 0), pc.greater(dues, LATEST * 1000))):
            yield row, _refused(_check_due, dues[row].as_py())
    payloads = _payloads(batch)
    for row in _rows(pc.greater(pc.binary_length(payloads), options.max_payload), null=True):
        size = pc.binary_length(payloads[row]).as_py()
        yield row, _bad_payload(size, options.max_payload)
    ids = batch.column("id")
    for row in _rows(pc.invert(pc.match_substring_regex(ids, f"^{ID}$")), null=True):
        id = ids[row].as_py()
        yield row, ConfigurationError("id is null") if id is None else _refused(check_id, id)


def _rows(fault: Any, *, null: bool = False) -> list[int]:
    """Return where a mask is true; `null` says whether it is where the column is null."""
    fault = pc.fill_null(fault, null)
    return pc.indices_nonzero(fault).to_pylist() if pc.any(fault).as_py() else []


def _bad_payload(size: int | None, most: int) -> DelayqError:
    if size is None:
        return PayloadError("payload is null")
    return PayloadTooLargeError(f"payload is {size} bytes, and at most {most} are allowed (option maxPayload)")


def _check_due(exact: int) -> None:
    try:
        at = moment(exact // 1000)
    except OverflowError:
        raise ConfigurationError(f"due is {exact} µs since 1970, which is no time that can be waited for") from None
    timestamp(at, "due")


def _refused(check: Callable[[Any], object], value: Any) -> DelayqError:
    """Return the error that a check raises for a value which has been found wrong."""
    try:
        check(value)
    except DelayqError as error:
        return error
    raise AssertionError(f"{check} has nothing against {value!r}")
