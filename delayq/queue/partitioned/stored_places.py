"""Reads page by page what a partition has, with what decides on its home."""

from __future__ import annotations

from typing import Any, NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.move_calls import Kind
from delayq.broker.requests import RedisCommand
from delayq.broker.scripts import MAX_IDS
from delayq.broker.transport.operation import Operation
from delayq.queue.inspecting.deaths import read_death
from delayq.queue.partitioned.homes import home_key

PARTS = ("messages", "done", "completed", "schedules", "dead")
"""What is read, in this order: a message takes along what is reserved and kept under its id."""
_AT_ONCE = 200
"""Entries of the dead letter that one call reads: of each all but its payload."""
_START = "0"
"""The cursor of a scan at its start and at its end."""


class Place(NamedTuple):
    """Something that a partition has."""

    name: bytes | str
    """An id, an entry of the dead letter, or the name of a schedule."""
    key: str
    """What decides on its home, see `home_key`."""


class PlacePage(NamedTuple):
    """A page of them."""

    kind: Kind
    places: list[Place]
    position: tuple[str, str] | None
    """Where to go on; None at the end."""


def read_places(calls: Calls, part: str, position: tuple[str, str] | None = None) -> Operation[PlacePage]:
    """Read a page of one of `PARTS`, from the start or a position on.

    What is there all the time is read, also while something else comes and goes.
    """
    if part == "dead":
        return (yield from _deaths(calls, position or ("", "")))
    cursor = position[0] if position else _START
    if part == "messages":
        ((cursor, ids),) = yield [calls.walk("messages", cursor=cursor, limit=MAX_IDS)]
        places = yield from _with_attributes(calls, ids)
    else:
        key = {"done": calls.keys.done, "completed": calls.keys.completed, "schedules": calls.keys.schedule_states}[
            part
        ]
        scan = "HSCAN" if part == "schedules" else "ZSCAN"
        ((cursor, ids),) = yield [RedisCommand((scan, key, cursor, "COUNT", MAX_IDS), _read_scan)]
        places = [Place(id, _text(id) if part == "schedules" else home_key(_text(id))) for id in ids]
    kind = Kind.SCHEDULES if part == "schedules" else Kind.MESSAGES
    return PlacePage(kind, places, None if cursor == _START else (cursor, ""))


def _read_scan(reply: Any) -> tuple[str, list[bytes]]:
    return reply[0].decode(), reply[1][::2]


def _text(id: bytes) -> str:
    return id.decode("utf-8", "surrogateescape")


def _with_attributes(calls: Calls, ids: list[bytes]) -> Operation[list[Place]]:
    texts: list[bytes | None] = []
    for first in range(0, len(ids), MAX_IDS):
        (some,) = yield [RedisCommand(("HMGET", calls.keys.attributes, *ids[first : first + MAX_IDS]), list)]
        texts += some
    return [Place(id, home_key(_text(id), text or b"")) for id, text in zip(ids, texts, strict=True)]


def _deaths(calls: Calls, position: tuple[str, str]) -> Operation[PlacePage]:
    (page,) = yield [calls.page("dead", limit=_AT_ONCE, cursor=position[0], score=position[1], preview=0)]
    places = []
    for row in page.rows:
        id, _, token = row.id.rpartition(":")
        death = read_death(row.payload) if token.isdecimal() else None
        if death is not None:  # else another program has written it, and it stays
            places.append(Place(row.id, home_key(id, death.attributes)))
    return PlacePage(Kind.DEATHS, places, (page.cursor, page.score) if page.cursor else None)
