"""The run of a load, with Spark or without: its horizon, its record in the ledger, its result, and errors about it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from delayq.broker.batches import batched
from delayq.broker.message.ids import new_id
from delayq.broker.transport.operation import together
from delayq.bulk.connection import TargetQueue, calls_of, connect, context_of, open_queue, partitions_of
from delayq.errors import ConfigurationError, DelayqError, NoReplyError, short_repr
from delayq.queue.partitioned.merging import merged_run
from delayq.queue.placing.layout import by_partition
from delayq.queue.sweeps.bulk_runs import RunInfo, begin_run, end_run, list_runs
from delayq.values.text import pluralize
from delayq.values.times import Duration, timestamp, to_millis


@dataclass(frozen=True, slots=True)
class Loaded(RunInfo):
    """The result of a load: its record in the run ledger, and the counts of rows not sent."""

    past: int = 0
    """Rows due before `start`."""
    later: int = 0
    """Rows due at `until` or after it."""
    cancelled: int = 0
    """Messages that the plan no longer contains and that this load cancelled, or withdrew from the cold tier."""
    too_late: int = 0
    """Messages that the plan no longer contains but that are in flight or dead, so could not be cancelled."""
    unremembered: int = 0
    """Messages beyond the settled ids that the queue remembers (`dedupe_max`): a repeated load may send these again."""

    def facts(self) -> dict[str, Any]:
        """Return all fields by name, ready for JSON."""
        return {name: at.isoformat() if isinstance(at, datetime) else at for name, at in asdict(self).items()}

    def told(self) -> str:
        """Return the result as a sentence."""
        parts = [f"{number:,} {what}" for what, number in self._counts().items() if number or what == "new"]
        told = f"run {self.run}: {', '.join(parts)}"
        if not self.unremembered:
            return told
        return (
            f"{told}; the queue remembers settled ids of {self.sent - self.unremembered:,} messages only: raise"
            f" dedupe_max, else this load, repeated after they have ended, may send {self.unremembered:,} again"
        )

    def _counts(self) -> dict[str, int]:
        return {
            "new": self.new,
            "already there": self.exists + self.running,
            "replaced": self.replaced,
            "already settled": self.settled,
            "refused": self.refused,
            "past": self.past,
            "later": self.later,
            "cancelled": self.cancelled,
            "too late to cancel": self.too_late,
        }

    def _repr_html_(self) -> str:
        """Return the result as a table, which notebooks show."""
        facts = {"run": self.run, "state": self.state}
        facts |= {what: f"{number:,}" for what, number in self._counts().items() if number or what == "new"}
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
        return f"<table>{rows}</table>"


UNKNOWN = "-"
"""The source of a table that is not read from files."""
CANCEL_BATCH = 200
"""Ids cancelled per call."""

When = datetime | str
"""A time, or a text such as `"now"` or `"+1d"`: see `load`."""


def digest_of(files: Iterable[str]) -> str:
    """Return a digest of the URIs of a table's files, by which its loads are recognized."""
    listed = sorted(map(unquote, files))  # Java and Python escape different characters
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16] if listed else UNKNOWN


def file_uri(path: str | Path) -> str:
    """Return the URI of a file, whether or not its path is relative or contains `..`."""
    return Path(os.path.abspath(path)).as_uri()  # noqa: PTH100 - without "..", and without following links


def window_of(dedupe_window: Duration | None) -> int | None:
    """Return a dedupe window in milliseconds."""
    return None if dedupe_window is None else to_millis(dedupe_window, "dedupe_window")


def begin_load(
    target: TargetQueue,
    start: When | None,
    until: When | None,
    *,
    run: str | None,
    source: str,
    has_due: bool,
    dedupe_window: int | None,
) -> LoadRun:
    """Open the queue, resolve the horizon and begin the run; without a name, resume that of the same files.

    `dedupe_window` in milliseconds. Raises `ConfigurationError` for an invalid horizon, also of a table without `due`.
    """
    open_queue(target, dedupe_window)
    if not has_due and start == "now":
        start = None  # all are due at once
    first, last = horizon(target, start, until)
    if not (first is last is None or has_due):
        raise ConfigurationError("start and until need a column due, which the table does not have")
    executor, contexts = connect(target), [context_of(one) for one in partitions_of(target)]
    if run is None:
        unfinished = (info for info in executor.perform(list_runs(contexts[0])) if info.state != "committed")
        run = next((info.run for info in unfinished if info.source == source != UNKNOWN), new_id())
    for context in contexts:
        executor.perform(begin_run(context, run, start=first, until=last, source=source))
    return LoadRun(target, run, first, last)


