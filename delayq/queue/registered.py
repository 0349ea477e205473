"""The registry of queues: the names of all queues of a prefix."""

from __future__ import annotations

from delayq.broker.keys import check_name, registry
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.operation import Operation


def as_glob(pattern: str) -> str:
    """Return a pattern as Redis reads it."""
    return pattern.replace("[!", "[^")


def is_listed(prefix: str, queue: str) -> RedisCommand[bool]:
    """Read whether a queue is in use: one that was removed is not."""
    return RedisCommand(("SISMEMBER", registry(prefix), queue), bool)


def queue_names(prefix: str, pattern: str = "*") -> Operation[list[str]]:
    """Read the names of the queues of a prefix that match a pattern, sorted; see `keys.check_pattern`."""
    key = registry(check_name(prefix, "prefix"))
    match = as_glob(pattern)
    names: set[str] = set()
    cursor = b"0"
    while True:
        (reply,) = yield [RedisCommand(("SSCAN", key, cursor, "MATCH", match, "COUNT", 500), lambda reply: reply)]
        cursor, found = reply
        names.update(name.decode() for name in found)
        if cursor == b"0":
            return sorted(names)
