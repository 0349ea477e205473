"""Moves a queue of the Go library to a delayq queue: sends its messages, then removes them from the Go queue.

Messages keep their ids. After a batch was sent, it is removed from the Go queue if it has not changed there. So a
migration can be interrupted anywhere and run again. No message is lost, and none is sent twice: the second send returns
`exists`, or `settled` (the target gets a dedupe window if it has none).
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Unpack

from delayq.broker.batches import byte_slices
from delayq.broker.keys import check_id
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import open_executor
from delayq.errors import ConfigurationError, DelayqError, short_repr
from delayq.migrate.go_queue import KEEP, PAGE, PREFIX, STRUCTURES, Entry, GoQueue
from delayq.options import QueueOptions
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.sending.message_options import NewMessage
from delayq.queue.sending.producer import Sent
from delayq.values.times import LATEST, from_millis

MAX_LISTED = 1000
"""Messages listed for each reason they were left; all are counted."""


class WhyLeft(StrEnum):
    """Why a message was left where it was."""

    NO_PAYLOAD = "no payload"
    """Its payload has expired."""
    FAILED = "failed for good"
    """It has no retries left; the Go library deletes it."""
    BAD_ID = "no valid id"
    """The id is invalid in delayq; the Go library does not generate such ids."""
    FOREIGN_ID = "id of another message"
    """The target has a message with this id and another payload. Or it has settled one, whose payload is unknown, and
    the id is not a UUID."""
    BAD_TIME = "no valid time"
    """Its due time is beyond the range of delayq."""
    LEASED = "leased"
    """A Go worker may be processing it, or it waits for a retry."""
    NOT_JSON = "not JSON"
    """It is pickled, say; nothing but JSON is read of other libraries."""
    UNREADABLE = "unknown format"
    """It is not as its library writes it, or in an old format."""
    POSITIONAL = "unnamed arguments"
    """It has more positional arguments than were named."""
    WORKFLOW = "part of a workflow"
    """Others follow it or depend on it."""
    PERIODIC = "periodic"
    """Its scheduler enqueues it again and again: declare a schedule."""
    REFUSED = "not accepted"
    """Its name, its time or its size is none that delayq takes."""
    EXPIRED = "expired"
    """Its library would not run it any more."""


SPENT = frozenset({WhyLeft.NO_PAYLOAD, WhyLeft.FAILED, WhyLeft.EXPIRED})
"""Reasons of messages that the other library would not deliver either."""


class Left(NamedTuple):
    """A message that was left where it was."""

    place: str
    id: str
    why: WhyLeft


@dataclass(slots=True)
class Migration:
    """What a migration did, or would do: numbers of ids by structure of the other queue."""

    name: str
    queue: str
    dry_run: bool
    found: Counter[str] = field(default_factory=Counter)
    """Ids in the other queue at the start."""
    moved: Counter[str] = field(default_factory=Counter)
    left: Counter[tuple[str, WhyLeft]] = field(default_factory=Counter)
    listed: list[Left] = field(default_factory=list)
    """The first 1,000 messages left for each reason."""
    came: int = 0
    """Messages in the Go queue at the end that are not in `left`: Go is still sending."""

    @property
    def reasons(self) -> Counter[WhyLeft]:
        """Number of messages left, by reason."""
        total: Counter[WhyLeft] = Counter()
        for (_, why), number in self.left.items():
            total[why] += number
        return total

    @property
    def complete(self) -> bool:
        """Whether no message is left that Go would still deliver."""
        return not self.came and self.reasons.keys() <= SPENT

    def leave(self, place: str, id: bytes, why: WhyLeft) -> None:
        """Record a message that is left."""
        if self.reasons[why] < MAX_LISTED:
            self.listed.append(Left(place, id.decode("utf-8", "backslashreplace"), why))
        self.left[place, why] += 1

    def end(self, rest: Migration) -> None:
        """Update what is left from a final dry run, since Go may have taken or added messages.

        A dry run does not detect foreign ids, so those are kept.
        """
        foreign = Counter({key: number for key, number in self.left.items() if key[1] is WhyLeft.FOREIGN_ID})
        self.came = max(0, rest.moved.total() - foreign.total())
        self.left = foreign + rest.left
        self.listed = [one for one in self.listed if one.why is WhyLeft.FOREIGN_ID] + rest.listed


BATCH_BYTES = 4 << 20
"""Payload bytes in memory at a time; a single payload may be larger."""
MAX_PAYLOAD = 512 << 20
"""The limit of Redis: a migrated payload may be larger than a queue accepts from senders."""
DEDUPE_WINDOW = 86_400_000
"""Milliseconds (a day) in which another run does not send a moved message again after it was settled."""

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""An id of the Go library. These are unique, except in its first versions, where each queue counted from 1."""


