"""What a work queue says to Redis, as values: only this module knows the order of a script's arguments."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from delayq.operation import Pause
from delayq.script import Script, names, script
from delayq.values import Argument, Call, Command
from delayq.workqueue.item import Item
from delayq.workqueue.keys import Keys

SHORT = 20_000
"""Ids of a list that a script reads or searches as a whole: a few milliseconds of the server's time."""
KEYS_A_SCAN = 1000

T = TypeVar("T")


class Run(NamedTuple, Generic[T]):
    """A script to run."""

    script: Script
    keys: Sequence[bytes]
    args: Sequence[Argument]
    parse: Callable[[Any], T]

    @property
    def whole(self) -> tuple[Argument, ...]:
        """The command that runs it on any server, known there or not."""
        return ("EVAL", self.script.text, len(self.keys), *self.keys, *self.args)

    @property
    def known(self) -> tuple[Argument, ...]:
        """The command that runs it on a server that knows it."""
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args)

    @property
    def call(self) -> Call[T]:
        """The same for an executor, which loads what a server does not know."""
        return Call(self.script, tuple(self.keys), self.args, self.parse)


class Scan(NamedTuple):
    """A look at the next keys of the node that holds a key; the answer is the next cursor, and ids of items."""

    key: bytes
    args: tuple[Argument, ...]
    parse: Callable[[Any], tuple[int, list[bytes]]]


Step = Command[Any] | Run[Any] | Scan | Pause
Work = Generator[Step, Any, T]
"""Yields what is to be sent, or waited for, is sent the answers, and returns its result."""


def one(call: Command[T] | Run[T]) -> Work[T]:
    """Return the work of one call."""
    return (yield call)  # type: ignore[no-any-return]  # the answer of a Run[T] is a T


class Claimed(NamedTuple):
    """What a claim has answered: an item, or else the ids at the right end of the queue."""

    item: Item | None
    ids: list[bytes]


def add(keys: Keys, id: bytes, data: bytes, *, known: bool) -> Run[bool]:
    """Add an item; false if there is one of its id and that is not said to be new."""
    return Run(script("workqueue/add"), (keys.item(id), keys.queue), (id, data, int(known)), bool)


def claim(keys: Keys, session: str, lease: int, ids: Sequence[bytes], look: int) -> Run[Claimed]:
    """Lease the item at the right end of the queue (ms), if it is one of these."""
    names = [keys.queue, keys.processing]
    for id in ids:
        names += (keys.item(id), keys.lease(id))
    return Run(script("workqueue/claim"), names, (session, lease, look, *ids), _claimed)


def complete(keys: Keys, id: bytes) -> Run[bool]:
    """End an item; true for the one call that does."""
    names = (keys.item(id), keys.processing, keys.lease(id), keys.queue)
    return Run(script("workqueue/complete"), names, (id, SHORT), bool)


def hold(keys: Keys, ids: Sequence[bytes], cleaner: str, milliseconds: int) -> Run[list[bool]]:
    """Lease ids to a cleaner; answers for each whether nobody else has."""
    names = (keys.processing, *map(keys.lease, ids))
    return Run(script("workqueue/hold"), names, (cleaner, milliseconds), lambda answer: [*map(bool, answer)])


def restore(keys: Keys, suspects: Mapping[bytes, int], cleaner: str = "") -> Run[tuple[int, int]]:
    """Put these ids, each seen so often in processing, back into the queue; answers how many restored and dropped.

    If a cleaner has held them, only those that it still holds.
    """
    names, args = [keys.queue, keys.processing], list[Argument]([cleaner, SHORT])
    for id, copies in suspects.items():
        names += (keys.item(id), keys.lease(id))
        args += (id, copies)
    return Run(script("workqueue/restore"), names, args, lambda answer: (int(answer[0]), int(answer[1])))


def counts(keys: Keys) -> Run[tuple[int, int]]:
    """Count the ids of both lists at once."""
    names = (keys.queue, keys.processing)
    return Run(script("workqueue/counts"), names, (), lambda answer: (int(answer[0]), int(answer[1])))


class Seen(NamedTuple):
    """What is known of an item, as of a time (ms); its lease lasts for `left` ms if it has a holder."""

    now: int
    data: bytes
    size: int
    holder: str
    left: int
    place: str


def look(keys: Keys, ids: Sequence[bytes], *, last: int, most: int) -> Run[list[Seen | None]]:
    """Read all that is known of items, of their data the bytes up to `last`; None for what is no item.

    Where they are is searched for among `most` ids of each list.
    """
    names = [keys.queue, keys.processing]
    for id in ids:
        names += (keys.item(id), keys.lease(id))
    return Run(script("workqueue/look"), names, (last, most, *ids), _seen)


def await_one(keys: Keys, timeout: float) -> Command[bytes | None]:
    """Wait up to `timeout` seconds until the queue is not empty; answers the id at its right end, and leaves it there.

    Lists have no blocking look; taking an id from the right end and putting it to the right end is one.
    """
    return Command(("BLMOVE", keys.queue, keys.queue, "RIGHT", "RIGHT", f"{timeout:.3f}"), lambda id: id)


def data(keys: Keys, id: bytes) -> Command[bytes | None]:
    """Read the data of an item."""
    return Command(("GET", keys.item(id)), lambda answer: answer)


def length(key: bytes) -> Command[int]:
    """Count the ids of a list."""
    return Command(("LLEN", key), int)


def members(key: bytes, first: int, last: int) -> Command[Sequence[bytes]]:
    """Read ids of a list."""
    return Command(("LRANGE", key, first, last), lambda answer: answer)


def leases(keys: Keys, ids: Iterable[bytes]) -> Command[Sequence[bytes | None]]:
    """Read who has leased each of these."""
    return Command(("MGET", *map(keys.lease, ids)), lambda answer: answer)


def scan(keys: Keys, cursor: int) -> Scan:
    """Look for items among the next keys of the database."""
    args = ("SCAN", cursor, "MATCH", keys.any_item, "COUNT", KEYS_A_SCAN, "TYPE", "string")
    return Scan(keys.queue, args, lambda answer: (int(answer[0]), [keys.id_of(key) for key in answer[1]]))


def preload() -> list[Command[bool]]:
    """Load every script of a work queue ahead, for users that may not run a text."""
    return [Command(("SCRIPT", "LOAD", script(name).text), bool) for name in names("workqueue")]


def _claimed(answer: list[Any]) -> Claimed:
    if int(answer[0]) == 1:
        return Claimed(Item.stored(answer[1], answer[2]), [])
    return Claimed(None, answer[1:])


def _seen(answer: list[Any]) -> list[Seen | None]:
    now, *rows = answer
    found: list[Seen | None] = []
    for row in rows:
        if row:
            data, size, holder, left, place = row
            found.append(Seen(now, data, size, holder.decode("utf-8", "replace"), left, place.decode()))
        else:
            found.append(None)
    return found
