"""The final scan of a work queue: its items, the list that each is in, and what is inconsistent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import Executor
from delayq.broker.transport.operation import together
from delayq.testing.torture.final_scan import read_texts, shorten
from delayq.testing.torture.history import ScanRecord, now
from delayq.testing.torture.process_task import ServerClock
from delayq.workqueue.cleaner import ABANDONED_AFTER
from delayq.workqueue.keys import WorkQueueKeys

POLL = 0.1
"""Seconds between two polls of leases that are about to expire."""
SCAN_BATCH = 1000


@dataclass(slots=True)
class WorkQueueContents:
    """The structures of a work queue; ids as text."""

    now: int
    items: set[str]
    leases: dict[str, int]
    """When each lease expires (ms)."""
    queue: list[str]
    processing: list[str]
    unknown: list[str]
    """Other keys."""


def keys_of(executor: Executor, pattern: str) -> set[str]:
    """Return all keys that match."""
    cursor, found = b"0", set[str]()
    while True:
        cursor, keys = executor.call(RedisCommand(("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_BATCH), tuple))
        found.update(read_texts(keys))
        if int(cursor) == 0:
            return found


def read(executor: Executor, keys: WorkQueueKeys, *, own: bool) -> WorkQueueContents:
    """Read the whole queue while nobody works on it; on our `own` server list all keys."""
    item, lease = keys.item(b"").decode(), keys.lease(b"").decode()
    lists = [keys.queue.decode(), keys.processing.decode()]
    found = sorted(keys_of(executor, "*" if own else f"{keys.prefix}:*"))
    leased = [key for key in found if key.startswith(lease)]
    requests: list[Any] = [ServerClock.command, *(RedisCommand(("LRANGE", key, 0, -1), read_texts) for key in lists)]
    requests += [RedisCommand(("PTTL", key), int) for key in leased]
    at, queue, processing, *left = executor.perform(together(requests))
    return WorkQueueContents(
        at,
        {key.removeprefix(item) for key in found if key.startswith(item)},
        {key.removeprefix(lease): at + ms for key, ms in zip(leased, left, strict=True) if ms >= 0},
        queue,
        processing,
        [key for key in found if not key.startswith((item, lease)) and key not in lists],
    )


def scan(executor: Executor, keys: WorkQueueKeys, lease: float, *, own: bool) -> ScanRecord:
    """Read a work queue, and return what it holds and what is left over; `lease` in seconds.

    A cleaner that died may have left a lease of an item that was completed meanwhile; wait until it expires.
    """
    end = time.monotonic() + max(lease, ABANDONED_AFTER) + 1
    while (contents := read(executor, keys, own=own)).leases.keys() - contents.items and time.monotonic() < end:
        time.sleep(POLL)
    return ScanRecord(
        at=now(),
        server=contents.now,
        living=[(id, _state(contents, id), contents.leases.get(id, 0)) for id in sorted(contents.items)],
        leftovers=shorten(_inconsistencies(contents)),
    )


def _state(contents: WorkQueueContents, id: str) -> str:
    return "ready" if id in contents.queue else "active" if id in contents.processing else "lost"


def _inconsistencies(contents: WorkQueueContents) -> Iterator[str]:
    yield from (f"unknown key {key}" for key in contents.unknown)
    listed = Counter([*contents.queue, *contents.processing])
    yield from (f"{id} is listed {number} times" for id, number in listed.items() if number > 1)
    yield from (f"{id} is listed, but not an item" for id in listed.keys() - contents.items)
    yield from (f"{id} is an item in neither list" for id in contents.items - listed.keys())
    yield from (f"{id} is leased, but not an item" for id in contents.leases.keys() - contents.items)
