"""Reports on an event log with Spark: see `delayq.report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from delayq.errors import ConfigurationError
from delayq.report.report import report as report_with
from delayq.report.report_tables import Reports
from delayq.spark.spark_sql import SparkSql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def report(events: DataFrame, out: str | Path, **options: Any) -> Reports[DataFrame]:
    """Compute the reports on an event log, write them to a local folder, and return them: see `delayq.report.report`.

    The reports are DataFrames. Raises `ConfigurationError` for a stream, too.
    """
    if events.isStreaming:
        raise ConfigurationError("a report needs an archive or a batch read of the log, not a stream")
    return report_with(SparkSql(events.sparkSession), events, out, **options)
