"""Tables by name, as the command line is given them: a file, a folder, a URL, or a table of the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from delayq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}
_TABLE = "table:"


def read_table(spark: SparkSession, source: str, schema: str | None = None) -> DataFrame:
    """Return the table that `source` names: `table:NAME`, or a path or URL whose ending tells its format.

    What has no ending is Parquet. A CSV file begins with the names of its columns and holds texts; `schema` (as in
    `"id STRING, due TIMESTAMP"`) tells what they are. Raises `ConfigurationError` for a path that is not there.
    """
    if source.startswith(_TABLE):
        return spark.read.table(source.removeprefix(_TABLE))
    if "://" not in source and not any(sign in source for sign in "*?[{") and not Path(source).exists():
        raise ConfigurationError(f"there is no file or folder {source!r}; a table of the catalogue is table:NAME")
    kind = _FORMATS.get(Path(source).suffix.lower(), "parquet")
    reader = spark.read.format(kind)
    if schema is not None:
        reader = reader.schema(schema)
    if kind == "csv":
        reader = reader.option("header", value=True).option("mode", "FAILFAST")
    return reader.load(source)
