"""What differs between the supported versions of PySpark, 4.0 to the newest.

Before 4.2 a streaming source cannot limit its batches: Spark asks where a batch ends without telling where it starts.
Before 4.1 there are no filters to push down, and a streaming sink of Arrow batches must be a sink of tables as well.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter

LIMITS_BATCHES = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether Spark asks for the end of a batch with its start and a limit."""

if TYPE_CHECKING or LIMITS_BATCHES:
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:

    class ReadMaxRows(NamedTuple):
        """A limit that Spark never asks for."""

        max_rows: int

    ReadLimit = ReadMaxRows

    class SupportsTriggerAvailableNow:
        """Marks a source; Spark itself fixes the end of a query with this trigger."""


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter, Filter
else:
    Filter = Any

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, DataSourceArrowWriter):
        """A streaming sink that takes Arrow batches."""


__all__ = [
    "LIMITS_BATCHES",
    "DataSourceStreamArrowWriter",
    "Filter",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
