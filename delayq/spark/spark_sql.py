"""Spark as an engine of queries: see `delayq.archive.sql_engine`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delayq.bulk.files.arrow_tables import in_utc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkSql:
    """Spark; a table is a DataFrame."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def query(self, text: str, **tables: DataFrame) -> DataFrame:
        """Return the DataFrame of a query over others, by their names in the text."""
        named: Any = tables
        return self._spark.sql(text, **named)

    @contextmanager
    def kept(self, table: DataFrame, *, is_small: bool = False) -> Iterator[DataFrame]:
        """Keep a DataFrame while it is read several times."""
        # In one partition, so that what is derived from it is not shuffled again.
        kept = (table.repartition(1) if is_small else table).persist()
        try:
            yield kept
        finally:
            kept.unpersist()

    def arrow(self, table: DataFrame) -> pa.Table:
        """Compute a DataFrame; its times are in UTC, whatever the session's time zone."""
        return in_utc(table.toArrow())

    def result(self, table: DataFrame) -> DataFrame:
        """Return a DataFrame as it is."""
        return table

    def count(self, table: DataFrame) -> int:
        """Compute a DataFrame, and return how many rows it has."""
        return table.count()

    def types(self, table: DataFrame) -> dict[str, str]:
        """Return the columns of a DataFrame and their types."""
        return dict(table.dtypes)
