"""The calls that every queue needs: each is built from typed arguments, and names the parser of its reply.

A capability that not every message needs has its calls where it is used, as functions `*_call`, each next to what reads
its reply. Only such a function, or a method here, knows the order of a script's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, TypeVar

from delayq.broker import replies
from delayq.broker.engine import DELAY, EngineCapabilities
from delayq.broker.foreign import stored_id
from delayq.broker.keys import META_FIELDS, Keys
from delayq.broker.message.same_id import Debounce
from delayq.broker.replies import integers, statuses
from delayq.broker.requests import (
    ALWAYS,
    Argument,
    Failure,
    Messages,
    NewTable,
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
from delayq.broker.results import Completed
from delayq.broker.scripts import COLLECT_LIMIT, MAX_IDS, SLOT_TTL, Script, read_all, script
from delayq.broker.shared_calls import confirm
from delayq.options import DEDUPE_MAX, Settings
from delayq.privacy.redaction import read_paths, write_paths
from delayq.values.states import State
from delayq.values.times import from_millis

_REPLACE: dict[Any, str] = {False: "0", True: "1", "after": "2", "moved up": "3"}
"""How a send says what to replace; see `Replace`."""
QUEUE = "queue"
"""The scope of the limit of the whole queue."""
SPENT = "4"
"""The status of an id whose message has no retries left but is not yet in the dead letter; it is to be collected."""
OWNED = "035"
"""The statuses of ids that the send left as they were: exists, running, settled."""
_RECORDED = {"leased": State.ACTIVE, "ranked": State.READY}
"""The states of records that have another name."""
Placing = int | str
"""The server's time from which a delay counts (microseconds, 0 if unknown), or who has the id: its state and time."""


class SendStatuses(str):
    """The statuses of a send, with the server's time from which its delays count (microseconds, 0 if unknown)."""

    __slots__ = ("_owners", "at")
    at: int
    _owners: list[str]

    @classmethod
    def read(cls, reply: bytes) -> SendStatuses:
        """Parse the reply of `send`."""
        texts, _, rest = reply.decode().partition(" ")
        read = cls(texts)
        at, *read._owners = rest.split(" ")
        read.at = int(at or 0)
        return read

    @property
    def placings(self) -> list[Placing]:
        """For each message, the time from which its delay counts, or who has its id."""
        if not self._owners:
            return [self.at] * len(self)
        pairs = iter(zip(self._owners[::2], self._owners[1::2], strict=True))
        return [" ".join(next(pairs)) if status in OWNED else self.at for status in self]


class Owner(NamedTuple):
    """Who has the id of a message that was not stored, at the time of the send."""

    state: str
    """The state of the message with this id, see `State`, or `settled` if it has ended and the id is reserved."""
    due: datetime | None
    """When that message is due, or when an id that is settled can be sent again.

    None for one that was sent earlier in the same batch.
    """

    @classmethod
    def of(cls, placing: str) -> Owner:
        """Return the owner of an id as the reply of a send tells it."""
        state, _, due = placing.partition(" ")
        return cls(_RECORDED.get(state, state), from_millis(int(due)) if due != "-" else None)


class Debounced(NamedTuple):
    """The reply of a debounced send."""

    status: str
    due: str | int
    """When the message is due, as `@` and milliseconds since 1970; 0 for one that was not stored."""
    placing: Placing
    unstarted: bool
    """Whether it follows a message that a consumer has claimed and not started."""

    @classmethod
    def read(cls, reply: bytes) -> Debounced:
        """Parse the reply of `debounce`."""
        status, _, rest = reply.decode().partition(" ")
        if status in OWNED:
            return cls(status, 0, rest, unstarted=False)
        due, _, mark = rest.partition(" ")
        return cls(status, f"@{due}" if due else 0, 1, unstarted=mark != "")


T = TypeVar("T")


def scope_of(name: str | None) -> str:
    """Return the scope of a name, or of a template of keys; of the queue for None."""
    return QUEUE if name is None else f"{'key' if is_template(name) else 'name'}:{name}"


def is_template(name: str) -> bool:
    """Return whether this is a template of keys, such as `account:*`, and no name."""
    return name.endswith("*")


