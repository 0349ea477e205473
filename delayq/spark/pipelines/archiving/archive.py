"""Archives the event log of a queue as Parquet files, exactly once, even if processes are killed.

Each micro-batch overwrites a folder of its own, named after the query and the batch number. So a batch repeated after a
crash replaces what the first attempt left. See `archive_files` for the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from delayq.broker.requests import RedisCommand
from delayq.bulk.connection import calls_of, connect
from delayq.errors import ConfigurationError, EventsLostError
from delayq.safe_log import SafeLog
from delayq.spark.datasource.event_reader import check_log
from delayq.spark.datasource.log_gaps import missing
from delayq.spark.datasource.schemas import IMPORTED, LIFE_STARTS, NOTES, OF_ENTRIES
from delayq.spark.datasource.source import register
from delayq.spark.datasource.source_options import as_options, event_options
from delayq.spark.pipelines.archiving.archive_files import RECENT, SCHEMA_VERSION, oldest_version
from delayq.spark.pipelines.archiving.archive_reader import (
    archive_facts,
    event_files,
    query_of,
    read_archive,
    write_facts,
)
from delayq.spark.pipelines.archiving.archive_run import ArchiveResult, ArchiveRun, archives
from delayq.spark.pipelines.archiving.compaction import check_retain
from delayq.spark.pipelines.archiving.rollback import Undone, cut_back, undone_of
from delayq.spark.pipelines.message_lives import DEATHS, SETTLED, STEP
from delayq.spark.spark_errors import error_of
from delayq.values.checks import check_int
from delayq.values.times import Duration, to_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


log = SafeLog("delayq.spark")

KEEP = 1000
"""Archived entries that trimming leaves in the log, because a power cut may lose files not yet on disk."""


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
    max_events: int = 1_000_000,
    fail_on_data_loss: bool = True,
    retain: Duration | None = None,
    on_progress: Callable[[ArchiveResult], object] | None = None,
) -> ArchiveResult:
    """Bring an archive up to date with the event log of a queue; it contains every event exactly once.

    `path` is a folder that Spark can write to. The checkpoint is its subfolder `_checkpoint`, unless `checkpoint` names
    another. If it is killed, the next call continues where it was. With `once` it stops at the end that the log had at
    the start; otherwise it runs a batch `every` so often until Ctrl-C. A batch has at most `max_entries` log entries,
    and at most `max_events` events unless its only entry has more; before PySpark 4.2 it has all that there is.
    `on_progress` is called every second.

    Each batch is a small file, and once an hour they are merged into one for each day (in UTC): by the follower, or at
    the end of a run, if this process reaches the folder; see `compact_archive`, also for `retain`. `read_archive` reads
    both. Other programs read the merged files, `day=*/*.parquet`.

    With `trim`, archived entries are deleted from the log, except the last `keep` ones and those that another archive
    of this queue still needs. Redis stores the progress of each archive from its first run;
    `forget_archive` removes it.

    If Redis has lost its last entries after they were archived (a crash, a failover), their events are moved to the
    subfolder `_undone`, the entries that now have their offsets are archived, and the result tells of it: see `undone`.
    This process must reach the folder for that.

    This process must reach Redis, like the executors. Raises `ConfigurationError` if the queue does not exist or has no
    event log, or if the path contains an archive without its checkpoint; `EventsLostError` if entries were deleted
    before being read, unless `fail_on_data_loss` is false: then the result tells which; and if the log was deleted and
    begins anew, for which a new folder is needed.
    """
    options = as_options(
        queue=queue,
        url=url,
        urlEnv=url_env,
        prefix=prefix,
        read="events",
        maxEntriesPerBatch=max_entries,
        maxEventsPerBatch=max_events,
        failOnDataLoss=fail_on_data_loss,
        failOnRollback=True,
    )
    check_int(keep, "keep", 0, 1 << 53)
    kept = check_retain(retain)
    interval = f"{to_millis(every, 'every')} milliseconds"
    target = event_options(options, streaming=True).target
    bounds = check_log(target)
    folder = path.rstrip("/") or path
    checkpoint = checkpoint or f"{folder}/_checkpoint"
    register(spark)
    found, trimmed = list[Undone](), 0
    while True:
        undone = _check_folder(spark, folder, checkpoint, queue)
        progress = _checkpoint(checkpoint, undone)
        begin = undone[-1].first - 1 if undone else bounds.first - 1
        first = {"startingOffset": str(begin + 1)} if undone else {}
        run = ArchiveRun(target, folder, keep if trim else None, begin, compacts=True, retain=kept, trimmed=trimmed)
        stream = spark.readStream.format("delayq").options(**options, **first).load()
        writer = stream.writeStream.foreachBatch(_ParquetBatchWriter(folder, progress))
        writer = writer.option("checkpointLocation", progress)
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=interval)
        try:
            run.wait(writer.start(), on_progress or (lambda _: None), endless=not once)
            break
        except PySparkException as error:
            cause = error_of(error)
            one = cut_back(spark, target, folder) if isinstance(cause, EventsLostError) else None
            if one is None:
                raise cause or error from error
            log.warning("%s: %s", folder, one.told())
            found.append(one)
            trimmed = run.trimmed
    result = replace(run.result, undone=tuple(found))
    if fail_on_data_loss or result.first is None or result.last is None:
        return result
    return replace(result, lost=tuple(missing(read_archive(spark, folder), result.first, result.last)))


def _checkpoint(checkpoint: str, undone: Sequence[Undone]) -> str:
    """Return where the query stores its progress: each roll-back of the log has ended one."""
    return f"{checkpoint}-{len(undone)}" if undone else checkpoint


def forget_archive(queue: str, path: str, *, url: str | None = None, prefix: str = "delayq") -> bool:
    """Stop keeping log entries for an archive that is no longer needed; returns whether it was known.

    Its files stay. If it is run again, it is known again.
    """
    target = event_options(as_options(queue=queue, prefix=prefix, url=url), streaming=True).target
    executor, keys = connect(target), calls_of(target).keys
    folder = path.rstrip("/") or path
    queries = [query for query, position in executor.call(archives(keys)).items() if position.path == folder]
    if queries:
        executor.call(RedisCommand(("HDEL", keys.archives, *queries), int))
    return bool(queries)


@dataclass
class _ParquetBatchWriter:
    """Writes micro-batches to Parquet; pickled and sent to the server over Spark Connect."""

    folder: str
    checkpoint: str
    query: str | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write one batch, a file for each day it has, replacing what an earlier attempt may have left."""
        spark = batch.sparkSession  # the query's own session, so settings made here do not leak
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "4")  # instead of sorting by day
        if self.query is None:
            self.query = query_of(spark, self.checkpoint)
        day = F.date_from_unix_date(F.expr("CAST(unix_micros(event_at) DIV 86400000000 AS INT)"))  # in UTC
        files = batch.withColumn("day", day).coalesce(1).write.partitionBy("day").mode("overwrite")
        files.parquet(f"{self.folder}/{RECENT}/part={self.query}-{number}")


