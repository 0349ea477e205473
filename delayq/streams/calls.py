"""Every operation on a stream queue as a value, under the names and arguments of `delayq.calls` for a delay queue.

So messages, leases and consumers are those of a delay queue. What a stream lacks, its calls leave out: it promotes
nothing, and a claim itself takes over what is past its lease and buries what is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from delayq.answers import Claimed, Collected, Delivery, Expired, Promoted, acknowledged, digits, integers, pairs
from delayq.calls import Calls
from delayq.clock import LATEST
from delayq.config import Settings
from delayq.errors import ConfigurationError
from delayq.script import MOST_MOVED, Script, script
from delayq.streams.answers import Listed, Row, read_found, read_groups, read_listed, read_number
from delayq.streams.keys import StreamKeys
from delayq.values import Argument, Call, Command, Failure, Outgoing, OutgoingTable, Receipt, Rejection

SCRIPTS = tuple(
    f"streams/{name}"
    for name in (
        "ack",
        "claim",
        "counts",
        "dead_purge",
        "extend",
        "find",
        "get",
        "look",
        "nack",
        "page",
        "prune",
        "redrive",
        "reject",
        "relay",
        "release",
        "send",
    )
)
OWN_ID = "unique"
"""In place of a due time, which a stream has not: the id is the sender's own, and so among those that are unique."""
RELAY_ROOM = 1 << 20
"""Payload bytes after which a relay moves no more in one call."""
ROOM = 4 << 20
"""Payload bytes after which a call looks at no more entries."""
EMBEDDED_WAIT = 0.05
"""Seconds after which a wait looks again where nothing can wake it: in the embedded server."""

T = TypeVar("T")
_COUNT = 1 << 32


class Place(NamedTuple):
    """What the token of a receipt says: the entry of the stream, which delivery of it, and if its id is unique."""

    entry: str
    delivery: int
    unique: bool

    @property
    def token(self) -> int:
        """The place as one number, which rises with each delivery of an entry."""
        time, _, number = self.entry.partition("-")
        return (((int(time) << 64) + int(number)) * _COUNT + self.delivery) * 2 + self.unique

    @classmethod
    def of(cls, token: int) -> Place:
        """Return the place that a token stands for."""
        rest, unique = divmod(token, 2)
        id, delivery = divmod(rest, _COUNT)
        return cls(f"{id >> 64}-{id & ((1 << 64) - 1)}", delivery, bool(unique))


