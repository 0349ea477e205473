"""Taking over a queue of the Go library: what lies in its structures is sent to a queue of delayq, and taken out there.

Each batch is sent under the ids it had, and only then taken out of the Go queue, if it still stands there as it was
read. So it may be cut off anywhere and begun again: nothing is lost, and what had been sent is `exists` (or `settled`:
the queue gets a dedupe window, if it has none) and not sent twice.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Unpack

from delayq.clock import LATEST, moment
from delayq.config import QueueOptions
from delayq.errors import ConfigurationError, DelayqError, shown
from delayq.executor import open_executor
from delayq.go_queue import KEEP, PAGE, PLACES, PREFIX, Entry, GoQueue
from delayq.keys import check_id
from delayq.producer import NewMessage, SendStatus
from delayq.queue import DelayQueue
from delayq.values import Command

BATCH_BYTES = 4 << 20
"""Payload bytes that are held at a time; a single payload may be larger."""
LARGEST_PAYLOAD = 512 << 20
"""What Redis itself allows: what is moved need not be as small as what a queue takes from its senders."""
MOST_LISTED = 1000
"""Messages left behind that are listed for each reason; all are counted."""
DEDUPE_WINDOW = 86_400_000
"""Milliseconds (a day) in which what was moved, and settled since, is not sent again by another run."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The ids of the Go library, which are of one message only; its first versions counted, and each queue from 1."""


class Why(StrEnum):
    """Why a message was left where it is."""

    NO_PAYLOAD = "no payload"
    """Its payload has expired: there is nothing to be moved."""
    FAILED = "failed for good"
    """Its retries are spent; the Go library deletes it."""
    BAD_ID = "no valid id"
    """delayq takes no such id; it is not one that the Go library makes."""
    FOREIGN_ID = "id of another message"
    """The queue it was to be moved to has a message of this id with another payload; or has settled one, which says
    nothing of the payload, and the id is no UUID."""
    BAD_TIME = "no valid time"
    """It is due later than delayq can tell."""
    LEASED = "leased"
    """A Go worker may be at work on it, or it waits after a failure."""


SPENT = frozenset({Why.NO_PAYLOAD, Why.FAILED})
"""Reasons of what would not be delivered in Go either."""


class LeasedError(DelayqError):
    """Go workers hold messages, so that both would deliver them. Stop them, and do it again."""


class Left(NamedTuple):
    """A message that was left where it is."""

    place: str
    id: str
    why: Why


