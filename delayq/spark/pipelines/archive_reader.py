"""Reads an archive: the files that count, whether merged yet or not, of a period or of all times."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from delayq.archive.archive_files import (
    FORMAT,
    FORMER_NAMES,
    RECENT,
    RENAMED,
    ArchiveFile,
    Undone,
    check_version,
    divide,
    former_batches,
    of_period,
    oldest_version,
    start_of,
    undone_of,
)
from delayq.archive.archive_folder import Folder
from delayq.bulk.files.schemas import EVENTS, columns_of
from delayq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


def read_archive(
    spark: SparkSession, path: str, *, start: datetime | None = None, until: datetime | None = None
) -> DataFrame:
    """Return the events of an archive, with the columns of EVENTS; of a period, if `start` or `until` is given.

    A period is from `start` (inclusive) to `until` (exclusive). Files of other days are not opened, and Parquet's
    statistics skip most of the rest. Each event is read once, also while the archive grows or is compacted; the result
    can be used for an hour after that.

    Raises `ConfigurationError` if there is no archive, or if a later delayq wrote it.
    """
    path = path.rstrip("/") or path
    known = archive_facts(spark, path)
    files = event_files(spark, path, known)
    if not files and not known:
        raise ConfigurationError(f"there is no archive at {path}")
    days = of_period(files, start, until)
    if not days:
        return spark.createDataFrame([], EVENTS)
    events = _read(spark, [file.path for file in days], oldest_version(known))
    if start is not None:
        events = events.where(F.col("event_at") >= F.lit(start))
    return events if until is None else events.where(F.col("event_at") < F.lit(until))


def _read(spark: SparkSession, paths: list[str], oldest: int) -> DataFrame:
    if oldest >= RENAMED:
        return spark.read.schema(EVENTS).parquet(*paths)
    kinds = columns_of(EVENTS)
    former = ", ".join(f"`{old}` {kinds[name]}" for name, old in FORMER_NAMES.items())
    events = spark.read.schema(f"{EVENTS}, {former}").parquet(*paths)
    named = {name: F.coalesce(name, old) for name, old in FORMER_NAMES.items()}
    return events.withColumns(named).drop(*FORMER_NAMES.values())


def event_files(spark: SparkSession, path: str, facts: Mapping[str, Any]) -> list[ArchiveFile]:
    """Return the files of an archive that count, by its facts, read before; none if there is no such folder."""
    counting, _ = divide(_listed(path) or _listed_by_spark(spark, path), former_batches(facts))
    return counting


def _listed(path: str) -> list[str]:
    """List the files from this process, which is many times as fast; nothing if the archive may be elsewhere."""
    folder = None if is_remote() else Folder.open(path)
    if folder is None or not folder.has(FORMAT):
        return []
    return [f"{path}{info.path.removeprefix(folder.root)}" for info in folder.files()]


def _listed_by_spark(spark: SparkSession, path: str) -> list[str]:
    def found(folder: str) -> list[str]:
        reader = spark.read.schema(EVENTS).option("recursiveFileLookup", "true")
        return if_exists(lambda: reader.parquet(folder).inputFiles()) or []

    # The batches first: one that is merged in between is found twice, which is harmless, and not missed.
    return [unquote(one) for one in [*found(f"{path}/{RECENT}"), *found(path)]]


def archive_facts(spark: SparkSession, path: str) -> dict[str, Any]:
    """Return the description of an archive: its schema version and its queue; {} if an older delayq wrote it."""
    line = if_exists(lambda: spark.read.text(f"{path}/{FORMAT}").head())
    facts: dict[str, Any] = {} if line is None else json.loads(line[0])
    check_version(facts, path)
    return facts


def archive_start(spark: SparkSession, path: str) -> datetime | None:
    """Return the time before which `retain` has deleted the events of an archive; None if it has deleted none."""
    return start_of(archive_facts(spark, path.rstrip("/") or path))


def undone(spark: SparkSession, path: str) -> list[Undone]:
    """Return the roll-backs that an archive has seen, the first one first: events that a crash of Redis has undone."""
    return undone_of(archive_facts(spark, path.rstrip("/") or path))


def if_exists(read: Callable[[], T]) -> T | None:
    """Return what `read` returns, None if its path does not exist."""
    try:
        return read()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
