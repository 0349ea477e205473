"""The final scan of a stream queue: what the stream and its other keys hold, and what is inconsistent in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from delayq.broker.replies.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import Executor
from delayq.broker.transport.operation import together
from delayq.streams.calls import EntryToken
from delayq.streams.keys import StreamKeys
from delayq.testing.torture.final_scan import no_reply, read_hash, read_texts, shorten, unknown_keys
from delayq.testing.torture.history import ScanRecord, now
from delayq.testing.torture.process_task import ServerClock
from delayq.testing.torture.workload import is_planted

WAITING = "retry"
"""The consumer of the group that owns the entries waiting to be delivered again."""
_ALL = 1 << 31

Fields = dict[bytes, bytes]


@dataclass(slots=True)
class StreamContents:
    """The structures of a stream queue."""

    now: int
    keys: list[str]
    groups: dict[str, str]
    """The last entry that each group has delivered."""
    pending: dict[str, tuple[str, int, int]]
    """Entries delivered and not settled: owner, idle time (ms) and number of deliveries."""
    stream: dict[str, Fields]
    dead: dict[str, Fields]
    ids: list[str]
    errors: dict[str, bytes]
    delays: dict[str, bytes]


def read(executor: Executor, keys: StreamKeys, group: str, *, own: bool) -> StreamContents:
    """Read the whole queue while nobody works on it; on our `own` server list all keys."""
    groups = executor.call(RedisCommand(("EXISTS", keys.stream), bool)) and executor.call(
        RedisCommand(("XINFO", "GROUPS", keys.stream), _read_groups)
    )
    requests: list[Any] = [
        ServerClock.command,
        RedisCommand(("KEYS", "*"), read_texts) if own else no_reply([]),
        RedisCommand(("XPENDING", keys.stream, group, "-", "+", _ALL), _read_pending) if groups else no_reply({}),
        RedisCommand(("XRANGE", keys.stream, "-", "+"), _read_entries),
        RedisCommand(("XRANGE", keys.dead, "-", "+"), _read_entries),
        RedisCommand(("SMEMBERS", keys.ids), read_texts),
        RedisCommand(("HGETALL", keys.errors), read_hash),
        RedisCommand(("HGETALL", keys.delays), read_hash),
    ]
    at, listed, *rest = executor.perform(together(requests))
    return StreamContents(at, listed, groups or {}, *rest)


def scan(executor: Executor, keys: StreamKeys, group: str, lease: int, *, own: bool) -> ScanRecord:
    """Read a stream queue, and return what it holds and what is left over; `lease` in ms."""
    contents = read(executor, keys, group, own=own)
    return ScanRecord(
        at=now(),
        server=contents.now,
        living=[(_id(row), *_state(contents, entry, lease)) for entry, row in contents.stream.items()],
        dead=[
            (_id(row), 0, int(row[b"attempts"]), int(row[b"retries"]), row[b"reason"].decode())
            for row in contents.dead.values()
            if is_complete_death(row)
        ],
        leftovers=shorten([*unknown_keys(keys, contents.keys), *_inconsistencies(contents, group)]),
    )


def _state(contents: StreamContents, entry: str, lease: int) -> tuple[str, int]:
    """Return the state of an entry, and since when it can be delivered (ms)."""
    if entry not in contents.pending:
        return "ready", int(entry.partition("-")[0])
    owner, idle, _ = contents.pending[entry]
    due = int(contents.delays.get(entry, 0)) or contents.now - idle + lease
    return ("backoff" if owner == WAITING else "active"), due


def is_complete_death(row: Fields) -> bool:
    """Return whether an entry of the dead letter has a reason and the number of attempts."""
    return b"reason" in row and all(row.get(name, b"").isdigit() for name in (b"attempts", b"retries"))


def _inconsistencies(contents: StreamContents, group: str) -> Iterator[str]:
    yield from (text for text in _defects(contents, group) if not is_planted(text))


def _defects(contents: StreamContents, group: str) -> Iterator[str]:
    stream, pending = contents.stream, contents.pending
    yield from (f"unknown group {name}" for name in contents.groups if name != group)
    yield from (f"{entry} is delivered, but not in the stream" for entry in pending.keys() - stream.keys())
    last = EntryToken(contents.groups.get(group, "0-0"), 0, unique=False).token
    for entry, row in stream.items():
        if entry not in pending and EntryToken(entry, 0, unique=False).token <= last:
            yield f"{_id(row)} is settled, but still in the stream as {entry}"
    unique = Counter(_id(row) for row in stream.values() if b"unique" in row)
    yield from (f"{id} is in the stream {number} times" for id, number in unique.items() if number > 1)
    yield from (f"{id} is not among the unique ids" for id in unique.keys() - set(contents.ids))
    yield from (f"{id} is among the unique ids, but not a message" for id in set(contents.ids) - unique.keys())
    yield from (f"{entry} has an error, but is not a message" for entry in contents.errors.keys() - stream.keys())
    yield from (f"{entry} has a delay, but is not a message" for entry in contents.delays.keys() - stream.keys())
    yield from (f"{_id(row)} is dead without a reason" for row in contents.dead.values() if not is_complete_death(row))


def _id(row: Fields) -> str:
    return row.get(b"id", b"?").decode()


def _read_groups(reply: list[Any]) -> dict[str, str]:
    groups = [pairs(group) for group in reply]
    return {group[b"name"].decode(): group[b"last-delivered-id"].decode() for group in groups}


def _read_pending(reply: list[Any]) -> dict[str, tuple[str, int, int]]:
    return {entry.decode(): (owner.decode(), idle, number) for entry, owner, idle, number in reply}


def _read_entries(reply: list[Any]) -> dict[str, Fields]:
    return {entry.decode(): pairs(row) for entry, row in reply}
