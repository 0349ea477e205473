"""What a delay queue does, as plain Python: each method is a call and returns what the call must answer.

It knows lives where the scripts know tokens: a receipt belongs to the life it was given out for. Of the lists it keeps
the living entries only, in order. Where leftover entries let an id come to the front sooner, the caller says in which
order the lists offer their ids; that they hold just the right ids is the test's to see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from delayq.calls import Claimed, Collected, Delivery, Expired, Failure, Outgoing, Promoted, Receipt, Rejection


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
    state: str = "pending"
    promoted: bool = False
    attempts: int = 0
    first: int = 0
    token: int = 0
    holder: str = "-"
    until: int = 0
    """The deadline of the lease, or the end of the backoff."""
    error: str = ""


class Dead(NamedTuple):
    """An entry of the dead letter."""

    at: int
    message: Message
    reason: str
    error: str


class Model:
    """A queue of one part, told the time with every call."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.ready: list[str] = []
        self.retry: list[str] = []
        self.dead: dict[str, Dead] = {}
        self.lives: dict[Receipt, int] = {}
        self.totals: Counter[str] = Counter()
        self.token = 0
        self.born = 0

    # What can be asked.

    def ids(self, *states: str) -> list[str]:
        return [id for id, message in self.messages.items() if message.state in states]

    def next_due(self) -> int:
        return min((message.due for message in self.messages.values() if message.state == "pending"), default=-1)

    def next_deadline(self) -> int:
        waiting = (message for message in self.messages.values() if message.state in {"leased", "backoff"})
        return min((message.until for message in waiting), default=-1)

    def held(self, receipt: Receipt) -> Message | None:
        """The message that is leased under this very receipt."""
        message = self.messages.get(receipt.id)
        return message if message and message.state == "leased" and message.token == receipt.token else None

    def living(self, receipt: Receipt) -> Message | None:
        """The message that this receipt, current or not, was given out for, if it can still be completed."""
        message = self.messages.get(receipt.id)
        return message if message and message.life == self.lives[receipt] and message.state != "garbage" else None

    # The producer's calls.

    def send(self, now: int, messages: Sequence[Outgoing], *, replace: bool, max_length: int | None) -> str:
        answers, accepted = "", []
        for number, new in enumerate(messages):
            old = self.messages.get(new.id)
            if new.id in {earlier.id for earlier in messages[:number]}:
                answer = "0"
            elif not old:
                answer = "1"
            elif old.state == "garbage":
                answer = "4"
            elif not replace:
                answer = "0"
            else:
                answer = "3" if old.state == "leased" else "2"
            answers += answer
            if answer in "12":
                accepted.append(new)
        fresh = answers.count("1")
        if fresh and max_length and len(self.messages) + fresh > max_length:
            raise FullError
        for new in accepted:
            if new.id in self.messages:
                self._remove(self.messages[new.id])
            self._begin_life(new.id, _when(now, new.due), new.retries, new.payload, new.headers)
        self.totals["sent"] += fresh
        return answers

    def cancel(self, ids: Sequence[str]) -> str:
        answers = ""
        for id in ids:
            answer = self._movable(id)
            if answer == "1":
                self._remove(self.messages[id])
                self.totals["cancelled"] += 1
            answers += answer
        return answers

    def reschedule(self, now: int, times: Sequence[tuple[str, str | int]]) -> str:
        answers, moved = "", set()
        for id, due in times:
            answer = self._movable(id, is_moved=id in moved)
            if answer == "1":
                message = self.messages[id]
                self._leave_list(message)
                message.state, message.due = "pending", _when(now, due)
                moved.add(id)
                self.totals["rescheduled"] += 1
            answers += answer
        return answers

    def _movable(self, id: str, *, is_moved: bool = False) -> str:
        message = self.messages.get(id)
        if message and not is_moved:
            return {"leased": "2", "garbage": "3"}.get(message.state, "1")
        return "3" if any(entry.message.id == id for entry in self.dead.values()) else "0"

    # The consumer's calls.

    def pending_to_ready(self, now: int, limit: int) -> Promoted:
        due = sorted((m.due, m.id) for m in self.messages.values() if m.state == "pending" and m.due <= now)[:limit]
        for _, id in due:
            message = self.messages[id]
            message.state, message.promoted = "ready", True
            self.ready.append(id)
        waiting, garbage = len(self.ready) + len(self.retry), len(self.ids("garbage"))
        return Promoted(len(due), self.next_due(), self.next_deadline(), waiting, garbage, now)

    def ready_to_unack(
        self, now: int, wanted: int, lease: int, holder: str, *, ready: Sequence[str], retry: Sequence[str]
    ) -> list[Delivery]:
        """Claim; `ready` and `retry` are the living ids of the lists in the order in which they are offered."""
        assert sorted(ready) == sorted(self.ready)
        assert sorted(retry) == sorted(self.retry)
        delivered = self.totals["delivered"]
        due_to_retry = (delivered + wanted) // 4 - delivered // 4  # every fourth delivery tries retry first
        chosen = [*retry[:due_to_retry], *ready, *retry[due_to_retry:]][:wanted]
        for id in chosen:
            message = self.messages[id]
            self._leave_list(message)
            self.token = max(self.token + 1, now * 1000)
            message.token, message.first = self.token, message.first or self.token
            message.attempts += 1
            message.state, message.holder, message.until = "leased", holder, now + lease
            self.lives[Receipt(id, self.token)] = message.life
        self.totals["delivered"] += len(chosen)
        return [self._delivery(self.messages[id]) for id in chosen]

    def replay(self, now: int, receipts: Iterable[Receipt], lease: int) -> list[Delivery]:
        """Answer a claim again: what is still held, with new leases."""
        still = [message for receipt in receipts if (message := self.held(receipt))]
        for message in still:
            message.until = now + lease
        return [self._delivery(message) for message in still]

    def unack_to_retry(self, now: int, limit: int) -> Expired:
        in_unack = [m for m in self.messages.values() if m.state in {"leased", "backoff"} and m.until <= now]
        late = sorted(in_unack, key=lambda m: (m.until, m.id))[:limit]
        spent = 0
        for message in late:
            if message.state == "leased":
                message.error = "lease expired"
                self.totals["expired"] += 1
                if not self._charge(message):
                    spent += 1
                    continue
            message.state = "retry"
            self.retry.append(message.id)
        return Expired(len(late) - spent, spent, self.next_deadline())

    def ack(self, receipts: Iterable[Receipt], *, discarded: bool) -> str:
        answers = ""
        for receipt in receipts:
            message = self.living(receipt)
            answers += "1" if message else "0"
            if message:
                self._remove(message)
        self.totals["discarded" if discarded else "acked"] += answers.count("1")
        return answers

    def nack(self, now: int, failures: Iterable[Failure]) -> str:
        answers = ""
        for id, token, delay, error in failures:
            message = self.held(Receipt(id, token))
            if not message:
                answers += "0"
                continue
            message.error = error or message.error
            if self._charge(message):
                message.state, message.until = "backoff", now + delay
                answers += "1"
            else:
                answers += "2"
            self.totals["nacked"] += 1
        return answers

    def extend(self, now: int, receipts: Iterable[Receipt], *, lease: int) -> str:
        held = [self.held(receipt) for receipt in receipts]
        for message in filter(None, held):
            message.until = now + lease
        return "".join("1" if message else "0" for message in held)

    def release(self, receipts: Iterable[Receipt]) -> str:
        answers, released = "", []
        for receipt in receipts:
            message = self.held(receipt)
            answers += "1" if message else "0"
            if message:
                message.state = "ready"
                message.attempts -= 1
                released.append(message.id)
        self.ready[:0] = released
        self.totals["released"] += len(released)
        return answers

    def reject(self, now: int, rejections: Iterable[Rejection]) -> str:
        answers = ""
        for id, token, reason, error in rejections:
            message = self.held(Receipt(id, token))
            answers += "1" if message else "0"
            if message:
                self._die(now, message, reason, error or message.error)
        return answers

    # The keeper's calls.

    def collect_garbage(
        self, now: int, *, limit: int, dead_max: int, dead_ttl: int, ids: Iterable[str] = ()
    ) -> Collected:
        spent = [id for id in dict.fromkeys(ids) or self.messages if id in self.ids("garbage")]
        for id in spent:
            self._die(now, self.messages[id], "retries spent", self.messages[id].error)
        oldest_first = sorted((dead.at, entry) for entry, dead in self.dead.items())
        too_old = sum(at <= now - dead_ttl for at, _ in oldest_first)
        trimmed = oldest_first[: min(max(too_old, len(oldest_first) - dead_max, 0), limit)]
        for _, entry in trimmed:
            del self.dead[entry]
        self.totals["trimmed"] += len(trimmed)
        return Collected(len(spent), len(trimmed), len(self.ids("garbage")))

    def redrive(self, now: int, entries: Iterable[str], *, retries: int | None) -> str:
        answers = ""
        for entry in entries:
            if entry not in self.dead:
                answers += "0"
            elif self.dead[entry].message.id in self.messages:
                answers += "2"
            else:
                old = self.dead.pop(entry).message
                self._begin_life(old.id, now, old.retries if retries is None else retries, old.payload, old.headers)
                self.totals["redriven"] += 1
                answers += "1"
        return answers

    def dead_purge(self, entries: Iterable[str]) -> str:
        answers = "".join("1" if self.dead.pop(entry, None) else "0" for entry in entries)
        self.totals["purged"] += answers.count("1")
        return answers

    def purge(self) -> int:
        purged = len(self.messages)
        self.messages, self.ready, self.retry = {}, [], []
        self.totals["purged"] += purged
        return purged

    # What they have in common.

    def _begin_life(self, id: str, due: int, retries: int, payload: bytes, headers: bytes) -> None:
        self.born += 1
        self.messages[id] = Message(self.born, id, due, retries, payload, headers, left=retries)

    def _charge(self, message: Message) -> bool:
        """Take one retry of a failed delivery, or leave the message to garbage collection if there is none."""
        if not message.left:
            message.state = "garbage"
            return False
        message.left -= 1
        return True

    def _die(self, now: int, message: Message, reason: str, error: str) -> None:
        self.dead[f"{message.id}:{message.token}"] = Dead(now, message, reason, error)
        self.totals["dead"] += 1
        self._remove(message)

    def _remove(self, message: Message) -> None:
        self._leave_list(message)
        del self.messages[message.id]

    def _leave_list(self, message: Message) -> None:
        if message.state in {"ready", "retry"}:
            getattr(self, message.state).remove(message.id)

    @staticmethod
    def _delivery(m: Message) -> Delivery:
        return Delivery(m.id, m.token, m.payload, m.left, m.due, m.attempts, m.headers)


def claimed(now: int, lease: int, left: int, deliveries: list[Delivery]) -> Claimed:
    return Claimed(now, now + lease, left, deliveries)


def _when(now: int, due: str | int) -> int:
    return int(due[1:]) if isinstance(due, str) and due.startswith("@") else now + int(due)