def horizon(target: TargetQueue, start: When | None, until: When | None) -> tuple[int | None, int | None]:
    """Return both ends in milliseconds since 1970; raises `ConfigurationError` if nothing can lie between them."""
    now = connect(target).call(calls_of(target).time())
    first = None if start is None else resolve(start, "start", now)
    last = None if until is None else resolve(until, "until", now if first is None else first)
    if first is not None and last is not None and first >= last:
        raise ConfigurationError(f"until {short_repr(until)} must be after start {short_repr(start)}")
    return first, last


def resolve(when: When, name: str, base: int) -> int:
    """Return a time in milliseconds since 1970; a relative one counts from `base`."""
    if not isinstance(when, str):
        return timestamp(when, name)
    if when == "now":
        return base
    if when.startswith(("+", "-")):
        return base + int(f"{when[0]}{to_millis(when[1:], name)}")
    try:
        at = datetime.fromisoformat(when)
    except ValueError:
        allowed = "'now', '+1d', '-2h' or a time such as 2026-01-31T09:00:00+00:00"
        raise ConfigurationError(f"{name} must be {allowed}, not {short_repr(when)}") from None
    return timestamp(at, name)


def cancel_ids(target: TargetQueue, ids: Iterable[str]) -> str:
    """Cancel messages in one round trip; returns their statuses, in any order."""
    targets, listed = partitions_of(target), list(ids)
    cancels = [
        calls_of(targets[number]).cancel(part)
        for number, rows in by_partition(listed, len(targets)).items()
        for part in batched((listed[at] for at in rows), CANCEL_BATCH)
    ]
    return "".join(connect(target).perform(together(cancels)))


@dataclass(frozen=True, slots=True)
class LoadRun:
    """The run of a load that has begun."""

    target: TargetQueue
    name: str
    first: int | None
    """Milliseconds since 1970: the load sends what is due from then on."""
    last: int | None
    """The end, exclusive."""
    verb: str = "load"
    """What to do again if it fails."""

    @property
    def has_horizon(self) -> bool:
        """Whether the load leaves out rows by their time."""
        return not (self.first is self.last is None)

    def commit(self, refusals: Iterable[tuple[str, str]], refused: int) -> None:
        """Mark the run committed, and store its refusals."""
        self._end(refusals=refusals, refused=refused)

    def abort(self, error: Exception) -> None:
        """Mark the run aborted, if Redis replies."""
        if not isinstance(error, NoReplyError):
            with suppress(DelayqError):
                self._end(aborted=True)

    @contextmanager
    def telling_what_is_stored(self) -> Iterator[None]:
        """Abort the run if the block fails: the text of the error, or the note of an interrupt, says what is stored."""
        try:
            yield
        except DelayqError as error:
            self.abort(error)
            raise self.failure(error) from error
        except KeyboardInterrupt as error:
            error.add_note(self.stored(None))
            raise

    def _end(self, **options: Any) -> None:
        for one in partitions_of(self.target):
            connect(self.target).perform(end_run(context_of(one), self.name, **options))
            options |= {"refusals": (), "refused": None}  # noted once

    def failure(self, error: DelayqError) -> DelayqError:
        """Return an error of this load; its text ends with what the run has stored."""
        return type(error)(f"{error}; {self.stored(error)}")

    def stored(self, error: DelayqError | None) -> str:
        """Return what the failed run has stored, and what to do, as the end of an error text."""
        unknown = f"what run {self.name} has stored stays: {self.verb} again to add the rest"
        if isinstance(error, NoReplyError):  # the next call would wait for Redis as long
            return unknown
        try:
            info = self._info()
        except DelayqError:
            return unknown
        stored = info.new + info.replaced
        if not stored:
            return f"run {self.name} has stored nothing"
        return (
            f"run {self.name} has stored {pluralize(stored, 'message')}, which stay: {self.verb} again to add the rest"
        )

    def result(self, *, past: int, later: int, cancelled: Mapping[str, int]) -> Loaded:
        """Return the result of the run; `cancelled` is how many cancels got each status."""
        info = self._info()
        return Loaded(
            **asdict(info),
            past=past,
            later=later,
            cancelled=cancelled.get("1", 0) + cancelled.get("6", 0),
            too_late=cancelled.get("2", 0) + cancelled.get("3", 0),
            unremembered=self._unremembered(info.sent),
        )

    def _unremembered(self, sent: int) -> int:
        """Return how many of the messages sent are beyond those of which the queue remembers the ids."""
        limits = [connect(self.target).call(calls_of(one).dedupe_max()) for one in partitions_of(self.target)]
        known = [limit for limit in limits if limit is not None]
        return max(0, sent - sum(known)) if len(known) == len(limits) else 0

    def _info(self) -> RunInfo:
        found = [connect(self.target).perform(list_runs(context_of(one))) for one in partitions_of(self.target)]
        return merged_run([info for runs in found for info in runs if info.run == self.name])