def _check_folder(spark: SparkSession, folder: str, checkpoint: str, queue: str) -> list[Undone]:
    """Return the roll-backs of the log that the archive has seen.

    Refuse an archive whose checkpoint is gone: all of its events would be written a second time.
    """
    known = archive_facts(spark, folder)
    files = event_files(spark, folder, known)
    undone = undone_of(known)
    checkpoint = _checkpoint(checkpoint, undone)
    # After a roll-back there is none until the next query begins.
    if any(file.query not in known.get("ended", ()) for file in files) and query_of(spark, checkpoint) is None:
        raise ConfigurationError(
            f"{folder} contains an archive, but there is no checkpoint at {checkpoint}: use the checkpoint it was"
            " written with, or a new folder"
        )
    if known.get("schema") != SCHEMA_VERSION:
        oldest = oldest_version(known) if files else SCHEMA_VERSION
        write_facts(spark, folder, known | {"schema": SCHEMA_VERSION, "oldest": oldest, "queue": queue})
    return undone


LATENESS = "(unix_micros(event_at) - unix_micros(due)) / 1000"


def create_views(
    spark: SparkSession, path: str, *, prefix: str = "", start: datetime | None = None, until: datetime | None = None
) -> tuple[str, ...]:
    """Create temporary views of an archive, for `spark.sql`; returns their names.

    * `events`: the archive, one row per message and event.
    * `lives`: one row per life of a message. A send, a replacement and a redrive each begin one.
    * `lateness`: one row per delivery.

    Their names begin with `prefix`; views of these names are replaced. They have the events that the archive has now,
    or those of a period, and can be used for an hour: call it again for newer ones. Raises as `read_archive` does.
    """
    events = read_archive(spark, path, start=start, until=until)
    views = {"events": events, "lives": lives(events), "lateness": lateness(events)}
    for name, view in views.items():
        view.createOrReplaceTempView(f"{prefix}{name}")
    return tuple(f"{prefix}{name}" for name in views)