class LeasedError(DelayqError):
    """Go workers have leased messages, which both sides would deliver. Stop the workers and run it again."""


def migrate(
    name: str,
    to: str,
    *,
    from_url: str | None = None,
    from_prefix: str = PREFIX,
    dry_run: bool = False,
    take_leased: bool = False,
    with_garbage: bool = False,
    tell: Callable[[Migration], object] = lambda _: None,
    **options: Unpack[QueueOptions],
) -> Migration:
    """Move the messages of the Go queue `name` to the queue `to`, opened with the `options` of `DelayQueue`.

    Ids, payloads (byte for byte) and remaining retries stay the same. Pending messages keep their due times; ready
    messages and retries are due now. If Go workers have leased messages, nothing is moved and `LeasedError` is raised.
    With `take_leased` they are moved, due when their leases end. Failed messages stay in the Go queue. With
    `with_garbage` they are moved and delivered once more. `dry_run` changes nothing.

    If it is interrupted, run it again: no message is lost or duplicated.

    `from_url` is the Redis of the Go queue, by default that of `to`. Its keys begin with `from_prefix`. `tell` is
    called repeatedly with the progress.
    """
    for text, what in ((name, "name"), (from_prefix, "prefix")):
        if not isinstance(text, str) or not text or text.encode("utf-8", "ignore").decode() != text:
            raise ConfigurationError(f"the {what} of a Go queue must be a non-empty string, not {short_repr(text)}")
    chosen = QueueOptions(**{**options, "codec": "bytes", "max_payload": MAX_PAYLOAD})
    result = Migration(name, to, dry_run)
    theirs = QueueOptions(url=from_url) if from_url else chosen
    with MigrationTarget(to, **chosen) as target, closing(open_executor(theirs, target.settings)) as executor:
        both = (GoQueue(executor, name, from_prefix, tagged=tagged) for tagged in (False, True))
        queues = [queue for queue in both if queue.count()]
        result.found = sum((queue.count() for queue in queues), Counter())
        now = executor.call(RedisCommand(("TIME",), lambda reply: int(reply[0])))
        leased = sum(queue.leased(now) for queue in queues)
        if leased and not take_leased and not dry_run:
            raise LeasedError(
                f"Go workers have leased {leased:,} of the messages of {name}, or these wait for a retry: stop the Go"
                " consumers and run it again when the leases have expired, or move these messages too (take_leased)"
            )
        last = math.inf if take_leased else now
        for queue in queues:
            _Mover(queue, target, result, tell, last_lease=last, with_garbage=with_garbage).run()
        if not dry_run:
            rest = Migration(name, to, dry_run=True)
            for queue in queues:
                _Mover(queue, target, rest, lambda _: None, last_lease=last, with_garbage=with_garbage).run()
            result.end(rest)
    return result


class MigrationTarget(DelayQueue[Any]):
    """The target queue: has a dedupe window, so that no settled message is sent again."""

    def _opening(self) -> list[Any]:
        requests = super()._opening()
        if self.settings.dedupe_window is None:
            requests.append(self.context.calls.default_dedupe_window(DEDUPE_WINDOW, self.settings.dedupe_max))
        return requests


class _GoMessage(NamedTuple):
    """A message of the Go queue, and its entries in a structure: usually one."""

    entries: list[Entry]
    key: str
    payload: bytes
    retries: int

    @property
    def id(self) -> str:
        return self.entries[0].id.decode()


