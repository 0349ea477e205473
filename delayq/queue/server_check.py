"""The start-up check: whether this Redis could lose messages, and whether this delayq can read the queue."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple

from delayq.broker.keys import Keys, registry
from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.broker.shared_calls import identify
from delayq.broker.transport.operation import Operation
from delayq.errors import ServerError, UnsafeServerError
from delayq.safe_log import SafeLog

log = SafeLog("delayq.doctor")

NEW_SCHEMA = 1
"""The version of the data structures of a new queue."""
SCHEMA = 2
"""The newest version that this delayq knows: that of a queue in which messages have had attributes."""
CHECK_EVERY = 10.0
"""Seconds between two checks that Redis still has an open queue."""
_KNOWN = [str(version).encode() for version in range(SCHEMA + 1)]
MIN_SERVER = (6, 2)


class Opening(NamedTuple):
    """The commands that open a queue, in their order, or their replies."""

    info: Any
    schema_set: Any
    schema: Any
    registered: Any
    """Of a queue with a registry; of a stream, its length."""
    identity_set: Any
    identity: Any

    @classmethod
    def split(cls, requests: list[Any]) -> tuple[Opening, list[Any]]:
        """Separate the commands of the round trip that opens a queue, or their replies, from those after them."""
        n = len(cls._fields)
        return cls._make(requests[:n]), requests[n:]


def opening(keys: Keys, prefix: str, name: str) -> list[RedisCommand[Any]]:
    """Return the commands that register a queue and read what the check needs."""
    schema = ("HSETNX", keys.meta, "schema", NEW_SCHEMA), ("HGET", keys.meta, "schema")
    commands = ("INFO",), *schema, ("SADD", registry(prefix), name)
    return [*(RedisCommand(command, lambda reply: reply) for command in commands), *identify(keys.meta)]


def removal(keys: Keys, prefix: str, name: str) -> list[RedisCommand[Any]]:
    """Return the commands that delete everything of a queue, as demos do with theirs."""
    names = tuple(getattr(keys, part.name) for part in fields(keys))
    return [RedisCommand(("UNLINK", *names), int), RedisCommand(("SREM", registry(prefix), name), int)]


def check(name: str, replies: Opening, *, embedded: bool, strict: bool) -> None:
    """Log what could lose messages, or raise `UnsafeServerError` if `strict`; raise it always for a newer schema."""
    has_info = not embedded and isinstance(replies.info, bytes)
    dangers = find_dangers(_parse(replies.info)) if has_info else []
    unknown = newer(name, replies.schema)
    if unknown:
        dangers.append(unknown)
    if dangers and (strict or unknown):
        raise UnsafeServerError("; ".join(dangers))
    for danger in dangers:
        log.warning("%s", danger, extra={"queue": name})


def survey(keys: Keys) -> Operation[tuple[list[str], dict[bytes, bytes]]]:
    """Read why the server could lose messages, one sentence each, and the fields of the queue's `meta`."""
    try:
        (info,) = yield [RedisCommand(("INFO",), lambda reply: reply)]
    except ServerError:  # not permitted, or embedded: the start-up check ignores that, too
        info = None
    (meta,) = yield [RedisCommand(("HGETALL", keys.meta), pairs)]
    return find_dangers(_parse(info)) if isinstance(info, bytes) else [], meta


def newer(name: str, schema: Any) -> str:
    """Return a warning if this delayq does not know the schema of a queue, else ''."""
    if not isinstance(schema, bytes) or schema in _KNOWN:
        return ""
    version = schema[:20].decode(errors="replace")
    return f"queue {name} has schema {version}, but this delayq knows only {SCHEMA}: upgrade delayq"


def find_dangers(info: dict[str, str]) -> list[str]:
    """Return why a server could lose messages according to its `INFO`, one sentence each."""
    dangers = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        dangers.append(f"Redis evicts keys when it is full (maxmemory-policy {policy}): set noeviction")
    if info.get("aof_enabled") == "0":
        dangers.append(
            "Redis has no append-only file (appendonly no): a crash loses what was sent since the last snapshot"
        )
    version = info.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers and numbers < MIN_SERVER:
        dangers.append(f"Redis {version} is older than {'.'.join(map(str, MIN_SERVER))}: upgrade it")
    return dangers


def _parse(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}
