"""The final scan: everything that Redis holds of a delay queue at the end of a round, and what is inconsistent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from types import SimpleNamespace
from typing import Any

from delayq.broker.calls import Calls
from delayq.broker.foreign import record_fields
from delayq.broker.keys import META_SETTINGS, Keys
from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import Executor
from delayq.broker.transport.operation import together
from delayq.queue.inspecting.deaths import read_death
from delayq.testing.torture.history import ScanRecord, now
from delayq.testing.torture.workload import is_planted

_OF_MESSAGES = ("retries", "deliveries", "headers", "attributes", "errors", "successors")
_HASHES = ("messages", *_OF_MESSAGES, "dead_messages", "dead_ids", "results")
_ZSETS = ("pending", "ranked", "throttled", "running", "unack", "dead", "completed")
_LISTS = ("ready", "retry", "wake")
MAX_LEFTOVERS = 20
"""Inconsistencies that are reported one by one."""


class QueueContents(SimpleNamespace):
    """The structures of a delay queue by name, what the queue counts (`counted`) and the keys found (`keys`)."""

    def record(self, id: str) -> list[str]:
        """Return the words of a delivery record: state, due time and so on; a pending message has none."""
        stored = self.deliveries.get(id)
        return record_fields(stored.decode()) if stored else ["pending", str(self.pending.get(id, 0))]

    def offered(self, state: str) -> set[str]:
        """Return the living ids of a list; it may contain stale entries of ids that are elsewhere now."""
        entries: list[str] = getattr(self, state)
        return {id for id in entries if id in self.messages and self.record(id)[0] == state}


def read(executor: Executor, keys: Keys, *, own: bool) -> QueueContents:
    """Read the whole queue while nobody works on it; on our `own` server list all keys with its prefix."""
    prefix = keys.meta.removesuffix("meta")
    requests: list[Any] = [Calls(keys).counts()]
    requests += [RedisCommand(("KEYS", f"{prefix}*"), read_texts) if own else RedisCommand(("PING",), lambda _: [])]
    requests += [RedisCommand(("HGETALL", getattr(keys, part)), read_hash) for part in _HASHES]
    requests += [RedisCommand(("ZRANGE", getattr(keys, part), 0, -1, "WITHSCORES"), read_zset) for part in _ZSETS]
    requests += [RedisCommand(("LRANGE", getattr(keys, part), 0, -1), read_texts) for part in _LISTS]
    requests += [RedisCommand(("SMEMBERS", keys.garbage), read_texts)]
    names = ("counted", "keys", *_HASHES, *_ZSETS, *_LISTS, "garbage")
    return QueueContents(**dict(zip(names, executor.perform(together(requests)), strict=True)))


def scan_all(executor: Executor, keys: Mapping[str, Keys], *, own: bool) -> ScanRecord:
    """Read the partitions of a queue by name, or the one queue that there is; return what all of them hold together."""
    scans = {name: scan(executor, one, own=own) for name, one in keys.items()}
    if len(scans) == 1:
        return next(iter(scans.values()))
    counters: Counter[str] = Counter()
    for one in scans.values():
        counters.update(one.counters)
    return ScanRecord(
        at=now(),
        server=max(one.server for one in scans.values()),
        living=[row for one in scans.values() for row in one.living],
        dead=[row for one in scans.values() for row in one.dead],
        counters=dict(counters),
        leftovers=[f"{name}: {text}" for name, one in scans.items() for text in one.leftovers],
    )


def scan(executor: Executor, keys: Keys, *, own: bool) -> ScanRecord:
    """Read a queue, and return what it holds and what is left over."""
    contents = read(executor, keys, own=own)
    deaths = (
        (entry.rpartition(":"), death)
        for entry, stored in contents.dead_messages.items()
        if not is_planted(entry) and (death := read_death(stored)) is not None
    )
    known = astuple(keys)
    leftovers = [*(f"unknown key {key}" for key in contents.keys if key not in known), *_inconsistencies(contents)]
    more = [f"and {len(leftovers) - MAX_LEFTOVERS} more"] if len(leftovers) > MAX_LEFTOVERS else []
    return ScanRecord(
        at=now(),
        server=contents.counted.now,
        living=[(id, contents.record(id)[0], int(contents.record(id)[1])) for id in contents.messages],
        dead=[(id, int(token), d.attempts, d.retries, d.reason) for (id, _, token), d in deaths],
        counters={name: int(value) for name, value in contents.counted.meta.items() if name not in META_SETTINGS},
        leftovers=[*leftovers[:MAX_LEFTOVERS], *more],
    )


def _inconsistencies(contents: QueueContents) -> Iterator[str]:
    if contents.counted.meta:
        yield from (f"the queue has no {name}" for name in ("schema", "identity") if name not in contents.counted.meta)
    messages, dead = contents.messages.keys(), contents.dead.keys()
    offered = [*contents.offered("ready"), *contents.offered("retry")]
    places = Counter(
        [*contents.pending, *contents.ranked, *contents.throttled, *contents.unack, *offered, *contents.garbage]
    )
    yield from (f"{id} is in {number} structures" for id, number in places.items() if number > 1)
    yield from (f"{id} is in a structure, but not a message" for id in places.keys() - messages)
    yield from (f"{id} is a message in no structure" for id in messages - places.keys())
    for part in _OF_MESSAGES:
        yield from (f"{id} has {part}, but is not a message" for id in getattr(contents, part).keys() - messages)
    yield from (f"{entry} is dead without a message" for entry in dead - contents.dead_messages.keys())
    stored = {entry for entry in contents.dead_messages if not is_planted(entry)}  # no repair deletes a message
    yield from (f"{entry} is stored, but not dead" for entry in stored - dead)
    unreadable = (entry for entry in stored if read_death(contents.dead_messages[entry]) is None)
    yield from (f"the message of {entry} cannot be read" for entry in unreadable)
    by_id = {f"{id}:{token}" for id, tokens in contents.dead_ids.items() for token in tokens.decode().split()}
    yield from (f"{entry} is dead by id or by time, but not by both" for entry in by_id ^ dead)
    kept = {id for id in contents.completed.keys() ^ contents.results.keys() if not is_planted(id)}
    yield from (f"{id} is completed without a result, or the reverse" for id in kept)
    idle = (id for id in contents.running if contents.record(id)[0] != "leased")
    yield from (f"{id} takes a place of a limit, but does not run" for id in idle)
    yield from _wrong_counts(contents)


def _wrong_counts(contents: QueueContents) -> Iterator[str]:
    counted, meta = contents.counted, contents.counted.meta
    ready, retry = contents.offered("ready"), contents.offered("retry")
    due = sum(at <= counted.now for at in contents.pending.values())
    in_backoff = sum(contents.record(id)[0] == "backoff" for id in contents.unack)
    for name, count, found in (
        ("messages", counted.messages, len(contents.messages)),
        ("pending", counted.pending, len(contents.pending) - due),
        ("ready", counted.ready, due + len(ready) + len(contents.ranked)),
        ("retry", counted.retry, len(retry)),
        ("active", counted.active, len(contents.unack) - in_backoff),
        ("backoff", counted.backoff, in_backoff),
        ("throttled", counted.throttled, len(contents.throttled)),
        ("garbage", counted.garbage, len(contents.garbage)),
        ("dead", counted.dead, len(contents.dead)),
        ("completed", counted.completed, len(contents.completed)),
        ("stale_ready", int(meta.get("stale_ready", 0)), len(contents.ready) - len(ready)),
        ("stale_retry", int(meta.get("stale_retry", 0)), len(contents.retry) - len(retry)),
    ):
        if count != found:
            yield f"{name}: counted as {count}, but there are {found}"
    if len(contents.wake) > 1:
        yield f"{len(contents.wake)} wake-ups"


def read_hash(reply: Any) -> dict[str, bytes]:
    """Return a hash: a flat list or, in RESP3, a mapping."""
    return {name.decode(): value for name, value in pairs(reply).items()}


def read_zset(reply: list[Any]) -> dict[str, int]:
    """Return a sorted set: a flat list or, in RESP3, pairs."""
    paired = reply if reply and isinstance(reply[0], list | tuple) else zip(reply[::2], reply[1::2], strict=True)
    return {member.decode(): int(float(score)) for member, score in paired}


def read_texts(reply: Any) -> list[str]:
    """Return a list or a set."""
    return [text.decode() for text in reply]
