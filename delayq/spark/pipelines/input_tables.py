"""Reads tables named on the command line: a file, a folder, a URL, or a table of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from delayq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}
_TABLE = "table:"


def read_table(spark: SparkSession, source: str, schema: str | None = None) -> DataFrame:
    """Return the table that `source` names: `table:NAME`, or a path or URL whose suffix tells its format.

    Without a suffix it is Parquet. A CSV file starts with its column names; all columns are texts unless `schema` gives
    their types, as in `"id STRING, due TIMESTAMP"`. Raises `ConfigurationError` for a missing path.
    """
    if source.startswith(_TABLE):
        return spark.read.table(source.removeprefix(_TABLE))
    if "://" not in source and not any(sign in source for sign in "*?[{") and not Path(source).exists():
        raise ConfigurationError(f"there is no file or folder {source!r}; for a table of the catalog use table:NAME")
    kind = _FORMATS.get(Path(source).suffix.lower(), "parquet")
    reader = spark.read.format(kind)
    if schema is not None:
        reader = reader.schema(schema)
    if kind == "csv":
        reader = reader.option("header", value=True).option("mode", "FAILFAST")
    return reader.load(source)
