"""The archive: the event log of a queue as Parquet files, exactly once, whatever is killed on the way.

Each micro-batch writes a folder of its own, named after the query and its number, and writes it whole: a batch that is
done again after a crash replaces what the first attempt left. So every reader of the files finds each event once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, PySparkException

from delayq.clock import Duration, milliseconds
from delayq.config import whole
from delayq.errors import ConfigurationError
from delayq.spark import commands
from delayq.spark.archive_run import ArchiveResult, ArchiveRun
from delayq.spark.connection import calls_of, connect
from delayq.spark.events import check_log
from delayq.spark.failures import error_of
from delayq.spark.options import event_options
from delayq.spark.schemas import EVENTS
from delayq.spark.source import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEEP = 1000
"""Entries that trimming leaves in the log though they are archived: a power cut may take them from a disk."""


def archive(
    spark: SparkSession,
    queue: str,
    path: str,
    *,
    url: str | None = None,
    url_env: str | None = None,
    prefix: str = "delayq",
    once: bool = True,
    every: Duration = 10,
    checkpoint: str | None = None,
    trim: bool = False,
    keep: int = KEEP,
    max_entries: int = 10_000,
    fail_on_data_loss: bool = True,
    on_progress: Callable[[ArchiveResult], object] | None = None,
) -> ArchiveResult:
    """Bring an archive up to date with the event log of a queue: every event is in it exactly once.

    `path` is a folder that Spark can write to, with its checkpoint in `_checkpoint` below it unless another is given.
    Killed at any moment and started again it goes on where it was; until then a reader may find a batch in part, never
    twice. With `once` it ends where the log ended at its beginning; else it goes on `every` so often, until Ctrl-C. A
    batch holds `max_entries` entries of the log. `on_progress` is told how far it is, every second.

    With `trim` the log loses what is surely archived, but for the last `keep` entries, and never more than what every
    archive of this queue has: each is noted in Redis from its first run (`forget_archive` takes one out).

    The program must reach Redis, as Spark's executors do. Raises `ConfigurationError` if there is no such queue, it
    keeps no event log, or the path holds an archive without its checkpoint; `EventsLostError` if entries were deleted
    before they were read, unless `fail_on_data_loss` is off.
    """
    given = {"queue": queue, "url": url, "urlEnv": url_env, "prefix": prefix, "maxEntriesPerBatch": str(max_entries)}
    options = {name: value for name, value in given.items() if value is not None} | {"read": "events"}
    options["failOnDataLoss"] = str(fail_on_data_loss).lower()
    whole(keep, "keep", 0, 1 << 53)
    interval = f"{milliseconds(every, 'every')} milliseconds"
    target = event_options(options, streaming=True).target
    kept = check_log(target)
    folder = path.rstrip("/") or path
    checkpoint = checkpoint or f"{folder}/_checkpoint"
    _check_folder(spark, folder, checkpoint)
    register(spark)
    run = ArchiveRun(target, folder, keep if trim else None, (kept.first or kept.last + 1) - 1)
    stream = spark.readStream.format("delayq").options(**options).load()
    writer = stream.writeStream.foreachBatch(_Batches(folder, checkpoint)).option("checkpointLocation", checkpoint)
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=interval)
    try:
        run.attend(writer.start(), on_progress or (lambda _: None), endless=not once)
    except PySparkException as error:
        raise error_of(error) or error from error
    return run.result


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Return the events of an archive, with the columns of EVENTS; `ConfigurationError` if there is none."""
    try:
        found = spark.read.schema(EVENTS).parquet(path)
        return found.select(*(column for column in found.columns if column != "part"))
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise ConfigurationError(f"there is no archive at {path}") from error


def forget_archive(queue: str, path: str, *, url: str | None = None, prefix: str = "delayq") -> bool:
    """Let the event log be trimmed without regard to an archive that is given up; returns whether it was known.

    Its files stay. Run once more it is known again.
    """
    options = {"queue": queue, "prefix": prefix} | ({} if url is None else {"url": url})
    target = event_options(options, streaming=True).target
    executor, keys = connect(target), calls_of(target).keys
    folder = path.rstrip("/") or path
    known = executor.call(commands.archives(keys))
    given_up = [one for one, position in known.items() if position.path == folder]
    for one in given_up:
        executor.call(commands.forget_archive(keys, one))
    return bool(given_up)


@dataclass
class _Batches:
    """Writes micro-batches; pickled and sent to the server over Spark Connect."""

    folder: str
    checkpoint: str
    query: str | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write one batch, in place of what an attempt before it may have left."""
        spark = batch.sparkSession  # the query's own: what is set here is not set for others
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        if self.query is None:
            self.query = _query_of(spark, self.checkpoint)
        batch.write.mode("overwrite").parquet(f"{self.folder}/part={self.query}-{number}")


def _query_of(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the id of the query that a checkpoint is of, the same over its restarts; None without a checkpoint."""
    try:
        line = spark.read.text(f"{checkpoint}/metadata").head()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    return None if line is None else str(json.loads(line[0])["id"])


def _check_folder(spark: SparkSession, folder: str, checkpoint: str) -> None:
    """Refuse an archive whose checkpoint is gone: all that it holds would be written again beside it."""
    if _query_of(spark, checkpoint) is not None:
        return
    try:
        holds = spark.read.schema("offset BIGINT").parquet(folder).head() is not None
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return
    if holds:
        raise ConfigurationError(
            f"{folder} holds an archive, but there is no checkpoint at {checkpoint}: give the one it was made with, or"
            " a new folder"
        )