class _Mover:
    """Moves one Go queue, one structure after the other."""

    def __init__(
        self,
        source: GoQueue,
        target: MigrationTarget,
        result: Migration,
        tell: Callable[[Migration], object],
        *,
        last_lease: float,
        with_garbage: bool,
    ) -> None:
        """Leave messages whose leases end after `last_lease` (seconds since 1970)."""
        self._source, self._target, self._result, self._tell = source, target, result, tell
        self._last_lease, self._with_garbage = last_lease, with_garbage

    def run(self) -> None:
        """Move all messages."""
        for structure, kind in STRUCTURES.items():
            if kind == "set":
                for page in self._source.scan(structure):
                    self._move_page(structure, page)
            else:
                self._move_structure(structure, is_list=kind == "list")

    def _move_structure(self, structure: str, *, is_list: bool) -> None:
        """Move a zset to its end, or as many entries as a list has; entries left go to the other end of the list."""
        remaining = self._source.length(structure) if is_list else sys.maxsize
        offset = moved_back = 0
        while remaining > 0 and (page := self._source.page(structure, offset, min(remaining, PAGE))):
            kept = self._move_page(structure, page)
            remaining -= len(page)
            if self._result.dry_run:
                offset += len(page)
            elif kept and is_list:
                kept = [Entry(entry.id, KEEP) for entry in kept]
                moved_back += self._source.remove(structure, kept, (), depth=len(page)).count("1")
                remaining = min(remaining, self._source.length(structure) - moved_back)  # Go may have taken some
            elif kept:
                offset += self._source.count_unchanged(structure, kept)

    def _move_page(self, structure: str, page: list[Entry]) -> list[Entry]:
        """Move a page; return the entries that were left."""
        movable: dict[str, list[Entry]] = {}
        kept: list[Entry] = []
        for entry in page:
            if why := self._refuse(structure, entry):
                kept += self._leave(structure, [entry], why)
            else:
                movable.setdefault(entry.id.decode(), []).append(entry)
        if not movable:
            return kept
        sizes, counts = self._source.measure(list(movable))
        retries = dict(zip(movable, counts, strict=True))
        for batch in byte_slices(sizes, BATCH_BYTES):
            ids = list(movable)[batch]
            payloads = self._source.payloads(ids)
            messages = [_GoMessage(movable[id], *payloads[id], retries[id]) for id in ids if id in payloads]
            without_payload = [entry for id in ids if id not in payloads for entry in movable[id]]
            kept += self._leave(structure, without_payload, WhyLeft.NO_PAYLOAD)
            if structure == "garbage" and not self._with_garbage:
                kept += self._leave(structure, _entries(messages), WhyLeft.FAILED)
            elif self._result.dry_run:
                self._result.moved[structure] += len(_entries(messages))
            elif messages:
                kept += self._move(structure, messages, depth=len(page))
            self._tell(self._result)
        return kept

    def _refuse(self, structure: str, entry: Entry) -> WhyLeft | None:
        """Return why an entry cannot be moved, whatever its payload."""
        try:
            check_id(entry.id.decode())
        except (UnicodeDecodeError, ConfigurationError):
            return WhyLeft.BAD_ID
        if entry.score and structure == "unack" and float(entry.score) > self._last_lease:
            return WhyLeft.LEASED
        return WhyLeft.BAD_TIME if entry.score and float(entry.score) * 1000 > LATEST else None

    def _leave(self, structure: str, entries: list[Entry], why: WhyLeft) -> list[Entry]:
        for entry in entries:
            self._result.leave(structure, entry.id, why)
        return entries

    def _move(self, structure: str, messages: list[_GoMessage], *, depth: int) -> list[Entry]:
        """Send messages, then remove them from the Go queue; return the entries that were left."""
        sent = self._target.send_many([_new_message(message) for message in messages])
        foreign = [message for message, one in zip(messages, sent, strict=True) if self._is_foreign(message, one)]
        foreign_ids = {message.id for message in foreign}
        kept = self._leave(structure, _entries(foreign), WhyLeft.FOREIGN_ID)
        moved = [
            (entry, message.key) for message in messages if message.id not in foreign_ids for entry in message.entries
        ]
        if not moved:
            return kept
        entries, keys = zip(*moved, strict=True)
        statuses = self._source.remove(structure, entries, keys, depth=depth)
        if "2" in statuses:  # Cancelling what was sent would not help: the target would refuse its id from then on.
            raise LeasedError(
                f"Go workers are running: they leased {statuses.count('2'):,} of the messages of"
                f" {self._result.name} during the move, which may be delivered twice; stop the Go consumers"
                f" and run it again ({self._result.moved.total():,} were moved before)"
            )
        self._result.moved[structure] += len(moved)
        return kept

    def _is_foreign(self, message: _GoMessage, sent: Sent) -> bool:
        """Tell whether the id belongs, or belonged, to another message; not to this one, sent by an earlier run."""
        if sent.new:
            return False
        existing = self._target.get(message.id)
        return existing.payload != message.payload if existing else not UUID.fullmatch(message.id)


def _entries(messages: list[_GoMessage]) -> list[Entry]:
    return [entry for message in messages for entry in message.entries]


def _new_message(message: _GoMessage) -> NewMessage[bytes]:
    score = message.entries[0].score
    if not score:
        return NewMessage(message.payload, delay=0, retries=message.retries, id=message.id)
    at = from_millis(math.ceil(max(0, float(score) * 1000)))
    return NewMessage(message.payload, at=at, retries=message.retries, id=message.id)
