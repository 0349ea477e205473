"""The calls of a stream queue, as values: an `EngineCalls` for consumers and leases, and calls of its own.

A stream promotes nothing. A claim itself takes over messages with expired leases, and moves messages without retries to
the dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from delayq.broker import replies
from delayq.broker.calls import Calls, SendStatuses
from delayq.broker.engine import STREAMS, EngineCapabilities
from delayq.broker.message.attributes import Attributes
from delayq.broker.replies import integers, pairs, statuses
from delayq.broker.requests import (
    OWN_ID,
    UNSTARTED,
    Argument,
    Failure,
    Messages,
    OutgoingTable,
    Receipt,
    RedisCommand,
    Rejection,
    Release,
    ScriptCall,
)
from delayq.broker.scripts import COLLECT_LIMIT, MAX_MOVED, SLOT_TTL, Script, read_all, script
from delayq.broker.shared_calls import confirm, identify
from delayq.errors import ConfigurationError
from delayq.options import Settings
from delayq.streams.keys import StreamKeys
from delayq.streams.replies import (
    NO_PAYLOAD,
    StreamPageReply,
    StreamRow,
    headers_of,
    read_get,
    read_groups,
    read_number,
    read_page,
)
from delayq.values.times import LATEST

EMBEDDED_WAIT = 0.05
"""Seconds between two polls of the embedded server, where nothing can wake a wait."""

T = TypeVar("T")
_COUNT = 1 << 32


class EntryToken(NamedTuple):
    """What the token of a receipt encodes: an entry, the number of its delivery, and whether its id is unique."""

    entry: str
    delivery: int
    unique: bool

    @property
    def token(self) -> int:
        """All of it as one number, which rises with each delivery of an entry."""
        time, _, number = self.entry.partition("-")
        return (((int(time) << 64) + int(number)) * _COUNT + self.delivery) * 2 + self.unique

    @classmethod
    def of(cls, token: int) -> EntryToken:
        """Decode a token."""
        rest, unique = divmod(token, 2)
        id, delivery = divmod(rest, _COUNT)
        return cls(f"{id >> 64}-{id & ((1 << 64) - 1)}", delivery, bool(unique))


@dataclass(frozen=True, slots=True)
class StreamCalls:
    """The calls of one stream queue, made by the consumer that `consumer_id` names."""

    keys: StreamKeys
    group: str
    settings: Settings
    consumer_id: Callable[[], str]
    embedded: bool = False
    """Whether the server is the embedded one, whose XREADGROUP does not block."""
    capabilities: ClassVar[EngineCapabilities] = STREAMS
    waiting_takes: ClassVar[bool] = True
    _known: dict[str, tuple[Script, tuple[str, ...]]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the scripts now: their files may be replaced, or be gone, when a call is made."""
        for engine in ("streams", ""):
            read_all(engine)

    def send(self, messages: Messages, *, max_length: int | None) -> ScriptCall[SendStatuses]:
        """Add messages. Status: 1 new, 0 exists."""
        rows = zip(*messages, strict=True) if isinstance(messages, OutgoingTable) else messages
        args: list[Argument] = [max_length or 0]
        for id, due, retries, payload, headers, *_ in rows:
            args += (id, int(due == OWN_ID), retries, payload, headers)
        return self._call("send", args, SendStatuses.read)

    def pending_to_ready(self) -> ScriptCall[replies.PromoteReply]:
        """Read when more will be due; a stream has nothing to promote."""
        args: list[Argument] = [self.group, self.settings.lease, self.settings.tick, _waiter(self.consumer_id())]
        return self._call("look", args, lambda reply: replies.PromoteReply(*integers(reply)))

    def is_empty(self) -> None:
        """Do without: a stream keeps what is settled."""

    def pending_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> None:
        """Do without: a stream has nothing to promote."""

    def unack_to_retry(self) -> RedisCommand[replies.ExpireReply]:
        """Do nothing: a claim takes over messages with expired leases."""
        return RedisCommand(("PING",), lambda _: replies.ExpireReply(0, 0, -1))

    def ready_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[replies.ClaimReply]:
        """Claim up to `wanted` messages (at most 250) under a lease (ms); 0 requeues those of the blocking read."""
        settings = self.settings
        lasting = [settings.lease, self._idle(lease), settings.default_retries, settings.dead_max]
        waiter = _waiter(consumer_id.removesuffix(UNSTARTED))
        args: list[Argument] = [self.group, consumer_id, waiter, wanted, *lasting]
        return self._call("claim", args, self._read_claimed)

    def await_wake(self, timeout: float) -> RedisCommand[bool]:
        """Wait up to `timeout` seconds in a blocking read. Replies whether it has read a message.

        It reads under a consumer name of its own, from which the next claim takes the message over. A claim whose reply
        was lost can be repeated; a blocking read cannot, and its message would wait until the lease expires.
        """
        if self.embedded:
            return RedisCommand(("BLPOP", self.keys.meta + ".none", f"{min(timeout, EMBEDDED_WAIT):.3f}"), bool)
        block = max(1, int(timeout * 1000))
        reader = ("GROUP", self.group, _waiter(self.consumer_id()), "COUNT", 1, "BLOCK", block)
        # NOGROUP counts as a message: if the group was deleted, a claim creates it again and may find messages.
        return RedisCommand(("XREADGROUP", *reader, "STREAMS", self.keys.stream, ">"), bool, expects="NOGROUP")

    def wake(self) -> ScriptCall[replies.ClaimReply]:
        """Requeue the messages of the blocking read, for a consumer that cannot claim them."""
        return self.ready_to_unack(0, lease=self.settings.lease, consumer_id=self.consumer_id())

    def ack(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Settle messages as done. Status: 1 settled by this call, 0 not."""
        args: list[Argument] = [self.group]
        for id, token in receipts:
            entry = EntryToken.of(token)
            args += (entry.entry, id if entry.unique else "")
        return self._call("ack", args, statuses)

    def nack(self, failures: Iterable[Failure]) -> ScriptCall[str]:
        """Retry messages after a delay. Status: 1 will be retried, 2 dead, 0 not leased under this token.

        Processes the first ones, at most 250, and replies as many statuses: it takes a few milliseconds at most.
        """
        lasting = [self.settings.lease, self.settings.default_retries, self.settings.dead_max]
        args: list[Argument] = [self.group, self.consumer_id(), *lasting]
        for _, token, delay, error, _span in failures:
            args += (*EntryToken.of(token)[:2], delay, error)
        return self._call("nack", args, statuses)

    def release(self, releases: Iterable[Release]) -> ScriptCall[str]:
        """Requeue messages, at once or after a delay, without taking a retry. Status: 1 requeued, 0 not."""
        args: list[Argument] = [self.group, self.consumer_id(), self.settings.lease]
        for release in releases:
            args += (*EntryToken.of(release.token)[:2], release.delay)
        return self._call("release", args, statuses)

    def extend(self, receipts: Iterable[Receipt], *, lease: int) -> ScriptCall[str]:
        """Renew leases (ms from now). Status: 1 renewed, 0 not."""
        return self._call("extend", [self.group, self.consumer_id(), self._idle(lease), *_entries(receipts)], statuses)

    def start(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Note that callbacks have started: from then on the group's consumer is this one. Status: 0 not leased."""
        return self._call("extend", [self.group, self.consumer_id(), "", *_entries(receipts)], statuses)

    def is_withdrawn(self, ids: Iterable[str]) -> RedisCommand[bool]:  # noqa: ARG002
        """Reply that nobody asks for what waits here."""
        return RedisCommand(("PING",), lambda _: False)

    def reject(self, rejections: Iterable[Rejection]) -> ScriptCall[str]:
        """Move the first messages, at most 250, to the dead letter. Status: 1 dead, 0 not."""
        args: list[Argument] = [self.group, self.consumer_id(), self.settings.dead_max]
        for _, token, reason, error in rejections:
            args += (*EntryToken.of(token)[:2], reason, error)
        return self._call("reject", args, statuses)

    def discard(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Settle messages as done: a stream keeps no totals of outcomes."""
        return self.ack(receipts)

    def collect(self, settings: Settings, *, slot_ttl: int = SLOT_TTL, **_: Any) -> ScriptCall[replies.CollectReply]:
        """Trim the dead letter by age; delete unused call slots and idle consumers.

        Messages without retries are moved at once, and each move trims the dead letter by size.
        """
        args: list[Argument] = [self.group, COLLECT_LIMIT, settings.dead_ttl, slot_ttl]
        return self._call("prune", args, lambda reply: replies.CollectReply(*integers(reply)))

    def counts(self) -> ScriptCall[tuple[int, ...]]:
        """Count: entries of the stream, pending entries, those of them without a consumer, and dead messages."""
        return self._call("counts", [self.group], tuple)

    def last_dead(self) -> RedisCommand[str]:
        """Read the id of the last entry of the dead letter, '' if there is none."""
        command = ("XREVRANGE", self.keys.dead, "+", "-", "COUNT", 1)
        return RedisCommand(command, lambda rows: rows[0][0].decode() if rows else "")

    def redrive(self, entries: Iterable[str], *, retries: int | None) -> ScriptCall[str]:
        """Send the first of these dead messages again. Status: 1 redriven, 2 a message with this id exists, 0 gone."""
        return self._call("redrive", ["" if retries is None else retries, *entries], statuses)

    def dead_purge(self, entries: Iterable[str]) -> ScriptCall[int]:
        """Delete entries of the dead letter. Replies how many."""
        return self._call("dead_purge", [*entries], lambda reply: int(statuses(reply)))

    def page(self, state: str, *, limit: int, after: str, preview: int) -> ScriptCall[StreamPageReply]:
        """Read rows of the messages in a state, after an entry, with `preview` bytes of each payload (-1 for all)."""
        return self._call("page", [self.group, state, limit, after, preview], read_page)

    def find(self, id: str, where: str, *, limit: int, after: str) -> ScriptCall[tuple[str, str, int]]:
        """Search the stream or the dead letter for the entry of an id.

        Replies the entry, where to continue, and how many entries were searched.
        """
        args: list[Argument] = [id, where, after, limit]
        return self._call("find", args, lambda reply: (reply[0].decode(), reply[1].decode(), reply[2]))

    def get(self, entry: str, where: str) -> ScriptCall[tuple[int, str, StreamRow | None]]:
        """Read one entry of the stream or the dead letter. Replies the time (ms), its state and its row."""
        return self._call("get", [self.group, entry, where], lambda reply: read_get(*reply))

    def groups(self) -> RedisCommand[list[str]]:
        """Read the names of the groups; none if the stream does not exist."""
        return RedisCommand(("XINFO", "GROUPS", self.keys.stream), read_groups, expects="no such key")

    def confirm(self, replicas: int, *, timeout: int) -> list[RedisCommand[Any]]:
        """Wait up to `timeout` ms until this many replicas have the calls before it in the same round trip."""
        return confirm(self.keys.meta, "confirmed", replicas, timeout)

    def opening(self) -> list[RedisCommand[Any]]:
        """Return the commands whose replies the start-up check of a queue reads."""
        meta, stream = self.keys.meta, self.keys.stream
        commands = ("INFO",), ("HSETNX", meta, "schema", 1), ("HGET", meta, "schema"), ("XLEN", stream)
        return [*(RedisCommand(command, lambda reply: reply) for command in commands), *identify(meta)]

    def _idle(self, lease: int) -> int:
        """Return the initial idle time (ms) that gives a message a lease of this length."""
        if lease > self.settings.lease:
            text = "a lease of a stream message must not be longer than the queue's lease of {:g} s: extend it in time"
            raise ConfigurationError(text.format(self.settings.lease / 1000))
        return self.settings.lease - lease

    def _read_claimed(self, reply: list[Any]) -> replies.ClaimReply:
        now, deadline, more, entries, deliveries, attempts, bodies, lost, alone = reply
        rows = zip(entries, deliveries, attempts, bodies, strict=True)
        expired = tuple(self._expired(*lost[at : at + 4]) for at in range(0, len(lost), 4))
        messages = [self._delivery(*row) for row in rows]
        return replies.ClaimReply(now, deadline, more, messages, alone == 1, expired=expired)

    def _expired(self, entry: bytes, consumer: bytes, attempt: int, body: list[bytes]) -> replies.ExpiredLease:
        message = self._delivery(entry, attempt, attempt, body)
        name = Attributes.of(message.attributes).name
        return replies.ExpiredLease(
            message.id, attempt, message.retries_left, name, consumer.decode("utf-8", "replace")
        )

    def _delivery(self, entry: bytes, delivery: int, attempt: int, body: list[bytes]) -> replies.ClaimedMessage:
        """Return a claimed message; an entry that another client has added may lack any field."""
        fields = pairs(body)
        budget = read_number(fields, b"retries", self.settings.default_retries)
        arrived = min(int(entry.partition(b"-")[0]), LATEST)
        due = read_number(fields, b"due", arrived)
        return replies.ClaimedMessage(
            id=fields.get(b"id", entry).decode("utf-8", "replace"),
            token=EntryToken(entry.decode(), delivery, b"unique" in fields).token,
            payload=fields.get(b"payload", NO_PAYLOAD),
            retries_left=max(budget - attempt + 1, 0),
            due=due if due <= LATEST else arrived,
            attempt=attempt,
            headers=headers_of(fields),
            attributes=fields.get(b"attributes", b""),
            sent=None if b"due" in fields else arrived,  # what a relay has added was sent before
        )

    def _call(self, name: str, args: Sequence[Argument], parse: Callable[[Any], T]) -> ScriptCall[T]:
        known = self._known.get(name)
        if known is None:
            found = script(f"streams/{name}")
            known = self._known[name] = (found, tuple(getattr(self.keys, part) for part in found.parts))
        return ScriptCall(known[0], known[1], args, parse)


def relay(calls: Calls, stream: str, *, consumer_id: str, limit: int = MAX_MOVED) -> ScriptCall[replies.PromoteReply]:
    """Move due messages of a delay queue into a stream."""
    found = script("streams/relay")
    keys = tuple(stream if part == "stream" else getattr(calls.keys, part) for part in found.parts)
    now: Argument = "" if calls.clock is None else calls.clock()
    args: list[Argument] = [now, limit, consumer_id]
    return ScriptCall(found, keys, args, lambda reply: replies.PromoteReply(*integers(reply)))


def _waiter(consumer_id: str) -> str:
    """Return the consumer name under which a process waits in a blocking read."""
    return f"{consumer_id}.wait"


def _entries(receipts: Iterable[Receipt]) -> list[Argument]:
    return [cell for _, token in receipts for cell in EntryToken.of(token)[:2]]
