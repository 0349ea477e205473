"""Who consumes a queue: its consumers as they report every few seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from delayq.broker.context import QueueContext
from delayq.broker.stored_presence import REPORTS, StoredWorker, workers_page_call
from delayq.broker.transport.operation import Operation
from delayq.values.times import from_millis

PAGE = 500
"""Entries that one call reads."""


@dataclass(frozen=True, slots=True)
class RunningMessage:
    """A message in a callback of a worker."""

    id: str
    since: datetime
    """When the callback has started."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One consumer of a queue, as of its last report. All times are the server's."""

    id: str
    """The consumer's id, as in `MessageInfo.consumer`."""
    host: str
    pid: int
    version: str
    """The version of delayq."""
    state: str
    """How it is: `working`; `late` if it has missed a report; `silent` if it has missed three, as if it were dead."""
    queues: tuple[str, ...]
    """The queues that the same worker serves, the first ten of them."""
    served: int
    """How many queues the same worker serves."""
    concurrency: int
    """How many callbacks the worker runs at a time, those of all its queues together."""
    started: datetime
    """When the consumer has started."""
    reported: datetime
    """When it has last reported."""
    every: timedelta
    """How often it means to: 10 s, or less often for each of many queues."""
    age: timedelta
    """How long ago it had last reported, when this was read."""
    held: int
    """Messages of this queue that it has claimed and not completed."""
    running: tuple[RunningMessage, ...] = field(repr=False)
    """The messages of this queue in its callbacks, the longest-running first, at most a hundred of them."""


def list_workers(context: QueueContext) -> Operation[list[WorkerInfo]]:
    """Read all consumers of a queue."""
    found: dict[str, WorkerInfo] = {}
    cursor = ""
    while cursor != "0":
        (page,) = yield [workers_page_call(context.calls, cursor or "0", limit=PAGE)]
        found.update((stored.consumer_id, worker_of(stored, page.now)) for stored in page.workers)
        cursor = page.cursor
    return sorted(found.values(), key=lambda worker: (worker.started, worker.id))


def worker_of(stored: StoredWorker, now: int) -> WorkerInfo:
    """Return a consumer as it was at a time (ms)."""
    entry = stored.entry
    reported = stored.ends - REPORTS * entry.every
    age = max(0, now - reported)
    missed = age / entry.every
    return WorkerInfo(
        id=stored.consumer_id,
        host=entry.host,
        pid=entry.pid,
        version=entry.version,
        state="silent" if missed > REPORTS else "late" if missed > REPORTS - 1 else "working",
        queues=tuple(entry.queues),
        served=entry.served,
        concurrency=entry.concurrency,
        started=from_millis(reported - entry.up),
        reported=from_millis(reported),
        every=timedelta(milliseconds=entry.every),
        age=timedelta(milliseconds=age),
        held=entry.held,
        running=tuple(RunningMessage(id, from_millis(reported - ran)) for id, ran in entry.running),
    )