@dataclass(frozen=True, slots=True)
class Calls:
    """Builds the calls of one queue. `clock` overrides the server's time (ms since 1970) in tests and the test kit."""

    keys: Keys
    clock: Callable[[], int] | None = None
    _known: dict[str, tuple[Script, tuple[str, ...]]] = field(default_factory=dict, repr=False, compare=False)
    capabilities: ClassVar[EngineCapabilities] = DELAY
    waiting_takes: ClassVar[bool] = False
    """Whether a wait for a wake-up may take a message, which must then be claimed or released."""

    def __post_init__(self) -> None:
        """Read the scripts now: their files may be replaced, or be gone, when a call is made."""
        read_all("")

    @property
    def now(self) -> Argument:
        """The time of a call as its argument; '' for that of the server."""
        return "" if self.clock is None else self.clock()

    def script(self, name: str, args: Sequence[Argument], parse: Callable[[Any], T]) -> ScriptCall[T]:
        """Return the call of a script on the keys of the queue."""
        known = self._known.get(name)
        if known is None:
            found = script(name)
            known = self._known[name] = (found, tuple(getattr(self.keys, part) for part in found.parts))
        return ScriptCall(known[0], known[1], args, parse)

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
        replaces = "4" if isinstance(messages, NewTable) else _REPLACE[replace]
        options = (self.now, replaces, max_length or "0", run)
        return self.script("send", [*options, *rows], SendStatuses.read)

    def send_one(self, message: Outgoing) -> ScriptCall[SendStatuses]:
        """Store one message: what `send` does without its options, at a lower cost."""
        return self.script("send_one", [self.now, *message], SendStatuses.read)

    def debounce(self, message: Outgoing, how: Debounce, *, max_length: int | None) -> ScriptCall[Debounced]:
        """Store a message of a burst in place of the one before it."""
        options = (self.now, max_length or "0", how.quiet, "" if how.at_most is None else how.at_most)
        fields = (message.id, message.retries, message.payload, message.headers, message.attributes)
        return self.script("debounce", [*options, *fields], Debounced.read)

    def pending_to_ready(self, limit: int = MAX_IDS) -> ScriptCall[replies.PromoteReply]:
        """Move due messages to ready."""
        return self.script("pending_to_ready", [self.now, limit], lambda reply: replies.PromoteReply(*integers(reply)))

    def is_empty(self) -> RedisCommand[bool]:
        """Read whether a promotion would find nothing at all, at the cost of one command."""
        return RedisCommand(("EXISTS", *self.keys.of_work), lambda found: found == 0)

    def ready_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[replies.ClaimReply]:
        """Claim up to `wanted` messages under a lease (ms)."""
        return self.script("ready_to_unack", [self.now, wanted, lease, consumer_id], replies.read_claim)

    def pending_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[replies.ClaimReply]:
        """Claim up to `wanted` due messages that were not promoted, if nothing waits in `ready` and `retry`."""
        return self.script("pending_to_unack", [self.now, wanted, lease, consumer_id], replies.read_due_claim)

    def turn(
        self, wanted: int, *, ahead: int, lease: int, consumer_id: str, receipts: Iterable[Receipt] = ()
    ) -> ScriptCall[replies.TurnReply]:
        """Settle messages as done and claim up to `wanted` that are due, or will be in `ahead` ms, in a plain queue."""
        args = [self.now, wanted, ahead, lease, consumer_id, *flat(receipts)]
        return self.script("turn", args, lambda reply: replies.TurnReply.read(reply, lease))

    def unack_to_retry(self, limit: int = MAX_IDS) -> ScriptCall[replies.ExpireReply]:
        """Move messages past their lease or nack delay to retry or garbage."""
        return self.script("unack_to_retry", [self.now, limit], replies.ExpireReply.read)

    def extend(self, receipts: Iterable[Receipt], *, lease: int, started: bool = False) -> ScriptCall[str]:
        """Renew leases (ms from now), or note that callbacks have `started`.

        A status each: 1 done, 2 done and asked to stop, 0 not leased.
        """
        return self.script("extend", [self.now, lease, int(started), *flat(receipts)], statuses)

    def start(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Note that callbacks have started; a status each: 1 noted, 2 asked to stop, 0 not leased."""
        return self.extend(receipts, lease=0, started=True)

    def withdraw(self, ids: Iterable[str]) -> ScriptCall[str]:
        """Ask consumers to return what they have not started; a status each: 1 asked, 2 not leased, 0 started."""
        return self.script("withdraw", [self.now, *map(stored_id, ids)], statuses)

    def is_withdrawn(self, ids: Iterable[str]) -> RedisCommand[bool]:
        """Read whether a consumer was asked to return any of its messages."""
        return RedisCommand(("HMGET", self.keys.deliveries, *ids), replies.any_withdrawn)

    def is_stopping(self, ids: Iterable[str]) -> RedisCommand[list[int]]:
        """Read which messages are asked to stop: the tokens of their leases, 0 for the others."""
        return RedisCommand(("HMGET", self.keys.deliveries, *ids), replies.stopping_tokens)

    def ack(self, receipts: Iterable[Receipt], *, outcome: str = "acked") -> ScriptCall[str]:
        """Settle messages as done (acked, discarded or missed): the first ones, if they have large successors.

        A status each: 1 settled by this receipt, 0 not.
        """
        return self.script("ack", [self.now, outcome, *flat(receipts)], statuses)

    def discard(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Settle messages as discarded; statuses as of `ack`."""
        return self.ack(receipts, outcome="discarded")

    def drop(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Discard messages that have expired; statuses as of `ack`."""
        return self.ack(receipts, outcome="missed")

    def complete(self, completions: Iterable[Completed]) -> ScriptCall[str]:
        """Settle messages that have retention, and keep their results; statuses as of `ack`."""
        return self.script("complete", [self.now, *flat(completions)], statuses)

    def report(self, receipt: Receipt, progress: str) -> ScriptCall[str]:
        """Store the progress (base64) of a message; status: 1 stored, 0 not leased."""
        return self.script("report", [self.now, *receipt, progress], statuses)

    def nack(self, failures: Iterable[Failure]) -> ScriptCall[str]:
        """Retry messages after a delay; a status each: 1 will be retried, 2 to be collected, 0 not leased."""
        return self.script("nack", [self.now, *flat(failures)], statuses)

    def release(self, releases: Iterable[Release]) -> ScriptCall[str]:
        """Return messages, at once or after a delay, uncharged; a status each: 1 released, 2 to be collected, 0 not."""
        cells = flat((*release[:-1], int(release.unstarted)) for release in releases)
        return self.script("release", [self.now, *cells], statuses)

    def reject(self, rejections: Iterable[Rejection]) -> ScriptCall[str]:
        """Move messages to the dead letter; a status each: 1 moved, 0 not leased."""
        return self.script("reject", [self.now, *flat(rejections)], statuses)

    def close(self, name: str | None, delay: int, *, pause: int | None = None) -> ScriptCall[str]:
        """Close a name or the queue for so many milliseconds, as a callback asks.

        With a `pause` (ms), trip its breaker instead; with 0, let all start again. Status: 1 done, 2 nothing to do, 0
        too many limits.
        """
        return self.script("close", [self.now, scope_of(name), delay, "" if pause is None else pause], statuses)

    def collect(self, settings: Settings, *, ids: Iterable[str] = ()) -> ScriptCall[replies.CollectReply]:
        """Collect garbage (`ids`, or any). The limits of `settings` count unless the queue has its own."""
        dead_max, dead_ttl = settings.dead_max, settings.dead_ttl
        limits: Any = {"slot_ttl": SLOT_TTL, "max_log": settings.events_max_bytes}
        return self.collect_garbage(COLLECT_LIMIT, dead_max=dead_max, dead_ttl=dead_ttl, ids=ids, **limits)

    def collect_garbage(
        self,
        limit: int,
        *,
        dead_max: int,
        dead_ttl: int,
        slot_ttl: int,
        max_log: int = 1 << 40,
        ids: Iterable[str] = (),
    ) -> ScriptCall[replies.CollectReply]:
        """Move spent messages (`ids`, or any) to the dead letter, trim it; delete slots, cut the log (TTLs: ms)."""
        args = [self.now, limit, dead_max, dead_ttl, slot_ttl, max_log, *ids]
        return self.script("collect_garbage", args, lambda reply: replies.CollectReply(*integers(reply)))

    def redrive(
        self,
        entries: Iterable[str],
        *,
        retries: int | None,
        first: float = 0,
        interval: float = 0,
        payloads: Iterable[bytes] | None = None,
    ) -> ScriptCall[str]:
        """Send dead messages again; a status each: 1 redriven, 2 a message with this id exists, 0 gone.

        The first is due after `first` ms, each other `interval` ms after the one before it. With `payloads`, each gets
        the one in its place.
        """
        how = (self.now, "" if retries is None else retries, f"{first:.3f}", f"{interval:.3f}")
        entries = list(map(stored_id, entries))
        rows = entries if payloads is None else flat(zip(entries, payloads, strict=True))
        return self.script("redrive", [*how, int(payloads is not None), *rows], statuses)

    def dead_purge(self, entries: Iterable[str]) -> ScriptCall[str]:
        """Delete entries of the dead letter; a status each: 1 deleted, 0 gone."""
        return self.script("dead_purge", [self.now, *map(stored_id, entries)], statuses)

    def kill(self, ids: Iterable[str]) -> ScriptCall[str]:
        """Move waiting messages to the dead letter: the first ones, if their payloads are large.

        A status each: 1 killed, 2 running, 3 dead, 0 gone.
        """
        return self.script("kill", [self.now, *map(stored_id, ids)], statuses)

    def cancel(self, ids: Iterable[str], *, stop: bool = False) -> ScriptCall[str]:
        """Cancel messages, and with `stop` ask the running ones to stop; a status each.

        1 cancelled, 2 running, 3 dead, 4 successor cancelled, 5 asked to stop, 6 withdrawn from the cold tier, 0 gone.
        """
        return self.script("cancel", [self.now, int(stop), *map(stored_id, ids)], statuses)

    def reschedule(self, times: Iterable[tuple[str, str | int]]) -> ScriptCall[str]:
        """Change due times; a status each: 1 rescheduled, 2 running, 3 dead, 4 noted for the cold tier, 0 gone."""
        return self.script("reschedule", [self.now, *flat((stored_id(id), due) for id, due in times)], statuses)

    def purge(self) -> ScriptCall[int]:
        """Delete every message of the queue; returns how many."""
        return self.script("purge", [self.now], lambda reply: integers(reply)[0])

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
        return self.script("configure", [self.now, *("" if one is None else one for one in wanted)], bool)

    def default_dedupe_window(self, window: int, max_ids: int) -> RedisCommand[bool]:
        """Switch the dedupe window on (ms, ids) where it is off; a queue that has one keeps its own."""
        return RedisCommand(("HSETNX", self.keys.meta, "dedupe", f"{window} {max_ids}"), bool)

    def dedupe_max(self) -> RedisCommand[int | None]:
        """Read how many settled ids the queue remembers; None if its dedupe window is off."""
        return RedisCommand(
            ("HGET", self.keys.meta, "dedupe"), lambda reply: None if reply is None else int(reply.split()[-1])
        )

    def counts(self) -> ScriptCall[replies.CountsReply]:
        """Count the messages in each state."""
        return self.script("counts", [self.now, *META_FIELDS], replies.read_counts)

    def redact_paths(self) -> RedisCommand[list[str]]:
        """Read which values of payloads are hidden from inspectors."""
        return RedisCommand(("HGET", self.keys.meta, "redact"), read_paths)

    def get(self, id: str) -> ScriptCall[replies.GetReply | None]:
        """Read everything stored about one id."""
        return self.script("get", [self.now, stored_id(id)], replies.read_get)

    def page(
        self, state: str, *, limit: int, cursor: str, score: str, preview: int, between: Period = ALWAYS
    ) -> ScriptCall[replies.PageReply]:
        """Read one page of the messages in a state, with at most `preview` bytes of each payload.

        In states sorted by time, `between` limits them to a period.
        """
        return self.script("page", [self.now, state, limit, cursor, score, preview, *between], replies.read_page)

    def walk(self, part: str, *, cursor: str, limit: int) -> ScriptCall[tuple[str, list[bytes]]]:
        """Read a page of the ids in one structure, or of the entries of the dead letter."""
        return self.script("walk", [part, cursor, limit], lambda reply: (reply[0].decode(), reply[1]))

    def await_wake(self, timeout: float) -> RedisCommand[bool]:
        """Wait up to `timeout` seconds for a wake-up; returns whether one came."""
        return RedisCommand(("BLPOP", self.keys.wake, f"{timeout:.3f}"), lambda reply: reply is not None)

    def wake(self) -> ScriptCall[bool]:
        """Wake an idle consumer, in place of one that took a wake-up but cannot act on it."""
        return self.script("wake", [], bool)

    def time(self) -> RedisCommand[int]:
        """Read the server's clock, in milliseconds since 1970."""
        return RedisCommand(("TIME",), lambda reply: int(reply[0]) * 1000 + int(reply[1]) // 1000)

    def confirm(self, replicas: int, *, timeout: int) -> list[RedisCommand[Any]]:
        """Wait up to `timeout` ms until `replicas` replicas have the writes before it in the same round trip."""
        return confirm(self.keys.meta, "sent", replicas, timeout)
