"""Every operation as a value: one pure function a transition, from typed arguments to a call and its typed answer.

Only this module knows the order of a script's arguments, and only `answers` the shape of what it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, TypeVar

from delayq.answers import (
    Claimed,
    Collected,
    Counted,
    Entry,
    Expired,
    Found,
    Listed,
    Living,
    Promoted,
    Run,
    acknowledged,
    digits,
    id_of,
    integers,
    pairs,
    read_claimed,
    read_counted,
    read_entries,
    read_found,
    read_listed,
    read_run,
    read_runs,
    read_tail,
)
from delayq.keys import Keys
from delayq.schedules.standing import DueSchedules, SchedulePage, read_due, read_schedules
from delayq.script import MOST_IDS, Script, names, script
from delayq.values import (
    Argument,
    Call,
    Command,
    Failure,
    Firing,
    Outgoing,
    OutgoingTable,
    Placing,
    Receipt,
    Rejection,
)

MOST_RUNS = 1000
"""Runs the ledger keeps."""
MOST_DUE = (1 << 53) - 1
"""Beyond every due time (ms): the last number that a score holds exactly."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one queue. `clock` overrides the server's time (ms since 1970), for tests and the test kit."""

    keys: Keys
    clock: Callable[[], int] | None = None
    waiting_takes: ClassVar[bool] = False
    """Whether a wait for a wake-up may take a message, which is then to be claimed or given back."""
    _known: dict[str, tuple[Script, tuple[str, ...]]] = field(default_factory=dict, repr=False, compare=False)

    def send(
        self, messages: Sequence[Outgoing] | OutgoingTable, *, replace: bool, max_length: int | None, run: str = ""
    ) -> Call[str]:
        """Store messages; answers a digit each: 1 new, 0 exists, 2 replaced, 3 running, 4 to be collected, 5 settled.

        The run ledger adds up under `run`, if that is given, what became of them.
        """
        if len(messages) == 1 and not isinstance(messages, OutgoingTable):
            rows: list[Argument] = ["5", *messages[0]]
        else:
            table = messages if isinstance(messages, OutgoingTable) else OutgoingTable(*zip(*messages, strict=True))
            stride = 5 if any(table.headers) else 4
            rows = [stride] * (1 + stride * len(table.ids))
            for at in range(stride):
                rows[1 + at :: stride] = table[at]
        return self._call("send", [self._now, "1" if replace else "0", max_length or "0", run, *rows], digits)

    def pending_to_ready(self, limit: int = MOST_IDS) -> Call[Promoted]:
        """Move due messages to ready."""
        return self._call("pending_to_ready", [self._now, limit], lambda answer: Promoted(*integers(answer)))

    def ready_to_unack(self, wanted: int, *, lease: int, holder: str) -> Call[Claimed]:
        """Claim up to `wanted` messages under a lease (ms)."""
        return self._call("ready_to_unack", [self._now, wanted, lease, holder], read_claimed)

    def unack_to_retry(self, limit: int = MOST_IDS) -> Call[Expired]:
        """Move messages past their lease or nack delay to retry or garbage."""
        return self._call("unack_to_retry", [self._now, limit], lambda answer: Expired(*integers(answer)))

    def ack(self, receipts: Iterable[Receipt], *, discarded: bool = False) -> Call[str]:
        """Settle messages as done; answers a digit a receipt: 1 by it, 0 not."""
        return self._call("ack", [self._now, "discarded" if discarded else "acked", *_flat(receipts)], digits)

    def nack(self, failures: Iterable[Failure]) -> Call[str]:
        """Bring messages back after a delay; answers a digit each: 1 will be retried, 2 spent, 0 not held."""
        return self._call("nack", [self._now, *_flat(failures)], digits)

    def release(self, receipts: Iterable[Receipt]) -> Call[str]:
        """Give unstarted messages back uncharged; answers a digit a receipt."""
        return self._call("release", [self._now, *_flat(receipts)], digits)

    def extend(self, receipts: Iterable[Receipt], *, lease: int) -> Call[str]:
        """Renew leases (ms from now); answers a digit a receipt."""
        return self._call("extend", [self._now, lease, *_flat(receipts)], digits)

    def reject(self, rejections: Iterable[Rejection]) -> Call[str]:
        """Move messages to the dead letter; answers a digit each."""
        return self._call("reject", [self._now, *_flat(rejections)], digits)

    def cancel(self, ids: Iterable[str]) -> Call[str]:
        """Withdraw messages; answers a digit an id: 1 cancelled, 2 running, 3 dead, 0 gone."""
        return self._call("cancel", [self._now, *ids], digits)

    def reschedule(self, times: Iterable[tuple[str, str | int]]) -> Call[str]:
        """Give messages a new due time; answers a digit each: 1 rescheduled, 2 running, 3 dead, 0 gone."""
        return self._call("reschedule", [self._now, *_flat(times)], digits)

    def collect_garbage(
        self, *, limit: int, dead_max: int, dead_ttl: int, slot_ttl: int, ids: Iterable[str] = ()
    ) -> Call[Collected]:
        """Move spent messages (those named, or any) to the dead letter, trim it, prune silent slots (ttls in ms)."""
        args = [self._now, limit, dead_max, dead_ttl, slot_ttl, *ids]
        return self._call("collect_garbage", args, lambda answer: Collected(*integers(answer)))

    def redrive(self, entries: Iterable[str], *, retries: int | None) -> Call[str]:
        """Send dead messages again; answers a digit an entry: 1 redriven, 2 its id lives, 0 gone."""
        return self._call("redrive", [self._now, "" if retries is None else retries, *entries], digits)

    def dead_purge(self, entries: Iterable[str]) -> Call[str]:
        """Delete entries of the dead letter; answers a digit an entry."""
        return self._call("dead_purge", [self._now, *entries], digits)

    def purge(self) -> Call[int]:
        """Delete every message of the queue; answers how many."""
        return self._call("purge", [self._now], lambda answer: integers(answer)[0])

    def schedule_put(self, placings: Iterable[Placing]) -> Call[str]:
        """Put schedules in their places; answers a digit each: 1 put, 0 it stands otherwise than it was read."""
        return self._call("schedule_put", [self._now, *_flat(placings)], digits)

    def schedule_remove(self, schedules: Iterable[str]) -> Call[str]:
        """Remove schedules; answers a digit each: 1 removed, 0 there was none."""
        return self._call("schedule_remove", [self._now, *schedules], digits)

    def fire(self, firings: Iterable[Firing]) -> Call[str]:
        """Store the messages of occurrences and move their schedules on; answers a digit each: 1 fired, 0 not by it."""
        return self._call("fire", [self._now, *_flat(firings)], digits)

    def schedules_due(self, *, ahead: int, offset: int, limit: int, room: int) -> Call[DueSchedules]:
        """Read schedules that are due within `ahead` ms, up to a `limit` and so many bytes, and none of the first."""
        args = [self._now, ahead, offset, limit, room]
        return self._call("schedules_due", args, lambda answer: read_due(answer, limit))

    def schedules_page(self, schedules: Iterable[str] = (), *, cursor: str = "0", limit: int) -> Call[SchedulePage]:
        """Read a page of the schedules; or those named, as far as they are there."""
        return self._call("schedules_page", [self._now, cursor, limit, *schedules], read_schedules)

    def counts(self) -> Call[Counted]:
        """Count the messages in each state."""
        return self._call("counts", [self._now], read_counted)

    def get(self, id: str) -> Call[Found | None]:
        """Read what is known of one id."""
        return self._call("get", [id], read_found)

    def page(self, state: str, *, limit: int, cursor: str, score: str, preview: int) -> Call[Listed]:
        """Read one page of the messages in a state, with at most `preview` bytes of each payload."""
        return self._call("page", [state, limit, cursor, score, preview], read_listed)

    def snapshot(
        self,
        states: str,
        *,
        limit: int,
        cursor: str | bytes,
        score: str | bytes = "",
        low: int = 0,
        high: int = MOST_DUE,
        room: int = 0,
    ) -> Call[Living]:
        """Read a page of the pending (no `states`), or scan for records in these states; `room` is for payloads."""
        args = [self._now, states, limit, cursor, score, low, high, room]
        return self._call("snapshot", args, Living._make)

    def walk(self, part: str, *, cursor: str, limit: int) -> Call[tuple[str, list[bytes]]]:
        """Read a page of the ids that one structure holds, or of the entries of the dead letter."""
        return self._call("walk", [part, cursor, limit], lambda answer: (answer[0].decode(), answer[1]))

    def repair(self, ids: Iterable[bytes], *, mend: bool, look: bool, retries: int) -> Call[str]:
        """Examine messages, and `mend` what is wrong; answers a digit an id, which `delayq.repair` reads."""
        return self._call("repair", [self._now, int(mend), int(look), retries, *ids], digits)

    def repair_dead(self, entries: Iterable[bytes], *, mend: bool) -> Call[str]:
        """Examine entries of the dead letter, and `mend` what is wrong; answers a digit an entry."""
        return self._call("repair_dead", [self._now, int(mend), *entries], digits)

    def recount(self, *, mend: bool, limit: int = MOST_IDS) -> Call[tuple[int, ...]]:
        """Answer how far the counters of ready, retry and backoff are off, and how many wake-ups are too many."""
        return self._call("recount", [self._now, int(mend), limit], integers)

    def await_wake(self, timeout: float) -> Command[bool]:
        """Wait up to `timeout` seconds for a wake-up; answers whether one came."""
        return Command(("BLPOP", self.keys.wake, f"{timeout:.3f}"), lambda answer: answer is not None)

    def wake(self) -> Call[bool]:
        """Wake an idle consumer, in place of one that took a wake-up and cannot follow it."""
        return self._call("wake", [], bool)

    def configure(self, *, events: int | None, dedupe_window: int | None, dedupe_max: int) -> Call[bool]:
        """Switch the event log (entries; 0 off) and the dedupe window (ms; 0 off); None leaves them as they are."""
        window = "" if dedupe_window is None else dedupe_window
        return self._call("configure", ["" if events is None else events, window, dedupe_max], bool)

    def default_dedupe_window(self, window: int, most: int) -> Command[bool]:
        """Switch the dedupe window on (ms, ids) where it is off; a queue that has one keeps its own."""
        return Command(("HSETNX", self.keys.meta, "dedupe", f"{window} {most}"), bool)

    def time(self) -> Command[int]:
        """Read the server's clock, in milliseconds since 1970."""
        return Command(("TIME",), lambda answer: int(answer[0]) * 1000 + int(answer[1]) // 1000)

    def events(self, first: int, last: int | None = None, *, limit: int) -> Command[list[Entry]]:
        """Read the event log from an offset on, up to another if given, both included."""
        end = "+" if last is None else id_of(last)
        return Command(("XRANGE", self.keys.events, id_of(first), end, "COUNT", limit), read_entries)

    def last_event(self) -> Command[list[Entry]]:
        """Read the last entry of the event log."""
        return Command(("XREVRANGE", self.keys.events, "+", "-", "COUNT", 1), read_entries)

    def await_events(self, after: int, *, limit: int, timeout: float) -> Command[list[Entry]]:
        """Wait up to `timeout` seconds for entries of the event log behind an offset."""
        block = max(1, int(timeout * 1000))
        stream = ("STREAMS", self.keys.events, id_of(after))
        return Command(("XREAD", "COUNT", limit, "BLOCK", block, *stream), read_tail)

    def trim_events(self, first: int) -> Command[int]:
        """Delete the entries of the event log before an offset; answers how many."""
        return Command(("XTRIM", self.keys.events, "MINID", id_of(first)), int)

    def end_run(self, run: str, *, state: str, epoch: int, refused: int, refusals: bytes) -> Call[Run]:
        """End a run of bulk sends, or an epoch of one; an epoch that was ended before counts nothing again."""
        args = [self._now, run, state, epoch, refused, refusals, MOST_RUNS]
        return self._call("end_run", args, read_run)

    def runs(self) -> Command[dict[str, Run]]:
        """Read the run ledger."""
        return Command(("HGETALL", self.keys.runs), read_runs)

    def refusals(self, run: str) -> Command[bytes]:
        """Read what was refused in a run."""
        return Command(("HGET", self.keys.refusals, run), lambda answer: answer or b"")

    def keep_plan(self, calendar: str, revision: int, plan: bytes) -> Call[bool]:
        """Keep the plan of a calendar (b'' forgets it) if the one of `revision` is still there; answers whether."""
        return self._call("keep_plan", [self._now, calendar, revision, plan], lambda answer: integers(answer)[0] == 1)

    def plan(self, calendar: str) -> Command[bytes | None]:
        """Read the plan of a calendar, as it is kept."""
        return Command(("HGET", self.keys.plans, calendar), lambda answer: answer)

    def plans(self) -> Command[dict[bytes, bytes]]:
        """Read the plans of all calendars, as they are kept."""
        return Command(("HGETALL", self.keys.plans), pairs)

    def confirm(self, replicas: int, *, timeout: int) -> list[Command[Any]]:
        """Wait up to `timeout` ms until so many replicas have what stands before it in the same round trip."""
        # WAIT is about what its connection has written. A call that is sent again after a lost answer writes nothing
        # over the new one, so something is written that changes nothing.
        write = Command(("HINCRBY", self.keys.meta, "sent", 0), int, follows=True)
        return [write, Command(("WAIT", replicas, timeout), lambda have: acknowledged(have, replicas), follows=True)]

    @property
    def _now(self) -> Argument:
        return "" if self.clock is None else self.clock()

    def _call(self, name: str, args: Sequence[Argument], parse: Callable[[Any], T]) -> Call[T]:
        known = self._known.get(name)
        if known is None:
            found = script(name)
            known = self._known[name] = (found, tuple(getattr(self.keys, part) for part in found.parts))
        return Call(known[0], known[1], args, parse)


def preload() -> list[Command[bool]]:
    """Load every script ahead, for users that may not load what is missing."""
    return [Command(("SCRIPT", "LOAD", script(name).text), bool) for name in names()]


def _flat(rows: Iterable[tuple[Argument, ...]]) -> list[Argument]:
    return [*chain.from_iterable(rows)]
