"""One run of an archive: the progress of its query, in Redis too, and the log trimmed behind all archives."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from delayq.broker.event_log import MIN_TIME_OFFSET, trim_events
from delayq.broker.keys import Keys
from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.bulk.connection import TargetQueue, calls_of, connect
from delayq.errors import DelayqError, QueueFullError
from delayq.safe_log import SafeLog
from delayq.spark.datasource.compat import offset_of_progress
from delayq.spark.datasource.event_reader import read_bounds
from delayq.spark.datasource.log_gaps import Gap, told
from delayq.spark.pipelines.archiving.compaction import DUE_AFTER, compact_if_due
from delayq.spark.pipelines.archiving.rollback import Undone
from delayq.values.times import monotonic

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = SafeLog("delayq.spark")

SLICE = 1000
"""Entries trimmed per call; each may describe a thousand messages."""
POLL_INTERVAL = 1
"""Seconds between two polls of a query's progress; Spark keeps that of the last hundred batches."""
STORE_TIMEOUT = 1.0
"""Seconds for which a full Redis is asked again to store a position."""
STOP_TIMEOUT = 60.0
"""Seconds that Ctrl-C waits for the batch in progress; a second Ctrl-C does not wait."""


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
    lost: tuple[Gap, ...] = ()
    """What was deleted from the log before this run could read it, as first and last offsets."""
    undone: tuple[Undone, ...] = ()
    """What a crash of the server has undone since it was archived: it was moved out of the archive."""

    def facts(self) -> dict[str, Any]:
        """Return the result for programs, ready for JSON."""
        names = ("archive", "first", "last", "entries", "events", "trimmed")
        facts = {name: getattr(self, name) for name in names}
        return facts | {name: [list(one) for one in getattr(self, name)] for name in ("lost", "undone")}

    def told(self) -> str:
        """Return the result as a sentence."""
        if not self.batches:
            text = f"nothing new for {self.archive}"
        else:
            text = f"archived {self.events:,} events in {self.archive}, offsets {self.first} to {self.last}"
        if self.lost:
            text += f"; the log had lost {told(self.lost)}"
        text += "".join(f"; {one.told()}" for one in self.undone)
        if self.trimmed:
            text += f"; trimmed {self.trimmed:,} entries of the log"
        return f"{text}; the log is kept for the archive {self.kept_for}" if self.kept_for else text


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
    compacts: bool = False
    """Whether to merge the files once an hour, and at the end if that was not done for an hour."""
    retain: timedelta | None = None
    reports: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Batch → offset before its first entry, offset of its last entry, rows."""
    trimmed: int = 0
    kept_for: str | None = None
    _compacted: float | None = None

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
            self._save_position(str(query.id), None, trims=False)  # the query has not looked whether it is the same log
            while not query.awaitTermination(POLL_INTERVAL):
                self._follow(query, end=0)
                on_progress(self.result)
                if endless and (self._compacted is None or monotonic() - self._compacted > DUE_AFTER.total_seconds()):
                    self._compact()
        except KeyboardInterrupt:
            _stop_between_batches(query)
            if not endless:
                raise
        except BaseException:
            query.stop()
            raise
        self._follow(query, end=1)
        if not self.reports:
            self._save_position(str(query.id), None)
        self._compact()
        on_progress(self.result)

    def _follow(self, query: StreamingQuery, *, end: int) -> None:
        """Collect the query's progress, and save the position before (0) or after (1) its last batch."""
        for report in query.recentProgress:
            source = report.sources[0]
            start, last = map(offset_of_progress, (source.startOffset, source.endOffset))
            if last is not None:
                before = self.begin if start is None else int(start["offset"])
                self.reports[report.batchId] = (before, int(last["offset"]), report.numInputRows)
        if self.reports:
            self._save_position(str(query.id), list(self.reports.values())[-1][end])

    def _compact(self) -> None:
        """Merge small files; without success the archive is complete as well, and the next time does it."""
        if not self.compacts:
            return
        self._compacted = monotonic()
        try:
            if compact_if_due(self.folder, self.retain) is None:
                log.warning("the small files of %s are not merged: this process does not reach the folder", self.folder)
        except (OSError, pa.ArrowException) as error:
            log.warning("the small files of %s are not merged, for now: %s", self.folder, error)

    def _save_position(self, name: str, offset: int | None, *, trims: bool = True) -> None:
        """Trim what all archives have, and store the archive's progress (`offset=None`: at the start of the run).

        A full Redis cannot store it, but can trim. Then the position there is an older one, which keeps more.
        """
        executor, calls = connect(self.target), calls_of(self.target)
        known = executor.call(archives(calls.keys))
        if offset is None:
            offset = known[name].offset if name in known else self.begin
        # The same archive, before the log was rolled back.
        former = [one for one, position in known.items() if position.path == self.folder and one != name]
        for one in former:
            del known[one]
        known[name] = ArchivePosition(offset, self.folder)
        slowest = min(known, key=lambda one: (known[one].offset, one != name))
        if self.keep is not None and trims:
            self.kept_for = None if slowest == name else known[slowest].path
            self.trimmed += _trim(self.target, known[slowest].offset - self.keep)
        store = RedisCommand(("HSET", calls.keys.archives, name, f"{offset} {self.folder}"), bool)
        (stored,) = executor.run([store], deadline=STORE_TIMEOUT)
        if isinstance(stored, QueueFullError):
            log.warning("Redis is full: it does not know yet how far the archive %s is", self.folder)
        elif isinstance(stored, DelayqError):
            raise stored
        elif former:
            executor.call(RedisCommand(("HDEL", calls.keys.archives, *former), int))


def _stop_between_batches(query: StreamingQuery) -> None:
    """Stop a query once its batch is done: stopped within a batch, Java prints a trace of a thousand lines."""
    try:
        deadline = monotonic() + STOP_TIMEOUT
        while query.status["isTriggerActive"] and monotonic() < deadline:
            time.sleep(0.05)
    finally:
        query.stop()


def _trim(target: TargetQueue, last: int) -> int:
    """Delete the log entries up to an offset, in slices; returns how many."""
    first = read_bounds(target).first
    if first > last:
        return 0
    ends = [*range(first + SLICE, last + 1, SLICE), last + 1] if last < MIN_TIME_OFFSET else [last + 1]
    return sum(connect(target).call(trim_events(calls_of(target), end)) for end in ends)
