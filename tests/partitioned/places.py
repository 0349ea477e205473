"""Ids by the partition that they belong to, computed here once more."""

from __future__ import annotations

from typing import Any

import redis
from redis.crc import key_slot

PARTITIONS = 4


def place(key: str, partitions: int = PARTITIONS) -> int:
    """Return the partition of a key, as redis-py has the slot of a key."""
    return key_slot(key.encode(), partitions)


def ids_of(number: int, count: int, partitions: int = PARTITIONS) -> list[str]:
    """Return so many ids that belong to one partition."""
    found: list[str] = []
    at = 0
    while len(found) < count:
        if place(f"m{at}", partitions) == number:
            found.append(f"m{at}")
        at += 1
    return found


def one_of_each(partitions: int = PARTITIONS) -> list[str]:
    """Return an id of each partition, in their order."""
    return [ids_of(number, 1, partitions)[0] for number in range(partitions)]


def stored_at(url: str, queue: str = "reminders", partitions: int = PARTITIONS) -> dict[str, int]:
    """Return the partition of each message, read from the keys of Redis alone."""
    with redis.Redis.from_url(url) as client:
        return {
            id.decode(): number
            for number in range(partitions)
            for id in client.hkeys(f"delayq:{{{queue}#{number}}}:messages")
        }


def claim(queue: Any, n: int = 100) -> list[Any]:
    """Claim what is due, at most so many messages: a lease is of one partition."""
    found: list[Any] = []
    while len(found) < n and (some := list(queue.lease("60s", n=n - len(found), block=0 if found else 5))):
        found += some
    return found