def lives(events: DataFrame) -> DataFrame:
    """Return one row for each life of a message, by the events that it has.

    `life` counts from 1 for each id; 0 is one that began before the first event, so `begun_by` and `begun_at` are null.
    `due` is the last one set. `outcome` is acked, discarded, dead, cancelled, purged or replaced, and null while the
    life goes on. `lateness_ms` is that of the first delivery. `error` is the last one.
    """
    order, place = ("log_offset", "entry_index"), "struct(log_offset, entry_index)"
    starts = f"kind IN {LIFE_STARTS}"
    of_id = Window.partitionBy("id")
    steps = events.where(f"id IS NOT NULL AND kind NOT IN {(*OF_ENTRIES, IMPORTED, *NOTES)}").select(
        *("id", *order, "event_at", "kind", "due", "attempt", "run", "reason", "error"),
        F.expr(f"{STEP} AS step"),
        F.count_if(F.expr(starts)).over(of_id.orderBy(*order)).alias("life"),
    )
    columns = (
        f"first(kind) FILTER (WHERE {starts}) AS begun_by",
        f"min(event_at) FILTER (WHERE {starts}) AS begun_at",
        f"max_by(run, {place}) FILTER (WHERE {starts}) AS run",
        f"max_by(due, {place}) FILTER (WHERE due IS NOT NULL) AS due",
        f"min_by(event_at, {place}) FILTER (WHERE kind = 'delivered') AS first_delivered_at",
        f"min_by({LATENESS}, {place}) FILTER (WHERE kind = 'delivered') AS lateness_ms",
        "count_if(kind = 'delivered') AS deliveries",
        "max(attempt) AS attempts",
        f"max_by(reason, {place}) FILTER (WHERE kind = 'dead') AS reason",
        f"max_by(error, {place}) FILTER (WHERE error IS NOT NULL) AS error",
        f"max_by(step, {place}) AS last",
        f"max_by(event_at, {place}) AS last_event_at",
        "max(log_offset) AS last_offset",
    )
    each = steps.groupBy("id", "life").agg(*map(F.expr, columns))
    purge = events.where("kind = 'purged'").agg(
        F.max("log_offset").alias("purge_offset"), F.max("event_at").alias("purged_at")
    )
    following = of_id.orderBy("life")
    judged = each.crossJoin(F.broadcast(purge)).withColumns(
        {
            "next_begun_by": F.lead("begun_by").over(following),
            "next_begun_at": F.lead("begun_at").over(following),
            "by_itself": F.expr(
                f"""CASE WHEN last IN {SETTLED} OR last = 'cancelled' THEN last
                WHEN last IN {DEATHS} THEN 'dead' END"""
            ),
        }
    )
    outcome = """CASE WHEN by_itself IS NOT NULL THEN by_itself WHEN next_begun_by = 'replaced' THEN 'replaced'
        WHEN last_offset < purge_offset THEN 'purged' END"""
    return judged.withColumn("outcome", F.expr(outcome)).selectExpr(
        *("id", "life", "begun_by", "begun_at", "due", "run", "deliveries", "attempts"),
        *("first_delivered_at", "lateness_ms", "outcome"),
        """CASE outcome WHEN 'replaced' THEN next_begun_at WHEN 'purged' THEN purged_at ELSE
            if(outcome IS NULL, NULL, last_event_at) END AS ended_at""",
        *("reason", "error"),
    )


def lateness(events: DataFrame) -> DataFrame:
    """Return one row for each delivery; later attempts than the first wait for a nack delay or an expired lease."""
    return events.where("kind = 'delivered'").selectExpr(
        *("id", "attempt", "due", "event_at AS delivered_at", f"{LATENESS} AS lateness_ms", "holder")
    )
