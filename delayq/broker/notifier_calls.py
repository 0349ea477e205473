"""The commands of notifiers: each keeps what it has told in a field of its own."""

from __future__ import annotations

from delayq.broker.keys import Keys, registry
from delayq.broker.requests import RedisCommand


def is_listed(prefix: str, queue: str) -> RedisCommand[bool]:
    """Read whether a queue is in use: one that was removed is not."""
    return RedisCommand(("SISMEMBER", registry(prefix), queue), bool)


def read_notifier(keys: Keys, name: str) -> RedisCommand[bytes | None]:
    """Read what a notifier has kept; None for a new one."""
    return RedisCommand(("HGET", keys.notifiers, name), lambda reply: reply)


def keep_notifier(keys: Keys, name: str, state: bytes) -> RedisCommand[int]:
    """Keep all that a notifier knows, in one step."""
    return RedisCommand(("HSET", keys.notifiers, name, state), int)
