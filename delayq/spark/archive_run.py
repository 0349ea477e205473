"""One run of an archive: what its query reports, and how the event log is trimmed behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delayq.answers import LEAST_TIME
from delayq.calls import Calls
from delayq.executor import Executor
from delayq.spark import commands
from delayq.spark.commands import Position
from delayq.spark.connection import calls_of, connect
from delayq.spark.events import log_of
from delayq.spark.options import Target

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

SLICE = 1000
"""Entries trimmed in one call: each may tell of a thousand messages."""
LOOK = 1
"""Seconds between two looks at a query; Spark remembers the last hundred batches."""


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What one run of an archive did; offsets are None and counts 0 if there was nothing new."""

    queue: str
    archive: str
    first: int | None
    """The first offset that was archived."""
    last: int | None
    entries: int | None
    """Entries of the log; None where a Redis before 7 does not number them."""
    events: int
    """Rows: one for each message and event."""
    batches: int
    trimmed: int
    """Entries deleted from the log."""
    kept_for: str | None = None
    """The archive that has come least far and so keeps the log from being trimmed further, if it is another one."""

    def facts(self) -> dict[str, Any]:
        """Return what a program wants to know, as JSON can hold it."""
        return {name: getattr(self, name) for name in ("archive", "first", "last", "entries", "events", "trimmed")}

    def told(self) -> str:
        """Return it as a sentence."""
        if not self.batches:
            text = f"nothing new for {self.archive}"
        else:
            text = f"archived {self.events:,} events in {self.archive}, offsets {self.first} to {self.last}"
        if self.trimmed:
            text += f"; trimmed {self.trimmed:,} entries of the log"
        return f"{text}; the log is kept for the archive {self.kept_for}" if self.kept_for else text


@dataclass
class ArchiveRun:
    """One run of an archive: what its query has reported, and what was trimmed behind it."""

    target: Target
    folder: str
    keep: int | None
    """Entries to leave when trimming, None for no trimming."""
    begin: int
    """The offset behind which an archive without a checkpoint begins."""
    reports: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Batch → offset behind which it began, offset of its end, rows."""
    trimmed: int = 0
    kept_for: str | None = None

    @property
    def result(self) -> ArchiveResult:
        """What has been done so far."""
        done = [report for report in self.reports.values() if report[0] != report[1]]
        first, last = (done[0][0] + 1, done[-1][1]) if done else (None, None)
        dense = last is None or last < LEAST_TIME
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

    def attend(self, query: StreamingQuery, tell: Callable[[ArchiveResult], object], *, endless: bool) -> None:
        """Wait for the end of a query, and trim behind it: while it runs, only what the batch before the last wrote."""
        name = str(query.id)
        try:
            self._note(name, None)
            while not query.awaitTermination(LOOK):
                self._take(query)
                if self.reports:
                    self._note(name, list(self.reports.values())[-1][0])
                tell(self.result)
        except KeyboardInterrupt:
            query.stop()
            if not endless:
                raise
        except BaseException:
            query.stop()
            raise
        self._take(query)
        if self.reports:
            self._note(name, list(self.reports.values())[-1][1])
        tell(self.result)

    def _take(self, query: StreamingQuery) -> None:
        for report in query.recentProgress:
            start, end = (
                json.loads(text or "null") for text in (report.sources[0].startOffset, report.sources[0].endOffset)
            )
            if end is not None:
                behind = self.begin if start is None else int(start["offset"])
                self.reports[report.batchId] = (behind, int(end["offset"]), report.numInputRows)

    def _note(self, name: str, offset: int | None) -> None:
        """Note how far the archive has come, at its start where it begins, and trim what every archive has."""
        executor, calls = connect(self.target), calls_of(self.target)
        known = executor.call(commands.archives(calls.keys))
        if offset is None:
            offset = known[name].offset if name in known else self.begin
        known[name] = Position(offset, self.folder)
        executor.call(commands.note_archive(calls.keys, name, known[name]))
        last = min(known, key=lambda one: (known[one].offset, one != name))
        if self.keep is not None:
            self.kept_for = None if last == name else known[last].path
            self.trimmed += _trim(executor, calls, self.target, known[last].offset - self.keep)


def _trim(executor: Executor, calls: Calls, target: Target, last: int) -> int:
    """Delete the entries of the log up to an offset, a slice at a time; returns how many."""
    first = log_of(target).first
    if not 0 < first <= last:
        return 0
    ends = [*range(first + SLICE, last + 1, SLICE), last + 1] if last < LEAST_TIME else [last + 1]
    return sum(executor.call(calls.trim_events(end)) for end in ends)
