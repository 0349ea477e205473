"""What a delay queue does, in plain Python: each method is a call and returns what the call must answer.

It knows lives where the scripts know tokens: a receipt belongs to the life it was given out for. Of the lists it keeps
the living ids only. Where leftover entries let an id come sooner than its turn, the caller says in which order the
lists offer their ids.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

from delayq.broker.calls import Debounced, scope_of
from delayq.broker.message.same_id import Debounce
from delayq.broker.replies import ClaimedMessage, CollectReply, ExpireReply, PromoteReply
from delayq.broker.requests import Failure, Outgoing, Receipt, Rejection, Release, Replace
from delayq.broker.results import Completed
from delayq.queue.control.limit_calls import LimitChange
from delayq.values.rates import Pace
from tests.model.limiting import Claim, Limit, Limits, Waiting, choose

STEP = 60_000
"""The head start of a priority (ms) where none was set."""


class FullError(Exception):
    """The queue takes no more messages."""


@dataclass(slots=True)
class Message:
    """One life of an id, from its sending to its settlement or death."""

    life: int
    id: str
    due: int
    retries: int
    payload: bytes
    headers: bytes
    left: int
    """Retries left."""
    state: str = "pending"
    promoted: bool = False
    attempts: int = 0
    first: int = 0
    token: int = 0
    holder: str = "-"
    until: int = 0
    """The deadline of the lease, or the end of the backoff."""
    error: str = ""
    attributes: bytes = b""
    stopping: bool = False
    """Whether its holder was asked to stop."""

    @property
    def name(self) -> str | None:
        """Its name, None if it has none."""
        found = re.search(rb"(?:^| )name=(\S+)", self.attributes)
        return found[1].decode() if found else None

    @property
    def priority(self) -> int:
        """Its priority, 0 for none."""
        found = re.search(rb"(?:^| )priority=(-?\d+)", self.attributes)
        return int(found[1]) if found else 0


class Successor(NamedTuple):
    """What waits to follow a running message."""

    due: int
    message: Outgoing


class Dead(NamedTuple):
    """An entry of the dead letter."""

    at: int
    message: Message
    reason: str
    error: str


class Model:
    """A queue, told the time with every call that asks for it."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.schema = 0
        self.is_new = False
        """Whether this version has made the queue: then retries are stored once they are not the default."""
        """2 once a message with attributes was sent; the first is stored when a queue is opened."""
        self.successors: dict[str, Successor] = {}
        self.step = 0
        """The head start of a priority (ms); 0 while no message with one was sent, and none was set."""
        self.ready: list[str] = []
        self.retry: list[str] = []
        self.dead: dict[str, Dead] = {}
        self.lives: dict[Receipt, int] = {}
        self.totals: Counter[str] = Counter()
        self.token = self.born = 0
        self.window: tuple[int, int] | None = None
        """The dedupe window in ms and the ids it may hold."""
        self.done: dict[str, float] = {}
        """When ids were settled, or the ends of their own plus a half."""
        self.own = False
        """Whether ids may have ends of their own."""
        self.last: dict[str, bytes] = {}
        """The attributes that the last message of each id had."""
        self.completed: dict[str, tuple[int, bytes]] = {}
        """Until when the result of a settled id is kept, and its record."""
        self.waited: dict[str, int] = {}
        """Until when somebody waits for an id."""
        self.told: list[set[str]] = []
        """Which ids each call has announced since the last look at the stream of ends; none of them: all."""
        self.runs: dict[str, Counter[str]] = {}
        self.stops = 0
        """Calls that have asked holders to stop."""
        self.begun: dict[str, int] = {}
        """When the first call of a run was made."""
        self.pause_set: tuple[int, str] | None = None
        """When the last pause that was not resumed ends, 0 for no end, and its reason."""

        self.limits = Limits()
        self.declared: dict[str, str] = {}
        self.trials: tuple[tuple[str, str | None], ...] = ()
        """What the last claim has started as trials, and of which names."""

    def ids(self, state: str) -> list[str]:
        return [id for id, message in self.messages.items() if message.state == state]

    def ranked(self) -> list[str]:
        """Return the ids that wait by rank, in their order."""
        return sorted(self.ids("ranked"), key=lambda id: (self.rank(id), id))

    def rank(self, id: str) -> int:
        """Return the due time of a message less the head start of its priority."""
        message = self.messages[id]
        return message.due - message.priority * self.step

    def next_due(self) -> int:
        return min((self.messages[id].due for id in self.ids("pending")), default=-1)

    def in_unack(self) -> list[Message]:
        """Messages under a lease or in a backoff, in the order in which these end."""
        waiting = [message for message in self.messages.values() if message.state in {"leased", "backoff"}]
        return sorted(waiting, key=lambda message: (message.until, message.id))

    def next_deadline(self) -> int:
        return next((message.until for message in self.in_unack()), -1)

    def held(self, receipt: Receipt | Failure | Rejection | Release) -> Message | None:
        """The message that is leased under this very receipt."""
        message = self.messages.get(receipt.id)
        return message if message and message.state == "leased" and message.token == receipt.token else None

    def is_paused(self, now: int) -> bool:
        return self.pause_set is not None and (self.pause_set[0] == 0 or self.pause_set[0] > now)

    # Producers.

    def send(
        self, now: int, messages: Sequence[Outgoing], *, replace: Replace, max_length: int | None, run: str = ""
    ) -> str:
        fates: dict[str, str] = {}
        replies = ""
        for new in messages:
            again = new.id in fates
            fate = fates.setdefault(new.id, self._fate(now, new.id, replace=replace))
            replies += "0" if again and fate != "5" else fate
        fresh = replies.count("1")
        if fresh and max_length and len(self.messages) + fresh > max_length:
            raise FullError
        for new, reply in zip(messages, replies, strict=True):
            if reply == "2":
                self._remove(new.id)
                self.successors.pop(new.id, None)
            if reply == "6":
                self.successors[new.id] = Successor(_when(now, new.due), new)
                self.schema = 2
                self._note_priority(new.attributes)
            if reply in "12":
                self._begin_life(_when(now, new.due), new.retries, new)
                self._reserve(now, new)
        self.totals["sent"] += fresh
        if run:
            self.runs.setdefault(run, Counter()).update(replies)
            self.begun.setdefault(run, now)
        return replies

    def _fate(self, now: int, id: str, *, replace: Replace) -> str:
        if replace == "moved up":
            is_idle = id in self.messages and self.messages[id].state not in {"leased", "garbage"}
            return "2" if is_idle and id in self.successors else "0"
        if id not in self.messages:
            return "5" if id in self.done and self.reserved_until(id) > now else "1"
        state = self.messages[id].state
        if state == "garbage":
            return "4"
        return "0" if not replace else "2" if state != "leased" else "6" if replace == "after" else "3"

    def debounce(self, now: int, message: Outgoing, how: Debounce, *, max_length: int | None) -> Debounced:
        id, before = message.id, self.messages.get(message.id)
        fate = self._fate(now, id, replace="after")
        if fate == "4":
            return Debounced(fate, 0, 1, unstarted=False)
        if fate == "5":
            return Debounced(fate, 0, f"settled {self.reserved_until(id)}", unstarted=False)
        if fate == "1" and max_length and len(self.messages) >= max_length:
            raise FullError
        earlier = before.attributes if before and before.attempts == 0 else b""
        if fate == "6":
            earlier = self.successors[id].message.attributes if id in self.successors else b""
        since = int(_pair(earlier, b"since") or now)
        due = min(now + how.quiet, since + how.at_most) if how.at_most is not None else now + how.quiet
        new = message._replace(attributes=b" ".join(filter(None, (message.attributes, b"since=%d" % since))))
        if fate == "6":
            self.successors[id], self.schema = Successor(due, new), 2
            self._note_priority(new.attributes)
        else:
            if before:
                self._remove(id)
                self.successors.pop(id, None)
            self._begin_life(due, new.retries, new)
            self.totals["sent"] += fate == "1"
        return Debounced(fate, f"@{due}", 1, unstarted=False)

    def reserved_until(self, id: str) -> int:
        at = self.done[id]
        return int(at if at % 1 else at + (self.window[0] if self.window else 0))

    def cancel(self, now: int, ids: Iterable[str], *, stop: bool = False) -> str:
        replies, cancelled, dropped, asked = "", [], [], False
        for id in ids:
            fate = self._whether_idle(id)
            if (fate == "2" and stop) or (id in self.messages and self.messages[id].stopping):
                fate, asked = "5", asked or not self.messages[id].stopping
                self.messages[id].stopping = True
            if fate == "1":
                self._remove(id)
                cancelled.append(id)
            if id in self.messages.keys() | {*cancelled} and self.successors.pop(id, None):
                dropped.append(id)
                fate = fate if fate in "15" else "4"
            replies += fate
        if asked:
            self.stops, self.schema = self.stops + 1, 2
        self.totals["cancelled"] += len(cancelled)
        self._tell(cancelled + dropped)
        self._settle(now, cancelled)
        return replies

    def kill(self, now: int, ids: Iterable[str]) -> str:
        replies, killed = "", []
        for id in ids:
            fate = self._whether_idle(id) if id not in killed else "3"
            if id in self.messages and self.messages[id].state == "garbage" and self.messages[id].stopping:
                fate = "0"
            replies += fate
            if fate == "1":
                message = self.messages[id]
                if not message.token:
                    self.token = max(self.token + 1, now * 1000)
                    message.token = self.token
                self._die(now, message, "killed", message.error)
                killed.append(id)
        self._tell(killed)
        self._settle(now, killed)
        self._succeed(killed)
        return replies

    def reschedule(self, now: int, times: Iterable[tuple[str, str | int]]) -> str:
        replies, moved = "", set()
        for id, due in times:
            replies += self._whether_idle(id) if id not in moved else self._whether_dead(id)
            if replies[-1] == "1":
                moved.add(id)
                self._leave_list(id)
                self.messages[id].state, self.messages[id].due = "pending", _when(now, due)
        self.totals["rescheduled"] += len(moved)
        return replies

    def _whether_idle(self, id: str) -> str:
        if id not in self.messages:
            return self._whether_dead(id)
        return {"leased": "2", "garbage": "3"}.get(self.messages[id].state, "1")

    def _whether_dead(self, id: str) -> str:
        return "3" if any(death.message.id == id for death in self.dead.values()) else "0"

    # Consumers.

    def pending_to_ready(self, now: int, limit: int, *, is_told: bool = True) -> PromoteReply:
        """Promote; `is_told` unless nothing but what is pending is stored, and none of it is due."""
        pending = sorted((self.messages[id].due, id) for id in self.ids("pending"))
        due = [id for at, id in pending if at <= now][:limit]
        is_told = is_told or bool(due)
        for id in due:
            self.messages[id].promoted = True
            self._wait(id, "ready")
        self.ready += [id for id in due if self.messages[id].state == "ready"]
        waiting, garbage = len(self.ready) + len(self.ids("ranked")) + len(self.retry), len(self.ids("garbage"))
        reply = PromoteReply(len(due), self.next_due(), self.next_deadline(), waiting, garbage, now)
        gate = self.limits.first_gate() if is_told else None
        waits = waiting or self.in_unack() or gate is not None
        if waits and (self.step or self.limits.flag):
            reply = reply._replace(ranks=1)
        if self.in_unack():
            reply = reply._replace(stopping=self.stops)
        if gate is not None and gate != math.inf and not self.is_paused(now):
            reply = reply._replace(next_gate=int(gate))
        if waits and self.is_paused(now):
            assert self.pause_set
            return reply._replace(waiting=0, paused=self.pause_set[0])
        if gate is not None and self.limits.gates.get(0, 0) > now:
            return reply._replace(waiting=0)
        return reply

    def ready_to_unack(
        self, now: int, wanted: int, lease: int, holder: str, *, ready: Sequence[str], retry: Sequence[str]
    ) -> list[ClaimedMessage]:
        """Claim; `ready` and `retry` are the living ids of the lists in the order in which these offer them."""
        assert (sorted(ready), sorted(retry)) == (sorted(self.ready), sorted(self.retry))
        self.trials = ()
        if self.is_paused(now):
            return []
        delivered = self.totals["delivered"]
        first_turns = (delivered + wanted) // 4 - delivered // 4  # of every four deliveries one tries retry first
        # Of equal rank, what is ready comes before what is ranked.
        by_rank = merge(
            ((self.messages[id].due, 0, id) for id in ready),
            ((self.rank(id), 1, id) for id in self.ranked()),
            key=lambda one: one[:2],
        )
        if self.limits.flag:
            claim = Claim(self.limits, now, len(self.ids("leased")), max(self.token + 1, now * 1000))
            offered = [self._waiting(id) for *_, id in by_rank]
            chosen = choose(claim, wanted, delivered, [self._waiting(id) for id in retry], offered)
            for one, number in claim.throttled:
                self._leave_list(one.id)
                self.messages[one.id].state = "throttled"
                self.limits.lines[one.id] = number, one.rank
            self.totals["throttled"] += len(claim.throttled)
            self.trials = tuple(claim.trials)
            return self._claim(now, chosen, lease, holder)
        chosen = [*retry[:first_turns], *(id for *_, id in by_rank), *retry[first_turns:]][:wanted]
        return self._claim(now, chosen, lease, holder)

    def pending_to_unack(
        self, now: int, wanted: int, lease: int, holder: str, *, listed: Sequence[str]
    ) -> list[ClaimedMessage]:
        """Claim what is due; `listed` are all entries of ready, ranked and retry, which come first."""
        if listed or self.step or self.limits.flag or self.is_paused(now):
            return []
        due = sorted((self.messages[id].due, id) for id in self.ids("pending") if self.messages[id].due <= now)
        chosen = [id for _, id in due][:wanted]
        for id in chosen:
            self.messages[id].promoted = True
        return self._claim(now, chosen, lease, holder)

    def is_plain(self) -> bool:
        """Whether the queue uses nothing for which a consumer needs several calls a turn; no log is looked at."""
        return not (self.step or self.limits.flag or self.window or self.own or self.successors)

    def turn(
        self, now: int, wanted: int, lease: int, holder: str, *, ahead: int, receipts: Iterable[Receipt], listed: int
    ) -> tuple[str, list[ClaimedMessage]]:
        """Settle and claim in a plain queue: the statuses, and what is claimed; `listed` as in `pending_to_unack`."""
        statuses = ""
        for receipt in receipts:
            message = self.messages.get(receipt.id)
            late = message and message.state not in {"leased", "garbage"} and message.life == self.lives[receipt]
            statuses += "?" if late else self.ack(now, [receipt], outcome="acked")
        if listed or self.is_paused(now):
            return statuses, []
        due = sorted((self.messages[id].due, id) for id in self.ids("pending") if self.messages[id].due <= now + ahead)
        chosen = [id for _, id in due][:wanted]
        for id in chosen:
            self.messages[id].promoted = True
        return statuses, self._claim(now, chosen, lease, holder)

    def _waiting(self, id: str) -> Waiting:
        message = self.messages[id]
        return Waiting(id, message.name, self.rank(id) if message.state == "ranked" else message.due)

    def _claim(self, now: int, chosen: Sequence[str], lease: int, holder: str) -> list[ClaimedMessage]:
        for id in chosen:
            self._leave_list(id)
            message = self.messages[id]
            self.token = max(self.token + 1, now * 1000)
            self.lives[Receipt(id, self.token)] = message.life
            message.token, message.first = self.token, message.first or self.token
            message.state, message.holder, message.until = "leased", holder, now + lease
            message.attempts += 1
        self.totals["delivered"] += len(chosen)
        return [_delivery(self.messages[id]) for id in chosen]

    def replay(self, now: int, receipts: Iterable[Receipt], lease: int) -> list[ClaimedMessage]:
        """Answer a claim again: what is still held, under new leases."""
        still = [message for receipt in receipts if (message := self.held(receipt))]
        for message in still:
            message.until = now + lease
        return [_delivery(message) for message in still]

    def unack_to_retry(self, now: int, limit: int) -> ExpireReply:
        late = [message for message in self.in_unack() if message.until <= now][:limit]
        for message in late:
            if message.state == "backoff":
                message.state = "retry"
            elif message.stopping:
                message.state = "garbage"
            else:
                message.error = "lease expired"
                self.totals["expired"] += 1
                self._charge(message, "retry")
        self.limits.free(message.id for message in late)
        again = [message.id for message in late if message.state == "retry"]
        for id in again:
            self._wait(id, "retry")
        self.retry += [id for id in again if self.messages[id].state == "retry"]
        return ExpireReply(len(again), len(late) - len(again), self.next_deadline())

    def ack(self, now: int, receipts: Iterable[Receipt], *, outcome: str) -> str:
        replies, settled, held = "", [], []
        for receipt in receipts:
            message = self.messages.get(receipt.id)
            lives = message and message.life == self.lives[receipt] and message.state != "garbage"
            replies += "1" if lives else "0"
            if message and lives:
                held += [receipt.id] if message.state == "leased" else []
                self._remove(receipt.id)
                settled.append(receipt.id)
        self.limits.free(held)
        self.totals["acked" if outcome == "acked" else "discarded"] += len(settled)
        self.totals["missed"] += len(settled) * (outcome == "missed")
        self._settle(now, settled)
        self._succeed(settled)
        return replies

    def complete(self, now: int, completions: Iterable[Completed]) -> str:
        replies, settled = "", []
        for done in completions:
            message = self.messages.get(done.id)
            lives = message and message.life == self.lives[Receipt(done.id, done.token)] and message.state != "garbage"
            replies += "1" if lives else "0"
            if message and lives:
                self.completed[done.id] = now + int(done.retention), kept_text(now, message, done)
                self._remove(done.id)
                settled.append(done.id)
                self.totals["discarded" if done.ending == "discarded" else "acked"] += 1
                self.totals["missed"] += (done.ending, done.note) == ("discarded", "missed")
        self.limits.free(settled)
        self._tell(settled)
        self._settle(now, settled)
        self._succeed(settled)
        return replies

    def report(self, receipt: Receipt, progress: str) -> str:
        message = self.held(receipt)
        if message:
            kept = [part for part in message.attributes.split(b" ") if part and not part.startswith(b"progress=")]
            message.attributes, self.schema = b" ".join([*kept, b"progress=" + progress.encode()]), 2
        return "1" if message else "0"

    def nack(self, now: int, failures: Iterable[Failure]) -> str:
        replies = ""
        for failure in failures:
            message = self.held(failure)
            self.limits.free([message.id] if message else [])
            if message and message.stopping:
                message.state = "garbage"
            elif message:
                message.error, message.until = failure.error or message.error, now + failure.delay
                self._charge(message, "backoff")
                self.totals["nacked"] += 1
                if failure.span:
                    others = [part for part in message.attributes.split(b" ") if part and not part.startswith(b"span=")]
                    message.attributes, self.schema = b" ".join([b"span=" + failure.span.encode(), *others]), 2
            replies += ("1" if message.state == "backoff" else "2") if message else "0"
        return replies

    def extend(self, now: int, receipts: Iterable[Receipt], *, lease: int) -> str:
        held = [self.held(receipt) for receipt in receipts]
        for message in filter(None, held):
            message.until = now + lease
        return "".join("0" if not message else "2" if message.stopping else "1" for message in held)

    def release(self, now: int, releases: Iterable[Release]) -> str:
        replies, back = "", []
        for release in releases:
            message = self.held(release)
            if message and release.unstarted:
                self.limits.give_back(message.name, message.token, now)
            self.limits.free([message.id] if message else [])
            replies += "0" if not message else "2" if message.stopping else "1"
            if message and message.stopping:
                message.state = "garbage"
            elif message:
                message.attempts -= 1
                if release.attributes:
                    kept = [part for part in message.attributes.split(b" ") if part.startswith(b"progress=")]
                    message.attributes, self.schema = b" ".join([release.attributes, *kept]), 2
                message.until = now + release.delay
                if release.delay:
                    message.state = "backoff"
                else:
                    self._wait(message.id, "ready")
                back += [message.id] if message.state == "ready" else []
        self.ready[:0] = back
        self.totals["released"] += replies.count("1")
        return replies

    def reject(self, now: int, rejections: Iterable[Rejection]) -> str:
        replies, dead = "", []
        for rejection in rejections:
            message = self.held(rejection)
            replies += "1" if message else "0"
            if message:
                self.totals["missed"] += rejection.reason == "missed" and not message.stopping
                self._die(now, message, rejection.reason, rejection.error or message.error)
                dead.append(message.id)
        self.limits.free(dead)
        self._tell(dead)
        self._settle(now, dead)
        self._succeed(dead)
        return replies

    # The keeper.

    def collect_garbage(
        self, now: int, *, limit: int, dead_max: int, dead_ttl: int, ids: Sequence[str] = ()
    ) -> CollectReply:
        spent = [id for id in self.ids("garbage") if not ids or id in ids]
        buried = sum(not self.messages[id].stopping for id in spent)
        for id in spent:
            self._die(now, self.messages[id], "retries spent", self.messages[id].error)
        self._tell(spent)
        self._settle(now, spent)
        self._succeed(spent)
        self._forget(now, limit)
        left = self._forget_results(now, 10 * limit)
        oldest_first = sorted((death.at, entry) for entry, death in self.dead.items())
        too_old = sum(at <= now - dead_ttl for at, _ in oldest_first)
        trimmed = oldest_first[: min(max(too_old, len(oldest_first) - dead_max), limit)]
        for _, entry in trimmed:
            del self.dead[entry]
        self.totals["trimmed"] += len(trimmed)
        return CollectReply(buried, len(trimmed), len(self.ids("garbage")) + left)

    def redrive(
        self,
        now: int,
        entries: Iterable[str],
        *,
        retries: int | None,
        first: float = 0,
        interval: float = 0,
        payloads: Sequence[bytes] | None = None,
    ) -> str:
        replies = ""
        for n, entry in enumerate(entries):
            replies += "0" if entry not in self.dead else "2" if self.dead[entry].message.id in self.messages else "1"
            if replies[-1] == "1":
                old = self.dead.pop(entry).message
                old.payload = old.payload if payloads is None else payloads[n]
                anew = (b"snoozes=", b"unhandled=", b"expires=", b"since=", b"progress=")
                kept = [part for part in old.attributes.split() if not part.startswith(anew)]
                old.attributes = b" ".join(kept)
                due = int(now + first + (replies.count("1") - 1) * interval)
                self._begin_life(due, old.retries if retries is None else retries, old)
        self.totals["redriven"] += replies.count("1")
        return replies

    def dead_purge(self, entries: Iterable[str]) -> str:
        replies = "".join("1" if self.dead.pop(entry, None) else "0" for entry in entries)
        self.totals["dead_purged"] += replies.count("1")
        return replies

    def purge(self) -> int:
        purged = len(self.messages)
        if self.waited:
            self.told.append(set())
        self.waited = {}
        self.messages, self.successors, self.ready, self.retry = {}, {}, [], []
        self.limits.clear()
        self.totals["purged"] += purged
        return purged

    def pause(self, now: int, until: str, reason: str) -> int:
        ends = now + int(until) if until.startswith("+") else int(until)
        if 0 < ends <= now:
            return -1
        self.pause_set = ends, reason
        return ends

    def resume(self, now: int) -> bool:
        was_paused = self.is_paused(now)
        self.pause_set = None
        return was_paused

    def limit(
        self,
        now: int,
        name: str | None,
        *,
        pace: Pace | None = None,
        places: int | None = None,
        paused: str = "",
        reason: str = "",
        spread: int | None = None,
    ) -> LimitChange:
        scope = scope_of(name)
        since = now if paused.startswith("+") else 0
        ends = since + int(paused.removeprefix("+")) if paused not in {"", "-"} else None
        if ends is not None and 0 < ends <= now:
            return LimitChange(-1, -1)
        one = self.limits.change(scope, now)
        was_paused, was_limited = one.is_paused(now), one.interval > 0 or one.places > 0
        was_spread = paused == "-" and one.spread_until > now
        if places == 0:
            self.limits.running = {id: number for id, number in self.limits.running.items() if number != one.number}
        elif places and name and not one.places:
            self.limits.running |= {id: one.number for id in self.ids("leased") if self.messages[id].name == name}
        if pace is not None:
            one.interval, one.burst = pace
        one.places = one.places if places is None else places
        if ends is not None:
            one.paused, one.reason = ends, reason
        if paused == "-":
            one.paused, one.reason, one.spread, one.spread_until = None, "", 0, 0
        if spread is not None:
            one.spread = spread * 1000 / max(len(self.limits.line(one.number)), 1)
            one.spread_until, one.next_start = now + spread, now * 1000
        one.keep_starts()
        self._put_limit(now, scope)
        ends_at = one.paused if one.is_paused(now) and one.paused is not None else -1
        return LimitChange(int(was_paused or was_spread if paused else was_limited), ends_at)

    def declare(self, now: int, name: str | None, *, pace: Pace | None, places: int | None) -> bool:
        said = f"{(pace or Pace()).interval:.3f} {(pace or Pace()).burst} {places or 0}"
        last = self.declared.get(scope_of(name), "0.000 1 0")
        (rate, held), (last_rate, last_places) = said.rsplit(" ", 1), last.rsplit(" ", 1)
        if said == last:
            return False
        changed = {
            "pace": None if rate == last_rate else pace or Pace(),
            "places": None if held == last_places else places or 0,
        }
        self.limit(now, name, **changed)
        self.declared[scope_of(name)] = said
        return True

    def close(self, now: int, name: str | None, delay: int, *, pause: int | None = None) -> str:
        found = self.limits.of.get(scope_of(name)) or Limit(0)
        next_trial = min(found.trial_at, now + found.trial_pause)
        tripped, first = found.trials > 0 or next_trial > now, found.trials == 2 and next_trial > now
        if (pause == 0 and not tripped) or (pause and first):
            return "2"
        one = self.limits.change(scope_of(name), now)
        if pause is None:
            one.held = max(one.held, now + delay)
        else:
            one.trip(now + pause if pause else 0, pause, 2 if pause else 0)
        self._put_limit(now, scope_of(name))
        return "1"

    def _put_limit(self, now: int, scope: str) -> None:
        self.limits.put(scope, now)
        if self.limits.flag:
            self.schema = 2

    def await_ends(self, now: int, ids: Iterable[str], *, duration: int) -> None:
        for id in ids:
            self.waited[id] = max(self.waited.get(id, 0), now + duration)

    # What they share.

    def _tell(self, ids: Iterable[str]) -> None:
        """Whoever waits for an id that has ended is told, and waits no more."""
        told = {id for id in ids if self.waited.pop(id, None) is not None}
        if told:
            self.told.append(told)

    def _forget_results(self, now: int, limit: int) -> int:
        """Delete the results whose time is over; returns how many are left."""
        self.waited = {id: until for id, until in self.waited.items() if until >= now}
        expired = sorted((until, id) for id, (until, _) in self.completed.items() if until <= now)
        for _, id in expired[:limit]:
            del self.completed[id]
        return len(expired[limit:])

    def _begin_life(self, due: int, retries: int, of: Outgoing | Message) -> None:
        self.born += 1
        life = Message(self.born, of.id, due, retries, of.payload, of.headers, left=retries, attributes=of.attributes)
        self.messages[of.id] = life
        if of.attributes:
            self.schema = 2
        self._note_priority(of.attributes)

    def _note_priority(self, attributes: bytes) -> None:
        """Rank what is due from the first message with a priority on."""
        if b" priority=" in b" " + attributes:
            self.step = self.step or STEP

    def _wait(self, id: str, otherwise: str) -> None:
        """Let a message wait for a claim: by rank if it has a priority, else in a list."""
        message = self.messages[id]
        message.state = "ranked" if self.step and message.priority else otherwise

    def _succeed(self, ids: Iterable[str]) -> None:
        """Let those take their places that wait to follow messages that have ended."""
        for id in ids:
            if waiting := self.successors.pop(id, None):
                self._begin_life(waiting.due, waiting.message.retries, waiting.message)
                self.totals["sent"] += 1

    def _reserve(self, now: int, new: Outgoing) -> None:
        """Hold the id of a new message for as long as its attributes say."""
        self.own |= b"unique_" in new.attributes
        if span := _pair(new.attributes, b"unique_for"):
            self.done[new.id] = now + int(span) + 0.5

    def _settle(self, now: int, ids: Sequence[str]) -> None:
        """Remember ids for the dedupe window, or until ends of their own."""
        if not ids or not (self.window or self.own):
            return
        window = self.window[0] if self.window else 0
        for id in ids:
            end = now + int(_pair(self.last[id], b"unique_after") or 0) if self.own else now
            end = max(end, self.reserved_until(id)) if self.own and id in self.done else end
            if end > now + window:
                self.done[id] = end + 0.5
            elif window:
                self.done[id] = now
        self._forget(now, 2 * len(ids))

    def _forget(self, now: int, limit: int) -> None:
        if self.window or self.own:
            window, most = self.window or (0, 0)
            oldest_first = sorted(self.done, key=lambda id: (self.done[id], id))
            too_old = sum(self.done[id] <= now - window for id in oldest_first)
            past = sum(self.done[id] <= now for id in oldest_first) if self.own else len(oldest_first)
            for id in oldest_first[: min(max(too_old, past - most), limit)]:
                del self.done[id]

    def _charge(self, message: Message, otherwise: str) -> None:
        """Take one retry for a failed delivery; where none is left, the message waits for collection."""
        message.state = otherwise if message.left else "garbage"
        message.left = max(message.left - 1, 0)

    def _die(self, now: int, message: Message, reason: str, error: str) -> None:
        """End a message: in the dead letter, unless its holder was asked to stop."""
        if message.stopping:
            self.totals["cancelled"] += 1
        else:
            self.dead[f"{message.id}:{message.token}"] = Dead(now, message, reason, error)
            self.totals["dead"] += 1
        self._remove(message.id)

    def _remove(self, id: str) -> None:
        self._leave_list(id)
        self.last[id] = self.messages.pop(id).attributes

    def _leave_list(self, id: str) -> None:
        self.limits.lines.pop(id, None)
        if id in self.ready:
            self.ready.remove(id)
        if id in self.retry:
            self.retry.remove(id)


def kept_text(now: int, m: Message, done: Completed) -> bytes:
    """Return what is kept of a message that was completed."""
    head = f"{done.ending} {m.attempts} {m.due} {now} {done.token} {len(done.attributes)} {len(done.note)}\n"
    return head.encode() + done.attributes + done.note.encode() + done.result


def _delivery(m: Message) -> ClaimedMessage:
    return ClaimedMessage(m.id, m.token, m.payload, m.left, m.due, m.attempts, m.headers, m.attributes)


def _pair(attributes: bytes, name: bytes) -> bytes:
    """Return the value of an attribute, empty if there is none."""
    return dict(part.partition(b"=")[::2] for part in attributes.split()).get(name, b"")


def _when(now: int, due: str | int) -> int:
    return int(due[1:]) if isinstance(due, str) and due.startswith("@") else now + int(due)
