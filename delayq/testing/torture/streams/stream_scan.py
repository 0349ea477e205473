"""The final scan of a stream queue: what lies in the stream and beside it, and what of it is in no order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from delayq.answers import pairs
from delayq.executor import Executor
from delayq.streams.calls import Place
from delayq.streams.keys import StreamKeys
from delayq.torture.history import Final, now
from delayq.torture.process import Clock
from delayq.torture.scan import cut_short, read_hash, read_texts
from delayq.values import Command

NOBODY = "retry"
"""The consumer of a group that owns what waits to be delivered again."""
_ALL = 1 << 31

Fields = dict[bytes, bytes]


@dataclass(slots=True)
class Held:
    """The structures of a stream queue, as they were read."""

    now: int
    keys: list[str]
    groups: dict[str, str]
    """The last entry that each group has delivered."""
    pending: dict[str, tuple[str, int, int]]
    """What was delivered and not settled: owner, idle time (ms) and number of deliveries, by entry."""
    stream: dict[str, Fields]
    dead: dict[str, Fields]
    ids: list[str]
    errors: dict[str, bytes]
    delays: dict[str, bytes]


def read(executor: Executor, keys: StreamKeys, group: str, *, own: bool) -> Held:
    """Read all of it while nobody is at work on the queue; on a server of our `own` all of its keys are looked at."""
    groups = executor.call(Command(("EXISTS", keys.stream), bool)) and executor.call(
        Command(("XINFO", "GROUPS", keys.stream), _read_groups)
    )
    nothing: Any = Command(("PING",), lambda _: {})
    requests: list[Any] = [
        Clock.command,
        Command(("KEYS", "*"), read_texts) if own else Command(("PING",), lambda _: []),
        Command(("XPENDING", keys.stream, group, "-", "+", _ALL), _read_pending) if groups else nothing,
        Command(("XRANGE", keys.stream, "-", "+"), _read_entries),
        Command(("XRANGE", keys.dead, "-", "+"), _read_entries),
        Command(("SMEMBERS", keys.ids), read_texts),
        Command(("HGETALL", keys.errors), read_hash),
        Command(("HGETALL", keys.delays), read_hash),
    ]
    answers = executor.run(requests)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    at, listed, *rest = answers
    return Held(at, listed, groups or {}, *rest)


def scan(executor: Executor, keys: StreamKeys, group: str, lease: int, *, own: bool) -> Final:
    """Read a stream queue, and say what it holds and what is left over; `lease` in ms."""
    held = read(executor, keys, group, own=own)
    return Final(
        at=now(),
        server=held.now,
        living=[(_id(row), *_stands(held, entry, lease)) for entry, row in held.stream.items()],
        dead=[
            (_id(row), 0, int(row[b"attempts"]), int(row[b"retries"]), row[b"reason"].decode())
            for row in held.dead.values()
            if is_dead(row)
        ],
        leftovers=cut_short(disorders(held, keys, group)),
    )


def _stands(held: Held, entry: str, lease: int) -> tuple[str, int]:
    """Return the state of an entry, and since when somebody could have it (ms)."""
    if entry not in held.pending:
        return "ready", int(entry.partition("-")[0])
    owner, idle, _ = held.pending[entry]
    due = int(held.delays.get(entry, 0)) or held.now - idle + lease
    return ("backoff" if owner == NOBODY else "active"), due


def is_dead(row: Fields) -> bool:
    """Tell whether an entry of the dead letter says what a message has died of, and after how many attempts."""
    return b"reason" in row and all(row.get(name, b"").isdigit() for name in (b"attempts", b"retries"))


def disorders(held: Held, keys: StreamKeys, group: str) -> Iterator[str]:
    """Yield what is in no order, a text each."""
    known = {getattr(keys, part.name) for part in fields(keys)}
    yield from (f"unknown key {key}" for key in held.keys if key not in known)
    yield from (f"unknown group {name}" for name in held.groups if name != group)
    yield from (f"{entry} is delivered, and not in the stream" for entry in held.pending if entry not in held.stream)
    last = Place(held.groups.get(group, "0-0"), 0, unique=False).token
    for entry, row in held.stream.items():
        if entry not in held.pending and Place(entry, 0, unique=False).token <= last:
            yield f"{_id(row)} is settled, and left in the stream as {entry}"
    unique = Counter(_id(row) for row in held.stream.values() if b"unique" in row)
    yield from (f"{id} stands in the stream {number} times" for id, number in unique.items() if number > 1)
    yield from (f"{id} is not among the unique ids" for id in unique.keys() - set(held.ids))
    yield from (f"{id} is among the unique ids and no message" for id in set(held.ids) - unique.keys())
    yield from (f"{entry} has an error and is no message" for entry in held.errors.keys() - held.stream.keys())
    yield from (f"{entry} has a delay and is no message" for entry in held.delays.keys() - held.stream.keys())
    yield from (f"{_id(row)} is dead without a reason" for row in held.dead.values() if not is_dead(row))


def _id(row: Fields) -> str:
    return row.get(b"id", b"?").decode()


def _read_groups(answer: list[Any]) -> dict[str, str]:
    found = [pairs(group) for group in answer]
    return {group[b"name"].decode(): group[b"last-delivered-id"].decode() for group in found}


def _read_pending(answer: list[Any]) -> dict[str, tuple[str, int, int]]:
    return {entry.decode(): (owner.decode(), idle, number) for entry, owner, idle, number in answer}


def _read_entries(answer: list[Any]) -> dict[str, Fields]:
    return {entry.decode(): pairs(row) for entry, row in answer}
