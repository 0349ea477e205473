"""The calls of a work queue, as values: only this module knows the order of a script's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from delayq.broker.engine import WORKQUEUE, EngineCapabilities
from delayq.broker.requests import Argument, RedisCommand, ScriptCall
from delayq.broker.scripts import read_all, script
from delayq.workqueue.item import Item
from delayq.workqueue.keys import WorkQueueKeys

MAX_SCANNED = 20_000
"""Ids of a list that a script reads or searches as a whole: a few milliseconds of the server's time."""
SCAN_COUNT = 1000
"""Keys that one SCAN goes through."""

T = TypeVar("T")


class ItemClaimReply(NamedTuple):
    """The reply to a claim: an item, or else the ids at the right end of the queue."""

    item: Item | None
    ids: list[bytes]


class ItemView(NamedTuple):
    """An item as read at a time (ms). If it has a consumer, its lease lasts another `remaining` ms."""

    now: int
    data: bytes
    size: int
    consumer: str
    remaining: int
    location: str


@dataclass(frozen=True, slots=True)
class WorkQueueCalls:
    """The calls of one work queue."""

    keys: WorkQueueKeys
    capabilities: ClassVar[EngineCapabilities] = WORKQUEUE

    def __post_init__(self) -> None:
        """Read the scripts now: their files may be replaced, or be gone, when a call is made."""
        for engine in ("workqueue", ""):
            read_all(engine)

    def add(self, id: bytes, data: bytes, *, known: bool) -> ScriptCall[bool]:
        """Add an item. Replies false if its id exists; with `known`, the id is taken to be new and not looked up."""
        return _call("add", (self.keys.item(id), self.keys.queue), (id, data, int(known)), bool)

    def claim(self, session: str, lease: int, ids: Sequence[bytes], peek: int) -> ScriptCall[ItemClaimReply]:
        """Lease the item at the right end of the queue (ms) if it is one of these ids, else read `peek` ids there."""
        return _call("claim", self._lists_and(ids), (session, lease, peek, *ids), _read_claim)

    def complete(self, id: bytes) -> ScriptCall[bool]:
        """Complete an item. Replies true to exactly one call."""
        keys = (self.keys.item(id), self.keys.processing, self.keys.lease(id), self.keys.queue)
        return _call("complete", keys, (id, MAX_SCANNED), bool)

    def lease_suspects(self, ids: Sequence[bytes], cleaner: str, milliseconds: int) -> ScriptCall[list[bool]]:
        """Lease ids to a cleaner. Replies for each whether the cleaner has the lease."""
        keys = (self.keys.processing, *map(self.keys.lease, ids))
        return _call("lease_suspects", keys, (cleaner, milliseconds), lambda reply: [*map(bool, reply)])

    def restore(self, suspects: Mapping[bytes, int], cleaner: str = "") -> ScriptCall[tuple[list[bytes], int]]:
        """Requeue these ids, each with how often it was seen in processing.

        With a `cleaner`, only those that it still has leased. Replies which were requeued and how many dropped.
        """
        args: list[Argument] = [cleaner, MAX_SCANNED]
        for suspect in suspects.items():
            args += suspect
        return _call("restore", self._lists_and(suspects), args, lambda reply: (reply[0], int(reply[1])))

    def counts(self) -> ScriptCall[tuple[int, int]]:
        """Count the ids of both lists at one moment."""
        return _call("counts", (self.keys.queue, self.keys.processing), (), _read_pair)

    def view(self, ids: Sequence[bytes], *, last: int, max_searched: int) -> ScriptCall[list[ItemView | None]]:
        """Read items with their data up to byte `last`; None for an id without an item.

        The location of each is searched for among the first `max_searched` ids of each list.
        """
        return _call("view", self._lists_and(ids), (last, max_searched, *ids), _read_views)

    def await_item(self, timeout: float) -> RedisCommand[bytes | None]:
        """Wait up to `timeout` seconds until the queue has an item. Replies the id at its right end, left in place.

        Redis has no blocking read of a list; a blocking move from the right end to the right end does the same.
        """
        move = ("BLMOVE", self.keys.queue, self.keys.queue, "RIGHT", "RIGHT", f"{timeout:.3f}")
        return RedisCommand(move, lambda id: id)

    def data(self, id: bytes) -> RedisCommand[bytes | None]:
        """Read the data of an item."""
        return RedisCommand(("GET", self.keys.item(id)), lambda reply: reply)

    def length(self, key: bytes) -> RedisCommand[int]:
        """Count the ids in the queue or in processing."""
        return RedisCommand(("LLEN", key), int)

    def ids(self, key: bytes, first: int = 0, last: int = -1) -> RedisCommand[Sequence[bytes]]:
        """Read ids of the queue or in processing."""
        return RedisCommand(("LRANGE", key, first, last), lambda reply: reply)

    def consumers(self, ids: Iterable[bytes]) -> RedisCommand[Sequence[bytes | None]]:
        """Read who has leased each of these ids."""
        return RedisCommand(("MGET", *map(self.keys.lease, ids)), lambda reply: reply)

    def scan(self, cursor: int) -> RedisCommand[tuple[int, list[bytes]]]:
        """Find items among the next keys of the node that holds the queue. Replies the next cursor and their ids."""
        args = ("SCAN", cursor, "MATCH", self.keys.any_item, "COUNT", SCAN_COUNT, "TYPE", "string")
        return RedisCommand(args, lambda reply: (int(reply[0]), [*map(self.keys.id_of, reply[1])]))

    def _lists_and(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return both lists, then the item and the lease of each id."""
        keys = [self.keys.queue, self.keys.processing]
        for id in ids:
            keys += (self.keys.item(id), self.keys.lease(id))
        return keys


def _call(name: str, keys: Iterable[bytes], args: Sequence[Argument], parse: Callable[[Any], T]) -> ScriptCall[T]:
    return ScriptCall(script(f"workqueue/{name}"), tuple(keys), args, parse)


def _read_pair(reply: list[Any]) -> tuple[int, int]:
    return int(reply[0]), int(reply[1])


def _read_claim(reply: list[Any]) -> ItemClaimReply:
    if int(reply[0]) == 1:
        return ItemClaimReply(Item.stored(reply[1], reply[2]), [])
    return ItemClaimReply(None, reply[1:])


def _read_views(reply: list[Any]) -> list[ItemView | None]:
    now, *rows = reply
    return [_read_view(now, row) if row else None for row in rows]


def _read_view(now: int, row: list[Any]) -> ItemView:
    data, size, consumer, remaining, location = row
    return ItemView(now, data, size, consumer.decode("utf-8", "replace"), remaining, location.decode())
