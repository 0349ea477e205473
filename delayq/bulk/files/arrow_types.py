"""Arrow's types: what Spark calls them, by which columns are checked with and without it, and the sizes of texts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute
"""Untyped: its stubs lack plain values as arguments."""

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
