"""Archives the event log of a queue as Parquet files, exactly once, even if processes are killed.

Each micro-batch overwrites a folder of its own, named after the query and the batch number. A batch repeated after a
crash so replaces what the first attempt left, and every reader of the files finds each event once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyspark.errors import AnalysisException, PySparkException

from delayq.broker.keys import Keys
from delayq.broker.log_entries import MIN_TIME_OFFSET
from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.errors import ConfigurationError
from delayq.options import check_int
from delayq.spark.datasource.connection import calls_of, connect
from delayq.spark.datasource.event_reader import check_log, read_bounds
from delayq.spark.datasource.schemas import EVENTS
from delayq.spark.datasource.source import register
from delayq.spark.datasource.source_options import TargetQueue, as_options, event_options
from delayq.spark.spark_errors import error_of
from delayq.times import Duration, to_millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")

KEEP = 1000
"""Archived entries that trimming leaves in the log, because a power cut may lose files not yet on disk."""
SLICE = 1000
"""Entries trimmed per call; each may describe a thousand messages."""
POLL_INTERVAL = 1
"""Seconds between two polls of a query's progress; Spark keeps that of the last hundred batches."""


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """The result of one run of an archive; if there was nothing new, offsets are None and counts 0."""

    queue: str
    archive: str
    first: int | None
    """The first archived offset."""
    last: int | None
    entries: int | None
    """Log entries; None before Redis 7, which does not number them."""
    events: int
    """Rows: one per message and event."""
    batches: int
    trimmed: int
    """Log entries deleted."""
    kept_for: str | None = None
    """The archive, if another one, that is furthest behind and so prevents further trimming."""

    def facts(self) -> dict[str, Any]:
        """Return the result for programs, ready for JSON."""
        return {name: getattr(self, name) for name in ("archive", "first", "last", "entries", "events", "trimmed")}

    def told(self) -> str:
        """Return the result as a sentence."""
        if not self.batches:
            text = f"nothing new for {self.archive}"
        else:
            text = f"archived {self.events:,} events in {self.archive}, offsets {self.first} to {self.last}"
        if self.trimmed:
            text += f"; trimmed {self.trimmed:,} entries of the log"
        return f"{text}; the log is kept for the archive {self.kept_for}" if self.kept_for else text


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
    """Bring an archive up to date with the event log of a queue; it contains every event exactly once.

    `path` is a folder that Spark can write to. The checkpoint is its subfolder `_checkpoint`, unless `checkpoint` names
    another. If it is killed, the next call continues where it was; until then a reader may see a part of a batch, but
    nothing twice. With `once` it stops at the end that the log had at the start; otherwise it runs a batch `every` so
    often until Ctrl-C. A batch has at most `max_entries` log entries. `on_progress` is called every second.

    With `trim`, archived entries are deleted from the log, except the last `keep` ones and those that another archive
    of this queue still needs. Redis stores the progress of each archive from its first run;
    `forget_archive` removes it.

    This process must reach Redis, like the executors. Raises `ConfigurationError` if the queue does not exist or has no
    event log, or if the path contains an archive without its checkpoint; `EventsLostError` if entries were deleted
    before being read, unless `fail_on_data_loss` is false.
    """
    options = as_options(
        queue=queue,
        url=url,
        urlEnv=url_env,
        prefix=prefix,
        read="events",
        maxEntriesPerBatch=max_entries,
        failOnDataLoss=fail_on_data_loss,
    )
    check_int(keep, "keep", 0, 1 << 53)
    interval = f"{to_millis(every, 'every')} milliseconds"
    target = event_options(options, streaming=True).target
    bounds = check_log(target)
    folder = path.rstrip("/") or path
    checkpoint = checkpoint or f"{folder}/_checkpoint"
    _check_folder(spark, folder, checkpoint)
    register(spark)
    run = ArchiveRun(target, folder, keep if trim else None, bounds.first - 1)
    stream = spark.readStream.format("delayq").options(**options).load()
    writer = stream.writeStream.foreachBatch(_ParquetBatchWriter(folder, checkpoint)).option(
        "checkpointLocation", checkpoint
    )
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=interval)
    try:
        run.wait(writer.start(), on_progress or (lambda _: None), endless=not once)
    except PySparkException as error:
        raise error_of(error) or error from error
    return run.result


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Return the events of an archive, with the columns of EVENTS; raises `ConfigurationError` if there is none."""

    def read() -> DataFrame:
        events = spark.read.schema(EVENTS).parquet(path)
        return events.select(*(column for column in events.columns if column != "part"))

    events = _if_exists(read)
    if events is None:
        raise ConfigurationError(f"there is no archive at {path}")
    return events


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
        """Write one batch, replacing what an earlier attempt may have left."""
        spark = batch.sparkSession  # the query's own session, so settings made here do not leak
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        if self.query is None:
            self.query = _query_of(spark, self.checkpoint)
        batch.write.mode("overwrite").parquet(f"{self.folder}/part={self.query}-{number}")


def _if_exists(read: Callable[[], T]) -> T | None:
    """Return what `read` returns, None if its path does not exist."""
    try:
        return read()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None


def _query_of(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the id of a checkpoint's query, which survives restarts; None without a checkpoint."""
    line = _if_exists(lambda: spark.read.text(f"{checkpoint}/metadata").head())
    return None if line is None else str(json.loads(line[0])["id"])


