"""One function per script: builds the call from typed arguments, and names the parser of its reply.

Only this module knows the order of a script's arguments, and only `replies` knows the shape of its reply.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from delayq.broker.capabilities.count_calls import CountCalls
from delayq.broker.capabilities.dead_calls import DeadCalls
from delayq.broker.capabilities.forecast_calls import ForecastCalls
from delayq.broker.capabilities.lease_calls import LeaseCalls
from delayq.broker.capabilities.limit_calls import LimitCalls
from delayq.broker.capabilities.payload_calls import PayloadCalls
from delayq.broker.capabilities.result_calls import ResultCalls
from delayq.broker.capabilities.schedule_calls import ScheduleCalls
from delayq.broker.capabilities.shared_calls import confirm
from delayq.broker.capabilities.worker_calls import WorkerCalls
from delayq.broker.engine import DELAY, EngineCapabilities
from delayq.broker.message.same_id import Debounce
from delayq.broker.replies import log_entries, replies
from delayq.broker.replies.foreign import stored_id
from delayq.broker.replies.replies import integers, statuses
from delayq.broker.replies.run_records import RunRecord, read_run, read_runs
from delayq.broker.replies.send_replies import Debounced, SendStatuses
from delayq.broker.requests import (
    ALWAYS,
    Argument,
    Failure,
    Messages,
    Outgoing,
    OutgoingTable,
    Period,
    Receipt,
    RedisCommand,
    Rejection,
    Release,
    Replace,
    ScriptCall,
    flat,
)
from delayq.broker.scripts import MAX_IDS
from delayq.options import DEDUPE_MAX
from delayq.privacy.redaction import write_paths

MAX_DUE = (1 << 53) - 1
"""A time (ms) after every due time: the largest integer that a score holds exactly."""
MAX_RUNS = 1000
"""Runs of bulk sends that the ledger keeps."""
_REPLACE: dict[Any, str] = {False: "0", True: "1", "after": "2", "moved up": "3"}
"""How a send says what to replace; see `Replace`."""

T = TypeVar("T")


class Calls(
    ScheduleCalls,
    ResultCalls,
    LeaseCalls,
    LimitCalls,
    ForecastCalls,
    WorkerCalls,
    DeadCalls,
    PayloadCalls,
    CountCalls,
):
    """Builds the calls of one queue."""

    __slots__ = ()
    capabilities: ClassVar[EngineCapabilities] = DELAY
    waiting_takes: ClassVar[bool] = False
    """Whether a wait for a wake-up may take a message, which must then be claimed or released."""

    def send(
        self, messages: Messages, *, max_length: int | None, replace: Replace = False, run: str = ""
    ) -> ScriptCall[SendStatuses]:
        """Store messages; a status each.

        1 new, 0 exists, 2 replaced, 3 running, 4 to be collected, 5 settled, 6 waits after the running one.
        The statuses are added up in the run ledger under the name of a `run`.
        """
        if len(messages) == 1 and not (max_length or replace or run or isinstance(messages, OutgoingTable)):
            return self.send_one(messages[0])
        table = messages if isinstance(messages, OutgoingTable) else OutgoingTable(*zip(*messages, strict=True))
        stride = 6 if any(table.attributes) else 5 if any(table.headers) else 4
        rows: list[Argument] = [stride] * (1 + stride * len(table.ids))
        for at in range(stride):
            rows[1 + at :: stride] = table[at]
        options = (self._now, _REPLACE[replace], max_length or "0", run)
        return self._call("send", [*options, *rows], SendStatuses.read)

    def send_one(self, message: Outgoing) -> ScriptCall[SendStatuses]:
        """Store one message: what `send` does without its options, at a lower cost."""
        return self._call("send_one", [self._now, *message], SendStatuses.read)

    def debounce(self, message: Outgoing, how: Debounce, *, max_length: int | None) -> ScriptCall[Debounced]:
        """Store a message of a burst in place of the one before it."""
        options = (self._now, max_length or "0", how.quiet, "" if how.at_most is None else how.at_most)
        fields = (message.id, message.retries, message.payload, message.headers, message.attributes)
        return self._call("debounce", [*options, *fields], Debounced.read)

    def pending_to_ready(self, limit: int = MAX_IDS) -> ScriptCall[replies.PromoteReply]:
        """Move due messages to ready."""
        return self._call("pending_to_ready", [self._now, limit], lambda reply: replies.PromoteReply(*integers(reply)))

    def is_empty(self) -> RedisCommand[bool]:
        """Read whether a promotion would find nothing at all, at the cost of one command."""
        return RedisCommand(("EXISTS", *self.keys.of_work), lambda found: found == 0)

    def ready_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[replies.ClaimReply]:
        """Claim up to `wanted` messages under a lease (ms)."""
        return self._call("ready_to_unack", [self._now, wanted, lease, consumer_id], replies.read_claim)

    def pending_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[replies.ClaimReply]:
        """Claim up to `wanted` due messages that were not promoted, if nothing waits in `ready` and `retry`."""
        return self._call("pending_to_unack", [self._now, wanted, lease, consumer_id], replies.read_due_claim)

    def unack_to_retry(self, limit: int = MAX_IDS) -> ScriptCall[replies.ExpireReply]:
        """Move messages past their lease or nack delay to retry or garbage."""
        return self._call("unack_to_retry", [self._now, limit], replies.ExpireReply.read)

    def ack(self, receipts: Iterable[Receipt], *, outcome: str = "acked") -> ScriptCall[str]:
        """Settle messages as done (acked, discarded or missed): the first ones, if they have large successors.

        A status each: 1 settled by this receipt, 0 not.
        """
        return self._call("ack", [self._now, outcome, *flat(receipts)], statuses)

    def nack(self, failures: Iterable[Failure]) -> ScriptCall[str]:
        """Retry messages after a delay; a status each: 1 will be retried, 2 to be collected, 0 not leased."""
        return self._call("nack", [self._now, *flat(failures)], statuses)

    def release(self, releases: Iterable[Release]) -> ScriptCall[str]:
        """Return messages, at once or after a delay, uncharged; a status each: 1 released, 2 to be collected, 0 not."""
        cells = flat((*release[:-1], int(release.unstarted)) for release in releases)
        return self._call("release", [self._now, *cells], statuses)

    def reject(self, rejections: Iterable[Rejection]) -> ScriptCall[str]:
        """Move messages to the dead letter; a status each: 1 moved, 0 not leased."""
        return self._call("reject", [self._now, *flat(rejections)], statuses)

    def cancel(self, ids: Iterable[str], *, stop: bool = False) -> ScriptCall[str]:
        """Cancel messages, and with `stop` ask the running ones to stop; a status each.

        1 cancelled, 2 running, 3 dead, 4 successor cancelled, 5 asked to stop, 0 gone.
        """
        return self._call("cancel", [self._now, int(stop), *map(stored_id, ids)], statuses)

    def reschedule(self, times: Iterable[tuple[str, str | int]]) -> ScriptCall[str]:
        """Change due times; a status each: 1 rescheduled, 2 running, 3 dead, 0 gone."""
        return self._call("reschedule", [self._now, *flat((stored_id(id), due) for id, due in times)], statuses)

    def discard(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Settle messages as discarded; statuses as of `ack`."""
        return self.ack(receipts, outcome="discarded")

    def drop(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Discard messages that have expired; statuses as of `ack`."""
        return self.ack(receipts, outcome="missed")

    def purge(self) -> ScriptCall[int]:
        """Delete every message of the queue; returns how many."""
        return self._call("purge", [self._now], lambda reply: integers(reply)[0])

    def remove(self) -> ScriptCall[replies.RemoveReply]:
        """Delete every key of a queue that has nothing any more; returns what it has, all 0 if it was removed."""
        return self._call("remove", [self._now], replies.RemoveReply._make)

    def pause(self, until: str, reason: str) -> ScriptCall[int]:
        """Pause the queue until a time (ms, +ms from now, 0 for no end); returns its end, -1 if it has passed."""
        return self._call("pause", [self._now, until, reason], lambda reply: integers(reply)[0])

    def resume(self) -> ScriptCall[bool]:
        """End a pause, and wake a consumer; returns whether the queue was paused."""
        return self._call("resume", [self._now], lambda reply: integers(reply) == (1,))

    def log_action(self, actor: str, text: str, id: str = "") -> ScriptCall[bool]:
        """Record in the event log, if it is on, what somebody has done to the queue, or to one message."""
        return self._call("log_action", [self._now, actor, text, id], lambda reply: integers(reply) == (1,))

    def get(self, id: str) -> ScriptCall[replies.GetReply | None]:
        """Read everything stored about one id."""
        return self._call("get", [self._now, stored_id(id)], replies.read_get)

    def page(
        self, state: str, *, limit: int, cursor: str, score: str, preview: int, between: Period = ALWAYS
    ) -> ScriptCall[replies.PageReply]:
        """Read one page of the messages in a state, with at most `preview` bytes of each payload.

        In states sorted by time, `between` limits them to a period.
        """
        return self._call("page", [self._now, state, limit, cursor, score, preview, *between], replies.read_page)

    def snapshot(
        self,
        states: str,
        *,
        limit: int,
        cursor: str | bytes,
        score: str | bytes = "",
        low: int = 0,
        high: int = MAX_DUE,
        byte_limit: int = 0,
    ) -> ScriptCall[replies.SnapshotReply]:
        """Read the pending (no `states`), or scan records in these states; `byte_limit` is for payloads."""
        args = [self._now, states, limit, cursor, score, low, high, byte_limit]
        return self._call("snapshot", args, replies.SnapshotReply._make)

    def walk(self, part: str, *, cursor: str, limit: int) -> ScriptCall[tuple[str, list[bytes]]]:
        """Read a page of the ids in one structure, or of the entries of the dead letter."""
        return self._call("walk", [part, cursor, limit], lambda reply: (reply[0].decode(), reply[1]))

    def repair(self, ids: Iterable[bytes], *, fix: bool, search: bool, retries: int) -> ScriptCall[str]:
        """Examine messages, and `fix` defects; a status each, see `queue.repairing.repair`. `search` includes lists."""
        return self._call("repair", [self._now, int(fix), int(search), retries, *ids], statuses)

    def repair_dead(self, entries: Iterable[bytes], *, fix: bool) -> ScriptCall[str]:
        """Examine entries of the dead letter, and `fix` defects; a status each."""
        return self._call("repair_dead", [self._now, int(fix), *entries], statuses)

    def recount(self, *, fix: bool, limit: int = MAX_IDS) -> ScriptCall[tuple[int, ...]]:
        """Return how far the counters of ready, retry and backoff are off, surplus wake-ups, lines without a gate."""
        return self._call("recount", [self._now, int(fix), limit], integers)

    def await_wake(self, timeout: float) -> RedisCommand[bool]:
        """Wait up to `timeout` seconds for a wake-up; returns whether one came."""
        return RedisCommand(("BLPOP", self.keys.wake, f"{timeout:.3f}"), lambda reply: reply is not None)

    def wake(self) -> ScriptCall[bool]:
        """Wake an idle consumer, in place of one that took a wake-up but cannot act on it."""
        return self._call("wake", [], bool)

    def time(self) -> RedisCommand[int]:
        """Read the server's clock, in milliseconds since 1970."""
        return RedisCommand(("TIME",), lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)

    def confirm(self, replicas: int, *, timeout: int) -> list[RedisCommand[Any]]:
        """Wait up to `timeout` ms until `replicas` replicas have the writes before it in the same round trip."""
        return confirm(self.keys.meta, "sent", replicas, timeout)

    # Event log, dedupe window and bulk sends

    def configure(
        self,
        *,
        events: int | None,
        dedupe_window: int | None,
        dedupe_max: int | None,
        dead: Sequence[int | None] = (None, None),
        priority_step: int | None = None,
        lateness_slo: str | None = None,
        redact: Sequence[str] | None = None,
    ) -> ScriptCall[bool]:
        """Set event log (entries; 0 off), dedupe window (ms; 0 off), its ids, and the other options of all processes.

        None leaves each as it is.
        """
        paths = None if redact is None else write_paths(redact)
        wanted = (events, dedupe_window, dedupe_max, DEDUPE_MAX, *dead, priority_step, lateness_slo, paths)
        return self._call("configure", [self._now, *("" if one is None else one for one in wanted)], bool)

    def default_dedupe_window(self, window: int, max_ids: int) -> RedisCommand[bool]:
        """Switch the dedupe window on (ms, ids) where it is off; a queue that has one keeps its own."""
        return RedisCommand(("HSETNX", self.keys.meta, "dedupe", f"{window} {max_ids}"), bool)

    def events(self, first: int, last: int | None = None, *, limit: int) -> RedisCommand[list[log_entries.EventEntry]]:
        """Read the event log from offset `first` to `last` (None for the end), both included."""
        span = (log_entries.id_of(first), "+" if last is None else log_entries.id_of(last))
        return RedisCommand(("XRANGE", self.keys.events, *span, "COUNT", limit), log_entries.read_entries)

    def events_back(self, last: int | None, *, limit: int) -> RedisCommand[list[log_entries.EventEntry]]:
        """Read the event log backward from offset `last` (None for the end)."""
        start = "+" if last is None else log_entries.id_of(last)
        return RedisCommand(("XREVRANGE", self.keys.events, start, "-", "COUNT", limit), log_entries.read_entries)

    def last_event(self) -> RedisCommand[list[log_entries.EventEntry]]:
        """Read the last entry of the event log."""
        return self.events_back(None, limit=1)

    def await_events(self, after: int, *, limit: int, timeout: float) -> RedisCommand[list[log_entries.EventEntry]]:
        """Wait up to `timeout` seconds for entries of the event log after an offset."""
        block = max(1, int(timeout * 1000))
        stream = ("STREAMS", self.keys.events, log_entries.id_of(after))
        return RedisCommand(("XREAD", "COUNT", limit, "BLOCK", block, *stream), log_entries.read_tail)

    def trim_events(self, first: int) -> RedisCommand[int]:
        """Delete the entries of the event log before an offset; returns how many."""
        return RedisCommand(("XTRIM", self.keys.events, "MINID", log_entries.id_of(first)), int)

    def begin_run(self, run: str, *, start: int | None, until: int | None, source: str) -> ScriptCall[RunRecord]:
        """Begin or resume a run of bulk sends, with its horizon (ms) and what it sends."""
        args = [self._now, run, *("-" if limit is None else limit for limit in (start, until)), source]
        return self._call("begin_run", args, read_run)

    def forget_run(self, run: str) -> tuple[RedisCommand[bool], RedisCommand[bool]]:
        """Delete a run from the ledger, and then its refusals; the first tells whether it was there."""
        keys = (self.keys.runs, self.keys.refusals)
        first, second = (RedisCommand(("HDEL", key, run), bool) for key in keys)
        return first, second

    def end_run(self, run: str, *, state: str, epoch: int, refused: int, refusals: bytes) -> ScriptCall[RunRecord]:
        """End a run of bulk sends, or an epoch of one; an epoch that ended before is not counted again."""
        args = [self._now, run, state, epoch, refused, refusals, MAX_RUNS]
        return self._call("end_run", args, read_run)

    def runs(self) -> RedisCommand[dict[str, RunRecord]]:
        """Read the run ledger."""
        return RedisCommand(("HGETALL", self.keys.runs), read_runs)

    def refusals(self, run: str) -> RedisCommand[bytes]:
        """Read the refusals of a run."""
        return RedisCommand(("HGET", self.keys.refusals, run), lambda reply: reply or b"")
