"""Runs of bulk sends: Redis adds up what became of their messages, in the same calls that store the messages.

So the counts are right even if a sender crashes. A call whose reply was lost counts once. A message whose id was in
the queue already counts as `exists`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from delayq.broker.context import QueueContext
from delayq.broker.keys import check_id
from delayq.broker.replies.run_records import RunRecord
from delayq.broker.transport.operation import Operation
from delayq.values.checks import check_int
from delayq.values.times import from_millis

MAX_REFUSALS = 1000
"""Refused messages that a run lists; it counts all of them."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[tuple[str, str]]).decode


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What became of the messages of one run. Each call counts once, however often it was retried."""

    run: str
    state: str
    """writing, committed or aborted."""
    started: datetime
    ended: datetime | None
    new: int
    exists: int
    replaced: int
    running: int
    settled: int
    refused: int
    """Messages that were not sent because they were invalid."""
    start: datetime | None = None
    """Of a load: what was due before this time was not sent."""
    until: datetime | None = None
    """Of a load: what is due at this time or after it was not sent."""
    source: str | None = None
    """Of a load: a digest of the files that were loaded."""

    @property
    def sent(self) -> int:
        """Messages that reached the queue, whatever their status."""
        return self.new + self.exists + self.replaced + self.running + self.settled


def check_run(run: str) -> str:
    """Return the name of a run; raise `ConfigurationError` if it is not valid."""
    return check_id(run, "run")


def read(run: str, record: RunRecord) -> RunInfo:
    """Return the stored record of a run as a `RunInfo`."""
    ended = from_millis(record.ended) if record.ended else None
    start, until = (None if limit is None else from_millis(limit) for limit in (record.start, record.until))
    return RunInfo(
        run, record.state, from_millis(record.started), ended, *record[4:10], start, until, record.source or None
    )


def list_runs(context: QueueContext) -> Operation[list[RunInfo]]:
    """Read all runs, the latest first."""
    (runs,) = yield [context.calls.runs()]
    return sorted((read(run, record) for run, record in runs.items()), key=lambda info: info.started, reverse=True)


def begin_run(
    context: QueueContext, run: str, *, start: int | None, until: int | None, source: str
) -> Operation[RunInfo]:
    """Begin a run, or resume it."""
    (record,) = yield [context.calls.begin_run(check_run(run), start=start, until=until, source=source)]
    return read(run, record)


def forget_run(context: QueueContext, run: str) -> Operation[bool]:
    """Delete a run from the ledger."""
    was_there, _ = yield [*context.calls.forget_run(check_run(run))]
    return bool(was_there)


def end_run(
    context: QueueContext,
    run: str,
    *,
    aborted: bool = False,
    refusals: Iterable[tuple[str, str]] = (),
    refused: int | None = None,
    epoch: int = -1,
) -> Operation[RunInfo]:
    """End a run, or one epoch of it."""
    check_run(run)
    check_int(epoch, "epoch", -1, 1 << 53)
    listed = [(str(id), str(reason)) for id, reason in refusals]
    counted = len(listed) if refused is None else check_int(refused, "refused", 0, 1 << 53)
    state, stored = "aborted" if aborted else "committed", _encode(listed[:MAX_REFUSALS]) if listed else b""
    (record,) = yield [context.calls.end_run(run, state=state, epoch=epoch, refused=counted, refusals=stored)]
    return read(run, record)


def refusals_of(context: QueueContext, run: str) -> Operation[list[tuple[str, str]]]:
    """Read the messages that a run refused, as (id, reason)."""
    (stored,) = yield [context.calls.refusals(check_run(run))]
    return _decode(stored) if stored else []
