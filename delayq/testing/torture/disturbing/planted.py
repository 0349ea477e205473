"""Writes into every key of a queue what no process of ours would, as another program or a hand may do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from delayq.broker.keys import Keys
from delayq.broker.requests import RedisCommand
from delayq.broker.transport.executor import Executor
from delayq.testing.torture.workload import payload_of, planted_id

TYPES = {
    **dict.fromkeys(("pending", "ranked", "throttled", "gates", "running", "unack", "dead", "completed"), "zset"),
    **dict.fromkeys(("waited", "done", "latest", "schedules", "schedule_labels", "beats"), "zset"),
    **dict.fromkeys(("ready", "retry", "wake"), "list"),
    "garbage": "set",
    **dict.fromkeys(("ends", "events"), "stream"),
}
"""The types of a queue's keys that are not hashes."""


def plant(executor: Executor, keys: Keys) -> None:
    """Plant an id in each key of a queue."""
    executor.run([_command(TYPES.get(part, "hash"), part, key) for part, key in asdict(keys).items()])


def _command(kind: str, part: str, key: str) -> RedisCommand[None]:
    """Return the command that plants: a payload that a callback can process, or a number where scripts read one."""
    id = planted_id(part)
    value = "1" if part in ("meta", "dead_ids") else payload_of(id, 0)
    words: dict[str, tuple[Any, ...]] = {
        "zset": ("ZADD", key, 0, id),
        "list": ("RPUSH", key, id),
        "set": ("SADD", key, id),
        "stream": ("XADD", key, "*", "id", id, "payload", value),
        "hash": ("HSET", key, id, value),
    }
    return RedisCommand(words[kind], lambda _: None)
