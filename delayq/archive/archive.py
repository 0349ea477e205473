"""Archives the event log of a queue as Parquet files, exactly once, even if processes are killed.

The end of a batch is noted in the archive's facts before its files are written, and that they are there after it. So a
batch that a kill interrupted is written again, up to the same end. See `archive_files` for the layout.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from threading import Event

from delayq.archive.archive_files import SCHEMA_VERSION, Undone, check_version, oldest_version, undone_of
from delayq.archive.archive_folder import Folder, in_use
from delayq.archive.archive_position import Position, archives, position_of_spark
from delayq.archive.archive_run import ArchiveResult, ArchiveRun
from delayq.archive.compaction import check_retain
from delayq.archive.log_follower import LogFollower, Offset
from delayq.archive.log_gaps import missing
from delayq.archive.log_reader import check_log, read_bounds
from delayq.archive.rollback import cut_back
from delayq.archive.sql_engine import DuckDB
from delayq.archive.stored_events import open_archive
from delayq.broker.requests import RedisCommand
from delayq.bulk.connection import calls_of, connect, target_of
from delayq.errors import ConfigurationError, EventsLostError
from delayq.safe_log import SafeLog
from delayq.values.checks import check_int
from delayq.values.times import Duration, monotonic, to_millis

log = SafeLog("delayq.archive")

POLL_INTERVAL = 0.2
"""Seconds between two looks at how far another process is."""
KEEP = 1000
"""Archived entries that trimming leaves in the log, because a power cut may lose files not yet on disk."""


def archive(
    queue: str,
    path: str,
    *,
    url: str | None = None,
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
    wait: Duration | None = None,
    on_progress: Callable[[ArchiveResult], object] | None = None,
    stop: Event | None = None,
) -> ArchiveResult:
    """Bring an archive up to date with the event log of a queue; it contains every event exactly once.

    `path` is a local folder or a URL that Arrow can write to (`s3://`, `gs://`, `abfss://`, `hdfs://`). If it is
    killed, the next call continues where it was; one process at a time archives to a folder. With `once` it stops at
    the end
    that the log had at the start; otherwise it runs a batch `every` so often until Ctrl-C, or until `stop` is set. A
    batch has at most `max_entries` log entries, and at most `max_events` events unless its only entry has more.
    `on_progress` is called after each batch. With `wait`, another process that archives to the folder is no error: it
    has so long to reach the end that the log has now.

    Each batch is a small file, and once an hour they are merged into one for each day (in UTC): by the follower, or at
    the end of a run; see `compact_archive`, also for `retain`. `delayq.spark.read_archive` and `open_archive` read
    both. Other programs read the merged files, `day=*/*.parquet`.

    With `trim`, archived entries are deleted from the log, except the last `keep` ones and those that another archive
    of this queue still needs. Redis stores the progress of each archive from its first run;
    `forget_archive` removes it.

    If Redis has lost its last entries after they were archived (a crash, a failover), their events are moved to the
    subfolder `_undone`, the entries that now have their offsets are archived, and the result tells of it: see `undone`.

    An archive that an older delayq wrote with Spark is continued; `checkpoint` is where it noted its progress, if not
    in the subfolder `_checkpoint`. That delayq refuses the archive then.

    In the middle of a batch, Ctrl-C and SIGKILL are alike: the next call writes it again.

    Raises `ConfigurationError` if the queue does not exist or has no event log, if the path cannot be written to, is
    being archived to, or contains an archive without its progress; `EventsLostError` if entries were deleted before
    being read, unless `fail_on_data_loss` is false: then the result tells which; and if the log was deleted and begins
    anew, for which a new folder is needed.
    """
    target = target_of(queue, url, prefix, None)
    check_int(keep, "keep", 0, 1 << 53)
    follower = LogFollower(
        target,
        check_int(max_entries, "max_entries", 1, 1 << 53),
        check_int(max_events, "max_events", 1, 1 << 53),
        fail_on_data_loss=fail_on_data_loss,
        fail_on_rollback=True,
    )
    kept, interval = check_retain(retain), to_millis(every, "every") / 1000
    bounds = check_log(target)
    path = path.rstrip("/") or path
    folder = Folder.made(path)
    stop, done = stop or Event(), list[Undone]()
    with folder.writing() as is_free:
        if not is_free:
            if wait is None:
                raise in_use(path)
            _await_other(folder, path, bounds.last, to_millis(wait, "wait"))
            return ArchiveResult(queue, path)
        position = _position(folder, path, checkpoint, {"queue": queue, "offset": bounds.first - 1})
        tell = on_progress or (lambda _: None)
        run = ArchiveRun(follower, folder, path, position, keep if trim else None, kept, tell, stop)
        until = bounds.last
        # Whether it is the same log is looked at below, so nothing is trimmed before.
        run.save_position(trims=False)
        while True:
            try:
                run.catch_up(until if once else 1 << 62)
            except EventsLostError as error:
                one = cut_back(target, path, folder)
                if one is None:
                    raise
                log.warning("%s: %s (%s)", path, one.told(), error)
                done.append(one)
                run.position = _position(folder, path, checkpoint, {"queue": queue, "offset": one.first - 1})
                until = read_bounds(target).last
                continue
            run.save_position(trims=True)
            run.compact(is_due=once or stop.is_set())
            tell(run.result)
            if once or stop.wait(interval):
                break
    result = replace(run.result, undone=tuple(done))
    if fail_on_data_loss or result.first is None or result.last is None:
        return result
    engine = DuckDB()
    events = open_archive(path).table(engine)
    return replace(result, lost=tuple(missing(engine, events, result.first, result.last)))


def forget_archive(queue: str, path: str, *, url: str | None = None, prefix: str = "delayq") -> bool:
    """Stop keeping log entries for an archive that is no longer needed; returns whether it was known.

    Its files stay. If it is run again, it is known again.
    """
    target = target_of(queue, url, prefix, None)
    executor, keys = connect(target), calls_of(target).keys
    folder = path.rstrip("/") or path
    queries = [query for query, position in executor.call(archives(keys)).items() if position.path == folder]
    if queries:
        executor.call(RedisCommand(("HDEL", keys.archives, *queries), int))
    return bool(queries)


def archive_start(path: str) -> datetime | None:
    """Return the time before which `retain` has deleted the events of an archive; None if it has deleted none."""
    return open_archive(path).begin


def undone(path: str) -> list[Undone]:
    """Return the roll-backs that an archive has seen, the first one first: events that a crash of Redis has undone."""
    return open_archive(path).undone


def _await_other(folder: Folder, path: str, last: int, timeout: int) -> None:
    """Wait until another process has archived up to an offset, some milliseconds at most."""
    end = monotonic() + timeout / 1000
    while (position := Position.of(folder.facts())) is None or position.at["offset"] < last:
        if monotonic() >= end:
            raise in_use(path)
        time.sleep(POLL_INTERVAL)


def _position(folder: Folder, path: str, checkpoint: str | None, begin: Offset) -> Position:
    """Return how far the archive is; `begin` is where a new one begins.

    Refuse an archive whose progress is unknown: all of its events would be written a second time.
    """
    facts = folder.facts()
    check_version(facts, path)
    undone = undone_of(facts)
    position = Position.of(facts)
    if position is None:
        checkpoint = f"{checkpoint or f'{path}/_checkpoint'}" + (f"-{len(undone)}" if undone else "")
        begin = begin | ({"offset": undone[-1].first - 1} if undone else {})
        position = position_of_spark(checkpoint, begin)
        ended = facts.get("ended", ())
        # After a roll-back there is no progress until the next query begins.
        if position is None and any(file.query not in ended for file in folder.divided()[0]):
            raise ConfigurationError(
                f"{path} contains an archive, but there is no checkpoint at {checkpoint}: use the checkpoint it was"
                " written with, or a new folder"
            )
    if position is None or position.query in facts.get("ended", ()):
        position = Position.new(begin)
    if facts.get("schema") != SCHEMA_VERSION:
        oldest = oldest_version(facts) if folder.files() else SCHEMA_VERSION
        folder.change_facts(lambda _: {"schema": SCHEMA_VERSION, "oldest": oldest, "queue": begin["queue"]})
    folder.note_position(facts.get("position"), position._asdict())
    return position
