"""The commands of notifiers: each keeps what it has told in a field of its own."""

from __future__ import annotations

from delayq.broker.keys import Keys
from delayq.broker.requests import RedisCommand


def read_notifier(keys: Keys, name: str) -> RedisCommand[bytes | None]:
    """Read what a notifier has kept; None for a new one."""
    return RedisCommand(("HGET", keys.notifiers, name), lambda reply: reply)


def keep_notifier(keys: Keys, name: str, state: bytes) -> RedisCommand[int]:
    """Keep all that a notifier knows, in one step."""
    return RedisCommand(("HSET", keys.notifiers, name, state), int)