@dataclass(slots=True)
class Migration:
    """What a migration has done, or would do: ids by their places in the Go queue."""

    name: str
    queue: str
    dry_run: bool
    found: Counter[str] = field(default_factory=Counter)
    """What was there when it began."""
    moved: Counter[str] = field(default_factory=Counter)
    left: Counter[tuple[str, Why]] = field(default_factory=Counter)
    listed: list[Left] = field(default_factory=list)
    """What was left, the first thousand for each reason."""
    came: int = 0
    """What stands there beyond that in the end: Go still sends."""

    @property
    def reasons(self) -> Counter[Why]:
        """How many messages were left, by reason."""
        total: Counter[Why] = Counter()
        for (_, why), number in self.left.items():
            total[why] += number
        return total

    @property
    def complete(self) -> bool:
        """Whether nothing is left that Go would still deliver."""
        return not self.came and self.reasons.keys() <= SPENT

    def leave(self, place: str, id: bytes, why: Why) -> None:
        """Count a message that is left, and list it."""
        if self.reasons[why] < MOST_LISTED:
            self.listed.append(Left(place, id.decode("utf-8", "backslashreplace"), why))
        self.left[place, why] += 1

    def end(self, rest: Migration) -> None:
        """Tell what is left by a last look, since others may have taken or added some; it sees no foreign ids."""
        foreign = Counter({key: number for key, number in self.left.items() if key[1] is Why.FOREIGN_ID})
        self.came = max(0, rest.moved.total() - foreign.total())
        self.left = foreign + rest.left
        self.listed = [one for one in self.listed if one.why is Why.FOREIGN_ID] + rest.listed


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
    """Move what is in the Go queue `name` to the queue `to`, whose `options` are those of `DelayQueue`.

    Ids, payloads (byte by byte) and retries left are kept. Pending messages keep their times; ready ones, and those to
    be retried, are due now. While Go workers hold messages nothing is moved, but `LeasedError` raised, unless
    `take_leased`: then those are due when their leases end. What has failed for good is left, unless `with_garbage`:
    then it is delivered once more. `dry_run` writes nothing. Cut off at any point, do it again: nothing is lost or
    doubled.

    The Go queue is at `from_url`, else where `to` is; its keys begin with `from_prefix`. `tell` is called again and
    again with what has been done so far.
    """
    for text, what in ((name, "name"), (from_prefix, "prefix")):
        if not isinstance(text, str) or not text or text.encode("utf-8", "ignore").decode() != text:
            raise ConfigurationError(f"the {what} of a Go queue must be text, not {shown(text)}")
    chosen = QueueOptions(**{**options, "codec": "bytes", "max_payload": LARGEST_PAYLOAD})
    made = Migration(name, to, dry_run)
    theirs = QueueOptions(url=from_url) if from_url else chosen
    with _Target(to, **chosen) as target, closing(open_executor(theirs, target.settings)) as executor:
        both = (GoQueue(executor, name, from_prefix, tagged=tagged) for tagged in (False, True))
        queues = [queue for queue in both if queue.count()]
        made.found = sum((queue.count() for queue in queues), Counter())
        now = executor.call(Command(("TIME",), lambda answer: int(answer[0])))
        held = sum(queue.leased(now) for queue in queues)
        if held and not take_leased and not dry_run:
            raise LeasedError(
                f"Go workers hold {held:,} of the messages of {name}, or these wait after a failure: stop the Go"
                " consumers and do it again when the leases have run out, or take these as well"
            )
        last = math.inf if take_leased else now
        for queue in queues:
            _Move(queue, target, made, tell, last_lease=last, with_garbage=with_garbage).run()
        if not dry_run:
            rest = Migration(name, to, dry_run=True)
            for queue in queues:
                _Move(queue, target, rest, lambda _: None, last_lease=last, with_garbage=with_garbage).run()
            made.end(rest)
    return made


class _Target(DelayQueue[Any]):
    """The queue that messages are moved to: it remembers what it has settled, so that none is sent again."""

    def _opening(self) -> list[Any]:
        requests = super()._opening()
        if self.settings.dedupe_window is None:
            requests.append(self._tools.calls.default_dedupe_window(DEDUPE_WINDOW, self.settings.dedupe_max))
        return requests


class _Row(NamedTuple):
    """A message on its way: where it stands, once or more, and what it consists of."""

    entries: list[Entry]
    key: str
    payload: bytes
    retries: int

    @property
    def id(self) -> str:
        return self.entries[0].id.decode()


