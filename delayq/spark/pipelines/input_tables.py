"""Reads tables named on the command line: a file, a folder, a URL, or a table of the catalog."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from delayq.bulk.files.local_files import check_utf_8
from delayq.bulk.files.table_files import check_names, check_not_iceberg, files_of, is_delta
from delayq.bulk.plan_columns import check_case
from delayq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".orc": "orc"}
_TEXT_FORMATS = ("csv", "json")
_TABLE = "table:"
_NANOS_AS_LONG = "spark.sql.legacy.parquet.nanosAsLong"
_TIMES_OF_DAY = "spark.sql.timeType.enabled"
"""Without it Spark refuses a whole file for such a column, whose name it does not tell."""
_REPEATED = re.compile(r"COLUMN_ALREADY_EXISTS\] The column `([^`]+)`")
"""The error for names that differ in case alone."""
pq: Any = pyarrow.parquet
"""Untyped: its stubs lack some functions."""
_NAIVE = r"^\s*\d+-\d+-\d+([ T]\d+:\d+(:\d+(\.\d+)?)?)?\s*$"
"""A date, or a date and a time, with nothing after it."""


def read_table(spark: SparkSession, source: str, schema: str | None = None) -> DataFrame:
    """Return the table that `source` names: `table:NAME`, or a path or URL whose suffix tells its format.

    Without a suffix it is Parquet, or Delta if the folder is such a table. A CSV file starts with its column names; all
    columns are texts unless `schema` gives their types, as in `"id STRING, due TIMESTAMP"`. A quote in quotes is
    doubled. Raises `ConfigurationError` for a missing path, an Iceberg folder, and Delta without its Java packages.
    """
    if source.startswith(_TABLE):
        return spark.read.table(source.removeprefix(_TABLE))
    if "://" not in source and not any(sign in source for sign in "*?[{") and not Path(source).exists():
        raise ConfigurationError(f"there is no file or folder {source!r}; for a table of the catalog use table:NAME")
    kind = _format_of(source)
    if kind == "parquet" and "://" not in source:
        check_not_iceberg(source)
    if kind in _TEXT_FORMATS:
        _check_text(spark, source, is_csv=kind == "csv")
    if kind == "parquet":
        kinds = _local_schema(source)
        if any(map(pa.types.is_time, kinds.values())):
            spark.conf.set(_TIMES_OF_DAY, value=True)
        if fine := _nanosecond_columns(kinds):
            return _with_microseconds(spark, source, fine)
    try:
        return _reader(spark, source, schema).load(source)
    except Exception as error:  # PySpark's, or one of Java
        _explain(error, source)
        raise


def _explain(error: Exception, source: str) -> None:
    """Raise `ConfigurationError` for an error of Spark that says better what is wrong with a table."""
    if found := _REPEATED.search(str(error)):
        check_case([found[1]] * 2)
    if "DATA_SOURCE_NOT_FOUND" in str(error):
        raise ConfigurationError(
            f"{source} is a Delta table, and Spark has no Java packages for it: add --packages and --conf as in `delayq"
            " docs spark-recipes`, which reads it without Spark, too"
        ) from error


def _check_text(spark: SparkSession, source: str, *, is_csv: bool) -> None:
    """Raise `ConfigurationError` for a text that is not UTF-8: Spark would replace what it cannot read, silently."""
    lines = spark.read.text(source).select("value")
    wrong = lines.where(~F.is_valid_utf8("value")).select(F.col("value").cast("binary")).head()
    first = lines.head() if is_csv and wrong is None else None
    names: list[str] = []
    try:
        if wrong is not None:
            check_utf_8(bytes(wrong[0]), whole=True)
        if first is not None:
            names = next(csv.reader([first[0].removeprefix("\ufeff")]), [])
            check_names(names)
    except ValueError as error:
        raise ConfigurationError(f"cannot read {source}: {error}") from error
    check_case(names)


def _local_schema(source: str) -> dict[str, Any]:
    """Return the Arrow types of a Parquet table of local files; empty for what cannot be read, of which Spark tells."""
    if "://" in source or any(sign in source for sign in "*?[{"):
        return {}
    first = next(iter(files_of(source)), None)
    try:
        schema = pq.read_schema(unquote(first.removeprefix("file://"))) if first else ()
    except (OSError, pa.ArrowException):
        return {}
    return {field.name: field.type for field in schema}


def _nanosecond_columns(kinds: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns that are times in nanoseconds, as pandas writes them, and their types in Spark."""
    return {
        name: "timestamp_ntz" if kind.tz is None else "timestamp"
        for name, kind in kinds.items()
        if isinstance(kind, pa.TimestampType) and kind.unit == "ns"
    }


def _with_microseconds(spark: SparkSession, source: str, columns: Mapping[str, str]) -> DataFrame:
    """Return a Parquet table whose times in nanoseconds, which Spark refuses, are cut to microseconds."""
    spark.conf.set(_NANOS_AS_LONG, value=True)
    table = spark.read.parquet(source)
    for name, kind in columns.items():
        if table.schema[name].dataType.typeName() == "long":
            start = f"TIMESTAMP_NTZ '1970-01-01' + make_dt_interval(0, 0, 0, (`{name}` div 1000) / 1000000BD)"
            instant = F.timestamp_micros(F.expr(f"`{name}` div 1000"))
            table = table.withColumn(name, instant if kind == "timestamp" else F.expr(start))
    return table


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
    if kind in _TEXT_FORMATS:
        reader = reader.option("mode", "FAILFAST")
    if kind == "csv":
        reader = reader.option("header", value=True).option("escape", '"')
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