def _check_folder(spark: SparkSession, folder: str, checkpoint: str) -> None:
    """Refuse an archive whose checkpoint is gone: all of its events would be written a second time."""
    if _query_of(spark, checkpoint) is not None:
        return
    if _if_exists(lambda: spark.read.schema("offset BIGINT").parquet(folder).head()) is not None:
        raise ConfigurationError(
            f"{folder} contains an archive, but there is no checkpoint at {checkpoint}: use the checkpoint it was"
            " written with, or a new folder"
        )


class ArchivePosition(NamedTuple):
    """The progress of an archive: the last offset it holds, and its path."""

    offset: int
    path: str


def archives(keys: Keys) -> RedisCommand[dict[str, ArchivePosition]]:
    """Read the progress of every archive of the event log, by its query."""
    return RedisCommand(("HGETALL", keys.archives), _read_positions)


def _read_positions(reply: Any) -> dict[str, ArchivePosition]:
    stored = {query.decode(): position.decode().partition(" ") for query, position in pairs(reply).items()}
    return {query: ArchivePosition(int(offset), path) for query, (offset, _, path) in stored.items()}


@dataclass
class ArchiveRun:
    """One run of an archive: progress of its query so far, and what was trimmed."""

    target: TargetQueue
    folder: str
    keep: int | None
    """Entries that trimming leaves; None for no trimming."""
    begin: int
    """The offset after which an archive without a checkpoint starts."""
    reports: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Batch → offset before its first entry, offset of its last entry, rows."""
    trimmed: int = 0
    kept_for: str | None = None

    @property
    def result(self) -> ArchiveResult:
        """The result so far."""
        done = [report for report in self.reports.values() if report[0] != report[1]]
        first, last = (done[0][0] + 1, done[-1][1]) if done else (None, None)
        dense = last is None or last < MIN_TIME_OFFSET
        return ArchiveResult(
            queue=self.target.queue,
            archive=self.folder,
            first=first,
            last=last,
            entries=sum(max(end - start, 0) for start, end, _ in done) if dense else None,
            events=sum(rows for *_, rows in done),
            batches=len(done),
            trimmed=self.trimmed,
            kept_for=self.kept_for,
        )

    def wait(self, query: StreamingQuery, on_progress: Callable[[ArchiveResult], object], *, endless: bool) -> None:
        """Wait for the end of a query and trim after it; while it runs, only up to its second-last batch."""
        try:
            self._save_position(str(query.id), None)
            while not query.awaitTermination(POLL_INTERVAL):
                self._follow(query, end=0)
                on_progress(self.result)
        except KeyboardInterrupt:
            query.stop()
            if not endless:
                raise
        except BaseException:
            query.stop()
            raise
        self._follow(query, end=1)
        on_progress(self.result)

    def _follow(self, query: StreamingQuery, *, end: int) -> None:
        """Collect the query's progress, and save the position before (0) or after (1) its last batch."""
        for report in query.recentProgress:
            source = report.sources[0]
            start, last = (json.loads(text or "null") for text in (source.startOffset, source.endOffset))
            if last is not None:
                before = self.begin if start is None else int(start["offset"])
                self.reports[report.batchId] = (before, int(last["offset"]), report.numInputRows)
        if self.reports:
            self._save_position(str(query.id), list(self.reports.values())[-1][end])

    def _save_position(self, name: str, offset: int | None) -> None:
        """Store the archive's progress (`offset=None`: at the start of the run), and trim what all archives have."""
        executor, calls = connect(self.target), calls_of(self.target)
        known = executor.call(archives(calls.keys))
        if offset is None:
            offset = known[name].offset if name in known else self.begin
        known[name] = ArchivePosition(offset, self.folder)
        executor.call(RedisCommand(("HSET", calls.keys.archives, name, f"{offset} {self.folder}"), bool))
        slowest = min(known, key=lambda one: (known[one].offset, one != name))
        if self.keep is not None:
            self.kept_for = None if slowest == name else known[slowest].path
            self.trimmed += _trim(self.target, known[slowest].offset - self.keep)


def _trim(target: TargetQueue, last: int) -> int:
    """Delete the log entries up to an offset, in slices; returns how many."""
    first = read_bounds(target).first
    if first > last:
        return 0
    ends = [*range(first + SLICE, last + 1, SLICE), last + 1] if last < MIN_TIME_OFFSET else [last + 1]
    return sum(connect(target).call(calls_of(target).trim_events(end)) for end in ends)