class _Move:
    """Moves one Go queue, place by place."""

    def __init__(
        self,
        source: GoQueue,
        target: _Target,
        made: Migration,
        tell: Callable[[Migration], object],
        *,
        last_lease: float,
        with_garbage: bool,
    ) -> None:
        """Leave leases that end after `last_lease` (seconds since 1970)."""
        self._source, self._target, self._made, self._tell = source, target, made, tell
        self._last_lease, self._with_garbage = last_lease, with_garbage

    def run(self) -> None:
        """Move everything."""
        for place, kind in PLACES.items():
            if kind == "set":
                for page in self._source.scan(place):
                    self._page(place, page)
            else:
                self._walk(place, is_list=kind == "list")

    def _walk(self, place: str, *, is_list: bool) -> None:
        """Go through a zset to its end, or a list as long as it is: what is left there goes to its other end."""
        ahead = self._source.length(place) if is_list else sys.maxsize
        offset = behind = 0
        while ahead > 0 and (page := self._source.page(place, offset, min(ahead, PAGE))):
            kept = self._page(place, page)
            ahead -= len(page)
            if self._made.dry_run:
                offset += len(page)
            elif kept and is_list:
                kept = [Entry(entry.id, KEEP) for entry in kept]
                behind += self._source.take(place, kept, (), reach=len(page)).count("1")
                ahead = min(ahead, self._source.length(place) - behind)  # others may have taken what was ahead
            elif kept:
                offset += self._source.standing(place, kept)

    def _page(self, place: str, page: list[Entry]) -> list[Entry]:
        """Move a page; returns what of it was left."""
        fit: dict[str, list[Entry]] = {}
        kept: list[Entry] = []
        for entry in page:
            if why := self._refuse(place, entry):
                kept += self._leave(place, [entry], why)
            else:
                fit.setdefault(entry.id.decode(), []).append(entry)
        for ids, retries in self._batches(list(fit)):
            payloads = self._source.payloads(ids)
            rows = [_Row(fit[id], *payloads[id], retries[id]) for id in ids if id in payloads]
            kept += self._leave(place, [one for id in ids if id not in payloads for one in fit[id]], Why.NO_PAYLOAD)
            if place == "garbage" and not self._with_garbage:
                kept += self._leave(place, [one for row in rows for one in row.entries], Why.FAILED)
            elif self._made.dry_run:
                self._made.moved[place] += sum(len(row.entries) for row in rows)
            elif rows:
                kept += self._move(place, rows, reach=len(page))
            self._tell(self._made)
        return kept

    def _refuse(self, place: str, entry: Entry) -> Why | None:
        """Return what speaks against moving an entry, whatever its payload."""
        try:
            check_id(entry.id.decode())
        except (UnicodeDecodeError, ConfigurationError):
            return Why.BAD_ID
        if entry.score and place == "unack" and float(entry.score) > self._last_lease:
            return Why.LEASED
        return Why.BAD_TIME if entry.score and float(entry.score) * 1000 > LATEST else None

    def _leave(self, place: str, entries: list[Entry], why: Why) -> list[Entry]:
        for entry in entries:
            self._made.leave(place, entry.id, why)
        return entries

    def _batches(self, ids: list[str]) -> Iterator[tuple[list[str], dict[str, int]]]:
        """Cut ids into batches whose payloads are held at a time; yields each with the retries left."""
        if not ids:
            return
        sizes, counts = self._source.measure(ids)
        retries = dict(zip(ids, counts, strict=True))
        batch: list[str] = []
        held = 0
        for id, size in zip(ids, sizes, strict=True):
            if batch and held + size > BATCH_BYTES:
                yield batch, retries
                batch, held = [], 0
            batch.append(id)
            held += size
        yield batch, retries

    def _move(self, place: str, rows: list[_Row], *, reach: int) -> list[Entry]:
        """Send messages, and then take them out; returns what was left."""
        sent = self._target.send_many([_message(row) for row in rows])
        foreign = {row.id for row, one in zip(rows, sent, strict=True) if self._is_foreign(row, one.status)}
        kept = self._leave(place, [one for row in rows if row.id in foreign for one in row.entries], Why.FOREIGN_ID)
        ours = [(entry, row.key) for row in rows if row.id not in foreign for entry in row.entries]
        if not ours:
            return kept
        digits = self._source.take(place, [entry for entry, _ in ours], [key for _, key in ours], reach=reach)
        if "2" in digits:  # not to be mended: to cancel what was sent would have its id refused from now on
            raise LeasedError(
                f"Go workers are at work on {self._made.name}: they took {digits.count('2'):,} messages while these"
                f" were moved, and both may deliver them; stop the Go consumers and do it again"
                f" ({self._made.moved.total():,} had been moved before)"
            )
        self._made.moved[place] += len(ours)
        return kept

    def _is_foreign(self, row: _Row, status: SendStatus) -> bool:
        """Tell whether the message that has, or had, the id is another than this one, sent by an earlier run."""
        if status is SendStatus.NEW:
            return False
        there = self._target.get(row.id)
        return there.payload != row.payload if there else not _UUID.fullmatch(row.id)


def _message(row: _Row) -> NewMessage[bytes]:
    score = row.entries[0].score
    if not score:
        return NewMessage(row.payload, delay=0, retries=row.retries, id=row.id)
    return NewMessage(row.payload, at=moment(math.ceil(max(0, float(score) * 1000))), retries=row.retries, id=row.id)
