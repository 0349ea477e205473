"""The columns of a table that are options of its messages: all that a `NewMessage` has, if no other column says it.

A null is as if the option were left out. Durations are texts such as `1h30m`, or seconds; in CSV both are texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, get_args, get_type_hints

import pyarrow as pa

from delayq.broker.context import QueueContext
from delayq.errors import ConfigurationError, DelayqError, short_repr
from delayq.queue.sending.due_times import placed
from delayq.queue.sending.message_options import MESSAGE_OPTIONS, NewMessage, attributes_of, keeping

NAMES = tuple(name for name in MESSAGE_OPTIONS if name != "unique")
"""Those of `send_many`, but `unique`, which makes an id: a row has one."""
_HINTS = get_type_hints(NewMessage)
_TEXT, _NOTHING = ("string",), ("null", "void")
_WHOLE = ("byte", "short", "integer", "long")
_SECONDS = (*_WHOLE, "float", "double")


def _types(name: str) -> tuple[str, tuple[str, ...]]:
    """Return the type that a column must have, and the same as Spark's type names."""
    kinds = get_args(_HINTS[name])
    if datetime in kinds:
        return "a TIMESTAMP or a duration", ("timestamp", *_SECONDS, *_TEXT, *_NOTHING)
    if timedelta in kinds:
        return "a duration: a STRING such as '1h30m', or seconds", (*_SECONDS, *_TEXT, *_NOTHING)
    if int in kinds:
        return "INT", (*_WHOLE, *_TEXT, *_NOTHING)
    return "STRING", (*_TEXT, *_NOTHING)


TYPES = {name: _types(name) for name in NAMES}


def options_in(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the options that each row has, as it has them; an empty list for a table without any."""
    names = [name for name in NAMES if name in batch.schema.names]
    if not names:
        return []
    columns = [_values(batch.column(name)) for name in names]
    return [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*columns, strict=True)
    ]


def _values(column: Any) -> list[Any]:
    if isinstance(column.type, pa.TimestampType):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)  # Python has no finer ones
    return list(column.to_pylist())


class StoredOptions:
    """Makes what is stored of the options of rows, and their due times; many rows have the same options."""

    def __init__(self, context: QueueContext, *, replace: bool) -> None:
        self._context = context
        self._replace = replace
        self._known: dict[tuple[Any, ...], bytes] = {}

    def of(
        self, rows: Sequence[Mapping[str, Any]], dues: Sequence[str], ids: Sequence[Any], errors: dict[int, DelayqError]
    ) -> tuple[list[str], list[bytes]]:
        """Return the due time and the attributes of each row; an invalid one is added to `errors`."""
        new_dues, found = list(dues), [b""] * len(dues)
        for row, given in enumerate(rows):
            if given and row not in errors:
                try:
                    new_dues[row], found[row] = self._one(given, dues[row], ids[row])
                except DelayqError as error:
                    errors[row] = error
        return new_dues, found

    def _one(self, given: Mapping[str, Any], text: str, id: str) -> tuple[str, bytes]:
        due: str | int = 0 if text == "0" else text
        timed = tuple(due for name in ("expires", "hours", "jitter") if name in given)
        key = (*given.items(), *timed)
        if "hours" not in given and "jitter" not in given and (known := self._known.get(key)) is not None:
            return text, known
        options = {name: _read(name, value) for name, value in given.items()}
        due = placed(self._context, due, id, options, self._replace)
        stored = self._known[key] = attributes_of(self._context, due, options, id, replace=self._replace)
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        return str(due), stored


MOST_KNOWN = 10_000
"""Combinations of options that are remembered."""


def _read(name: str, value: Any) -> Any:
    """Return the value of an option; texts may be those of a CSV file."""
    kinds = get_args(_HINTS[name])
    if not isinstance(value, str) or int not in kinds:
        return value
    if timedelta not in kinds:
        try:
            return int(value)
        except ValueError:
            raise ConfigurationError(f"{name} must be a whole number, not {short_repr(value)}") from None
    for read in (float, datetime.fromisoformat) if datetime in kinds else (float,):
        try:
            return read(value)
        except ValueError:
            continue
    return value


def keeping_options(
    attributes: Sequence[bytes], rows: Sequence[Mapping[str, Any]], given: Sequence[Mapping[str, object]]
) -> list[bytes]:
    """Return attributes that let a message which is replaced keep what its row has not; `given` is of other columns."""
    options: Sequence[Mapping[str, Any]] = rows or [{}] * len(given)
    return [keeping(stored, {**own, **one}) for stored, own, one in zip(attributes, options, given, strict=True)]