@dataclass(frozen=True, slots=True)
class StreamCalls:
    """The calls of one stream queue, in the name of the consumer that `holder` names."""

    keys: StreamKeys
    group: str
    settings: Settings
    holder: Callable[[], str]
    embedded: bool = False
    """Whether the server is the embedded one, whose XREADGROUP does not block."""
    waiting_takes: ClassVar[bool] = True
    _known: dict[str, tuple[Script, tuple[str, ...]]] = field(default_factory=dict, repr=False, compare=False)

    def send(
        self,
        messages: Sequence[Outgoing] | OutgoingTable,
        *,
        replace: bool = False,  # noqa: ARG002 - a stream replaces nothing; the producer's face is that of a delay queue
        max_length: int | None,
        run: str = "",  # noqa: ARG002 - nor has it a ledger
    ) -> Call[str]:
        """Add messages; answers a digit each: 1 new, 0 exists."""
        rows = zip(*messages, strict=True) if isinstance(messages, OutgoingTable) else messages
        args: list[Argument] = [max_length or 0]
        for id, due, retries, payload, headers in rows:
            args += (id, int(due == OWN_ID), retries, payload, headers)
        return self._call("send", args, digits)

    def pending_to_ready(self) -> Call[Promoted]:
        """Look for what comes next: nothing of a stream is to be promoted."""
        args: list[Argument] = [self.group, self.settings.lease, self.settings.tick, _waiter(self.holder())]
        return self._call("look", args, lambda answer: Promoted(*integers(answer)))

    def unack_to_retry(self) -> Command[Expired]:
        """Do nothing: a claim takes over what is past its lease."""
        return Command(("PING",), lambda _: Expired(0, 0, -1))

    def ready_to_unack(self, wanted: int, *, lease: int, holder: str) -> Call[Claimed]:
        """Claim up to `wanted` messages (at most 250) under a lease (ms); 0 gives back what the blocking read got."""
        settings = self.settings
        lasting = [settings.lease, self._idle(lease), settings.default_retries, settings.dead_max]
        args: list[Argument] = [self.group, holder, _waiter(holder), wanted, *lasting]
        return self._call("claim", args, self._read_claimed)

    def await_wake(self, timeout: float) -> Command[bool]:
        """Wait up to `timeout` seconds in a blocking read; answers whether it has got a message.

        It reads in the name of a consumer of its own, of which the next claim takes it over: of a claim a lost answer
        loses nothing, of a blocking read it would keep a message back until its lease is over.
        """
        if self.embedded:
            return Command(("BLPOP", self.keys.meta + ".none", f"{min(timeout, EMBEDDED_WAIT):.3f}"), bool)
        block = max(1, int(timeout * 1000))
        reader = ("GROUP", self.group, _waiter(self.holder()), "COUNT", 1, "BLOCK", block)
        # Of a group that somebody has deleted there may be messages to have: a claim makes it anew.
        return Command(("XREADGROUP", *reader, "STREAMS", self.keys.stream, ">"), bool, expects="NOGROUP")

    def wake(self) -> Call[Claimed]:
        """Give back what the blocking read has got, for a consumer that cannot claim it."""
        return self.ready_to_unack(0, lease=self.settings.lease, holder=self.holder())

    def ack(self, receipts: Iterable[Receipt], *, discarded: bool = False) -> Call[str]:  # noqa: ARG002 - not counted
        """Settle messages as done; answers a digit a receipt: 1 by it, 0 not."""
        args: list[Argument] = [self.group]
        for id, token in receipts:
            place = Place.of(token)
            args += (place.entry, id if place.unique else "")
        return self._call("ack", args, digits)

    def nack(self, failures: Iterable[Failure]) -> Call[str]:
        """Have messages delivered again after a delay; answers a digit each: 1 will be retried, 2 dead, 0 not held.

        Of many, only the first 250 are taken up, as the answer says: so many take some milliseconds of the server's.
        """
        settings = self.settings
        args: list[Argument] = [self.group, self.holder(), settings.lease, settings.default_retries, settings.dead_max]
        for _, token, delay, error in failures:
            args += (*Place.of(token)[:2], delay, error)
        return self._call("nack", args, digits)

    def release(self, receipts: Iterable[Receipt]) -> Call[str]:
        """Give unstarted messages back uncharged; answers a digit a receipt."""
        return self._call("release", [self.group, self.holder(), self.settings.lease, *_places(receipts)], digits)

    def extend(self, receipts: Iterable[Receipt], *, lease: int) -> Call[str]:
        """Renew leases (ms from now); answers a digit a receipt."""
        return self._call("extend", [self.group, self.holder(), self._idle(lease), *_places(receipts)], digits)

    def reject(self, rejections: Iterable[Rejection]) -> Call[str]:
        """Move messages to the dead letter; answers a digit each of the first 250."""
        args: list[Argument] = [self.group, self.holder(), self.settings.dead_max]
        for _, token, reason, error in rejections:
            args += (*Place.of(token)[:2], reason, error)
        return self._call("reject", args, digits)

    def collect_garbage(
        self,
        *,
        limit: int,
        dead_max: int,  # noqa: ARG002 - what is added to the dead letter trims it
        dead_ttl: int,
        slot_ttl: int,
        ids: Iterable[str] = (),  # noqa: ARG002 - what is spent is buried at once
    ) -> Call[Collected]:
        """Trim the dead letter by age; forget silent slots and consumers (ttls in ms)."""
        args: list[Argument] = [self.group, limit, dead_ttl, slot_ttl]
        return self._call("prune", args, lambda answer: Collected(*integers(answer)))

    def counts(self) -> Call[tuple[int, ...]]:
        """Count: entries of the stream, those delivered and not settled, of these the free ones, and the dead."""
        return self._call("counts", [self.group], tuple)

    def dead(self, first: str, last: str, *, limit: int) -> Command[list[tuple[str, dict[bytes, bytes]]]]:
        """Read entries of the dead letter, from one to another as XRANGE takes them."""
        return Command(("XRANGE", self.keys.dead, first, last, "COUNT", limit), _read_rows)

    def last_dead(self) -> Command[list[tuple[str, dict[bytes, bytes]]]]:
        """Read the last entry of the dead letter."""
        return Command(("XREVRANGE", self.keys.dead, "+", "-", "COUNT", 1), _read_rows)

    def redrive(self, entries: Iterable[str], *, retries: int | None) -> Call[str]:
        """Send dead messages again; answers a digit an entry: 1 redriven, 2 its id lives, 0 gone."""
        return self._call("redrive", ["" if retries is None else retries, *entries], digits)

    def dead_purge(self, entries: Iterable[str]) -> Call[int]:
        """Delete entries of the dead letter; answers how many."""
        return self._call("dead_purge", [*entries], lambda answer: int(digits(answer)))

    def page(self, state: str, *, limit: int, after: str, preview: int) -> Call[Listed]:
        """Read rows of the messages in a state, behind an entry."""
        args: list[Argument] = [self.group, state, limit, after, preview, ROOM]
        return self._call("page", args, read_listed)

    def find(self, id: str, where: str, *, limit: int, after: str) -> Call[tuple[str, str]]:
        """Look for the entry of an id in the stream or the dead letter; answers it, and where to go on."""
        args: list[Argument] = [id, where, after, limit, ROOM]
        return self._call("find", args, lambda answer: tuple(one.decode() for one in answer))

    def get(self, entry: str, where: str) -> Call[tuple[int, str, Row | None]]:
        """Read one entry of the stream or the dead letter; answers the time (ms), its state and its row."""
        args: list[Argument] = [self.group, entry, where]
        return self._call("get", args, lambda answer: read_found(*answer))

    def exists(self) -> Command[bool]:
        """Tell whether the stream is there."""
        return Command(("EXISTS", self.keys.stream), bool)

    def groups(self) -> Command[list[str]]:
        """Read the names of the groups of a stream that is there."""
        return Command(("XINFO", "GROUPS", self.keys.stream), read_groups)

    def confirm(self, replicas: int, *, timeout: int) -> list[Command[Any]]:
        """Wait up to `timeout` ms until so many replicas have what stands before it in the same round trip."""
        write = Command(("HINCRBY", self.keys.meta, "confirmed", 0), int, follows=True)  # WAIT is about what is written
        return [write, Command(("WAIT", replicas, timeout), lambda have: acknowledged(have, replicas), follows=True)]

    def opening(self) -> list[Command[Any]]:
        """Return the commands whose answers the start-up check of a queue reads."""
        return [
            Command(("INFO",), lambda answer: answer),
            Command(("HSETNX", self.keys.meta, "schema", 1), lambda answer: answer),
            Command(("HGET", self.keys.meta, "schema"), lambda answer: answer),
            Command(("XLEN", self.keys.stream), int),
        ]

    def _idle(self, lease: int) -> int:
        """Return how long a message has to have been idle already for its lease to last so long (ms)."""
        if lease > self.settings.lease:
            text = "the lease of a message of a stream lasts at most as long as the queue's, {:g} s: extend it in time"
            raise ConfigurationError(text.format(self.settings.lease / 1000))
        return self.settings.lease - lease

    def _read_claimed(self, answer: list[Any]) -> Claimed:
        now, deadline, more, entries, deliveries, bodies = answer
        rows = zip(entries, deliveries, bodies, strict=True)
        return Claimed(now, deadline, more, [self._delivery(*row) for row in rows])

    def _delivery(self, entry: bytes, delivery: int, body: list[bytes]) -> Delivery:
        """Return a delivery; an entry that others have added may lack any field."""
        fields = pairs(body)
        budget = read_number(fields, b"retries", self.settings.default_retries)
        arrived = min(int(entry.partition(b"-")[0]), LATEST)
        due = read_number(fields, b"due", arrived)
        return Delivery(
            id=fields.get(b"id", entry).decode("utf-8", "replace"),
            token=Place(entry.decode(), delivery, b"unique" in fields).token,
            payload=fields.get(b"payload", b""),
            retries_left=max(budget - delivery + 1, 0),
            due=due if due <= LATEST else arrived,
            attempt=delivery,
            headers=fields.get(b"headers", b""),
        )

    def _call(self, name: str, args: Sequence[Argument], parse: Callable[[Any], T]) -> Call[T]:
        known = self._known.get(name)
        if known is None:
            found = script(f"streams/{name}")
            known = self._known[name] = (found, tuple(getattr(self.keys, part) for part in found.parts))
        return Call(known[0], known[1], args, parse)


def relay(calls: Calls, stream: str, *, holder: str, limit: int = MOST_MOVED) -> Call[Promoted]:
    """Move due messages of a delay queue into a stream."""
    found = script("streams/relay")
    keys = tuple(stream if part == "stream" else getattr(calls.keys, part) for part in found.parts)
    now: Argument = "" if calls.clock is None else calls.clock()
    return Call(found, keys, [now, limit, RELAY_ROOM, holder], lambda answer: Promoted(*integers(answer)))


def preload() -> list[Command[bool]]:
    """Load every script of a stream queue ahead, for users that may not load what is missing."""
    return [Command(("SCRIPT", "LOAD", script(name).text), bool) for name in SCRIPTS]


def _waiter(holder: str) -> str:
    """Return the name of the consumer in which a process waits in a blocking read."""
    return f"{holder}.wait"


def _places(receipts: Iterable[Receipt]) -> list[Argument]:
    return [cell for _, token in receipts for cell in Place.of(token)[:2]]


def _read_rows(answer: Iterable[Any]) -> list[tuple[str, dict[bytes, bytes]]]:
    return [(entry.decode(), pairs(body)) for entry, body in answer]
