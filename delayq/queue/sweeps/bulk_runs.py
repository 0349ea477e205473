"""Runs of bulk sends: Redis adds up what became of their messages, in the same calls that store the messages.

So the counts are right even if a sender crashes. A call whose reply was lost counts once. A message whose id was in
the queue already counts as `exists`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec

from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.keys import check_id
from delayq.broker.replies import pairs, statuses
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.values.checks import check_int
from delayq.values.times import from_millis

MAX_REFUSALS = 1000
"""Refused messages that a run lists; it counts all of them."""

MAX_RUNS = 1000
"""Runs of bulk sends that the ledger keeps."""

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
    (runs,) = yield [RedisCommand(("HGETALL", context.calls.keys.runs), read_runs)]
    return sorted((read(run, record) for run, record in runs.items()), key=lambda info: info.started, reverse=True)


def begin_run(
    context: QueueContext, run: str, *, start: int | None, until: int | None, source: str
) -> Operation[RunInfo]:
    """Begin a run, or resume it."""
    (record,) = yield [begin_run_call(context.calls, check_run(run), start=start, until=until, source=source)]
    return read(run, record)


def forget_run(context: QueueContext, run: str) -> Operation[bool]:
    """Delete a run from the ledger."""
    check_run(run)
    keys = context.calls.keys
    was_there, _ = yield [RedisCommand(("HDEL", key, run), bool) for key in (keys.runs, keys.refusals)]
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
    (record,) = yield [end_run_call(context.calls, run, state=state, epoch=epoch, refused=counted, refusals=stored)]
    return read(run, record)


def refusals_of(context: QueueContext, run: str) -> Operation[list[tuple[str, str]]]:
    """Read the messages that a run refused, as (id, reason)."""
    (stored,) = yield [RedisCommand(("HGET", context.calls.keys.refusals, check_run(run)), lambda reply: reply)]
    return _decode(stored) if stored else []


class RunRecord(NamedTuple):
    """A record of the run ledger; times in ms, `ended` 0 and `epoch` -1 for none. Only a load has a source."""

    state: str
    started: int
    ended: int
    epoch: int
    new: int
    exists: int
    replaced: int
    running: int
    settled: int
    refused: int
    start: int | None = None
    until: int | None = None
    source: str | None = None


def begin_run_call(
    calls: Calls, run: str, *, start: int | None, until: int | None, source: str
) -> ScriptCall[RunRecord]:
    """Begin or resume a run of bulk sends, with its horizon (ms) and what it sends."""
    args = [calls.now, run, *("-" if limit is None else limit for limit in (start, until)), source]
    return calls.script("begin_run", args, read_run)


def end_run_call(
    calls: Calls, run: str, *, state: str, epoch: int, refused: int, refusals: bytes
) -> ScriptCall[RunRecord]:
    """End a run of bulk sends, or an epoch of one; an epoch that ended before is not counted again."""
    args = [calls.now, run, state, epoch, refused, refusals, MAX_RUNS]
    return calls.script("end_run", args, read_run)


def read_run(reply: bytes) -> RunRecord:
    """Parse a record of the run ledger."""
    state, *fields = statuses(reply).split()
    start, until, source = fields[9:] or ("-", "-", None)
    horizon = (None if text == "-" else int(text) for text in (start, until))
    return RunRecord._make((state, *map(int, fields[:9]), *horizon, source))


def read_runs(reply: list[bytes] | dict[bytes, bytes]) -> dict[str, RunRecord]:
    """Parse the run ledger."""
    return {run.decode(): read_run(record) for run, record in pairs(reply).items()}
