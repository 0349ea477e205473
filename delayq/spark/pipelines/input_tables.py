"""Reads tables named on the command line: a file, a folder, a URL, or a table of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from delayq.bulk.files.table_files import is_delta
from delayq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}
_TEXT_FORMATS = ("csv", "json")
_TABLE = "table:"
_NAIVE = r"^\s*\d+-\d+-\d+([ T]\d+:\d+(:\d+(\.\d+)?)?)?\s*$"
"""A date, or a date and a time, with nothing after it."""


def read_table(spark: SparkSession, source: str, schema: str | None = None) -> DataFrame:
    """Return the table that `source` names: `table:NAME`, or a path or URL whose suffix tells its format.

    Without a suffix it is Parquet, or Delta if the folder is such a table. A CSV file starts with its column names; all
    columns are texts unless `schema` gives their types, as in `"id STRING, due TIMESTAMP"`. A quote in quotes is
    doubled. Raises `ConfigurationError` for a missing path.
    """
    if source.startswith(_TABLE):
        return spark.read.table(source.removeprefix(_TABLE))
    if "://" not in source and not any(sign in source for sign in "*?[{") and not Path(source).exists():
        raise ConfigurationError(f"there is no file or folder {source!r}; for a table of the catalog use table:NAME")
    return _reader(spark, source, schema).load(source)


def find_naive_time(spark: SparkSession, source: str, schema: str | None) -> tuple[str, str] | None:
    """Return a TIMESTAMP column of a text file, and a text in it that names no zone; None if there is none.

    Spark reads such a text in the session's time zone. Reads the file up to the first such text.
    """
    if schema is None or _format_of(source) not in _TEXT_FORMATS:
        return None
    fields = spark.createDataFrame([], schema).schema.fields
    names = [field.name for field in fields if field.dataType.typeName() == "timestamp"]
    if not names:
        return None
    as_text = StructType([StructField(one.name, StringType()) if one.name in names else one for one in fields])
    naive = [F.when(F.col(f"`{name}`").rlike(_NAIVE), F.struct(F.lit(name), f"`{name}`")) for name in names]
    first = _reader(spark, source, as_text).load(source).select(F.coalesce(*naive).alias("found"))
    row = first.where("found IS NOT NULL").head()
    return None if row is None else (row[0][0], row[0][1].strip())


def _reader(spark: SparkSession, source: str, schema: StructType | str | None) -> DataFrameReader:
    kind = _format_of(source)
    reader = spark.read.format("delta" if kind == "parquet" and _is_delta_url(spark, source) else kind)
    if schema is not None:
        reader = reader.schema(schema)
    if kind == "csv":
        reader = reader.option("header", value=True).option("mode", "FAILFAST").option("escape", '"')
    return reader


def _format_of(source: str) -> str:
    if source.startswith(_TABLE):
        return "table"
    return "delta" if is_delta(source) else _FORMATS.get(Path(source).suffix.lower(), "parquet")


def _is_delta_url(spark: SparkSession, source: str) -> bool:
    """Return whether a URL is that of a Delta table; Spark knows the storage."""
    if "://" not in source or Path(source).suffix:
        return False
    try:
        return bool(spark.read.text(f"{source}/_delta_log").columns)
    except AnalysisException:  # no such path
        return False
