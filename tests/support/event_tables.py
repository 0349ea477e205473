"""Tables of events, plans and snapshots for an engine of queries, from rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from delayq.archive.sql_engine import DuckDB
from delayq.bulk.files.schemas import EVENTS, arrow_schema


def table_of(rows: Iterable[Sequence[Any]], ddl: str = EVENTS) -> pa.Table:
    """Return rows as a table with the columns of one of delayq's."""
    schema = arrow_schema(ddl)
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.table(arrays, schema=schema)


def loaded(rows: Iterable[Sequence[Any]], ddl: str = EVENTS) -> tuple[DuckDB, str]:
    """Return an engine, and a table in it."""
    engine = DuckDB()
    return engine, engine.table(table_of(rows, ddl))
