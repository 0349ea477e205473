"""The names that Spark has for Arrow's types: with and without Spark, columns are checked by the same names."""

from __future__ import annotations

import pyarrow as pa

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
