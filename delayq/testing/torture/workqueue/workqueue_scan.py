"""The final scan of a work queue: which items there are, in which list they stand, and what of it is in no order."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from delayq.executor import Executor
from delayq.torture.history import Final, now
from delayq.torture.process import Clock
from delayq.torture.scan import cut_short, read_texts
from delayq.values import Command
from delayq.workqueue.cleaning import ABANDONED
from delayq.workqueue.keys import Keys

LOOK = 0.1
"""Seconds between two looks at leases that are about to run out."""
KEYS_A_SCAN = 1000


@dataclass(slots=True)
class Held:
    """The structures of a work queue, as they were read; ids as texts."""

    now: int
    items: set[str]
    leases: dict[str, int]
    """Until when each is held (ms)."""
    queue: list[str]
    processing: list[str]
    unknown: list[str]
    """Other keys."""


def keys_of(executor: Executor, pattern: str) -> Iterator[str]:
    """Yield all keys that match, each once."""
    cursor, seen = b"0", set[str]()
    while True:
        command = Command(("SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_A_SCAN), tuple)
        cursor, found = executor.call(command)
        fresh = set(read_texts(found)) - seen
        yield from fresh
        seen |= fresh
        if int(cursor) == 0:
            return


def read(executor: Executor, keys: Keys, *, own: bool) -> Held:
    """Read all of it while nobody is at work on the queue; on a server of our `own` all keys are looked at."""
    item, lease = keys.item(b"").decode(), keys.lease(b"").decode()
    lists = [keys.queue.decode(), keys.processing.decode()]
    found = sorted(keys_of(executor, "*" if own else f"{keys.prefix}:*"))
    held = [key for key in found if key.startswith(lease)]
    requests: list[Any] = [Clock.command, *(Command(("LRANGE", key, 0, -1), read_texts) for key in lists)]
    requests += [Command(("PTTL", key), int) for key in held]
    answers = executor.run(requests)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    at, queue, processing, *left = answers
    return Held(
        at,
        {key.removeprefix(item) for key in found if key.startswith(item)},
        {key.removeprefix(lease): at + ms for key, ms in zip(held, left, strict=True) if ms >= 0},
        queue,
        processing,
        [key for key in found if not key.startswith((item, lease)) and key not in lists],
    )


def scan(executor: Executor, keys: Keys, lease: float, *, own: bool) -> Final:
    """Read a work queue, and say what it holds and what is left over; `lease` in seconds.

    A cleaner may have leased an item that was completed meanwhile, and died; such a lease runs out by itself, which is
    waited for.
    """
    end = time.monotonic() + max(lease, ABANDONED) + 1
    while (held := read(executor, keys, own=own)).leases.keys() - held.items and time.monotonic() < end:
        time.sleep(LOOK)
    return Final(
        at=now(),
        server=held.now,
        living=[(id, _state(held, id), held.leases.get(id, 0)) for id in sorted(held.items)],
        leftovers=cut_short(disorders(held)),
    )


def _state(held: Held, id: str) -> str:
    return "ready" if id in held.queue else "active" if id in held.processing else "lost"


def disorders(held: Held) -> Iterator[str]:
    """Yield what is in no order, a text each."""
    yield from (f"unknown key {key}" for key in held.unknown)
    listed = Counter([*held.queue, *held.processing])
    yield from (f"{id} is listed {number} times" for id, number in listed.items() if number > 1)
    yield from (f"{id} is listed and no item" for id in listed.keys() - held.items)
    yield from (f"{id} is an item in neither list" for id in held.items - listed.keys())
    yield from (f"{id} is leased and no item" for id in held.leases.keys() - held.items)
