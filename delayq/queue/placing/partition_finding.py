"""The partition that an id belongs to, also while the number of partitions changes.

An operation on an id that still waits in its old partition first moves this one to its new one, and acts there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.partition_calls import AT_ONCE, IN, LEASED, OUT, Kind, moved_call, read_call, repartition_call
from delayq.broker.requests import RedisCommand
from delayq.broker.scripts import MAX_IDS
from delayq.broker.transport.operation import Operation
from delayq.queue.inspecting.deaths import read_death
from delayq.queue.placing.layout import Layout, key_of, names_of, partition_of

CallsOf = Callable[[str], Calls]
"""Returns the calls of a partition by its name."""
_OCCURRENCE = re.compile(r"([^@]+)@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z")


def partition_key(id: str, attributes: bytes = b"") -> str:
    """Return what decides on the partition of a message: its group, its key, the schedule that fires it, or its id."""
    key = key_of(id, attributes) if attributes else id
    fired = _OCCURRENCE.fullmatch(id) if key == id and "@" in id else None
    return fired[1] if fired else key


def partition_name(name: str, partitions: int, key: str) -> str:
    """Return the name of the partition for what `partition_key` returns."""
    return names_of(name, partitions)[partition_of(key, partitions)]


def bring(calls_of: CallsOf, kind: Kind, source: str, target: str, numbers: Sequence[int]) -> Operation[int]:
    """Bring batches that have left a partition to the one that they are for, in their order; returns how many.

    They arrive once, also if several processes bring them, or one does so again after it was killed.
    """
    brought = 0
    while numbers:
        (batch,) = yield [read_call(calls_of(source), kind, target, numbers[0])]
        if batch is not None:  # else another process has brought it
            yield [IN[kind](calls_of(target), source, numbers[0], batch)]
            brought += 1
        (numbers,) = yield [moved_call(calls_of(source), kind, target, numbers[0])]
    return brought


def move(calls_of: CallsOf, kind: Kind, source: str, target: str, names: Sequence[str | bytes]) -> Operation[str]:
    """Move what is stored of ids, entries or schedules to another partition; returns a status each.

    1 moved, 2 leased, so it stays, 0 nothing is there. What other processes have sent off on this way arrives, too.
    """
    statuses = ""
    while len(statuses) < len(names):
        part = names[len(statuses) : len(statuses) + AT_ONCE]
        (sent,) = yield [OUT[kind](calls_of(source), target, part)]
        statuses += sent.statuses
        yield from bring(calls_of, kind, source, target, sent.numbers)
    return statuses


def find_partitions(
    calls_of: CallsOf, layout: Layout, places: Sequence[tuple[str, str]], kind: Kind = Kind.MESSAGES
) -> Operation[list[str]]:
    """Return the names of the partitions to act in on ids (or schedules, by `kind`), each with its `partition_key`.

    While their number changes, those that wait are moved to their new partition before. A leased message is where it
    was: an operation that does not find it there any more asks again, since its lease has ended. Raises `EpochError` if
    the number of partitions has changed since the layout was read.
    """
    now = names_of(layout.name, layout.partitions)
    found = [now[layout.partition_of(key)] for _, key in places]
    if layout.growing_from is None:
        return found
    before, ways = names_of(layout.name, layout.growing_from), dict[tuple[str, str], list[int]]()
    for at, (_, key) in enumerate(places):
        old = before[partition_of(key, layout.growing_from)]
        if old != found[at]:
            ways.setdefault((old, found[at]), []).append(at)
    for (old, new), ats in ways.items():
        statuses = yield from move(calls_of, kind, old, new, [places[at][0] for at in ats])
        for at, status in zip(ats, statuses, strict=True):
            if status == LEASED:
                found[at] = old
    return found


def raise_epochs(calls_of: CallsOf, names: Sequence[str], epoch: int) -> Operation[None]:
    """Raise the epoch of partitions that have a lower one: from then on who knows an older one is refused there.

    A client that has read the epoch of the queue, and is refused in a partition, does so: its mover may be dead.
    """
    yield [repartition_call(calls_of(name), epoch) for name in names]


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
    """What decides on its partition, see `partition_key`."""


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
        places = [Place(id, _text(id) if part == "schedules" else partition_key(_text(id))) for id in ids]
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
    return [Place(id, partition_key(_text(id), text or b"")) for id, text in zip(ids, texts, strict=True)]


def _deaths(calls: Calls, position: tuple[str, str]) -> Operation[PlacePage]:
    (page,) = yield [calls.page("dead", limit=_AT_ONCE, cursor=position[0], score=position[1], preview=0)]
    places = []
    for row in page.rows:
        id, _, token = row.id.rpartition(":")
        death = read_death(row.payload) if token.isdecimal() else None
        if death is not None:  # else another program has written it, and it stays
            places.append(Place(row.id, partition_key(id, death.attributes)))
    return PlacePage(Kind.DEATHS, places, (page.cursor, page.score) if page.cursor else None)
