"""The start-up check: whether this Redis could lose messages, and whether this delayq can read the queue.

Also what the doctor, `delayq health` and the exporter tell of a server that runs: whether it takes writes, and how
full it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from delayq.broker.keys import Keys, registry
from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand
from delayq.broker.shared_calls import identify
from delayq.broker.transport.operation import Operation
from delayq.errors import PartitionsError, ServerError, UnsafeServerError
from delayq.queue.control.registered import register
from delayq.safe_log import SafeLog

log = SafeLog("delayq.doctor")

NEW_SCHEMA = 3
"""The version of the data structures of a new queue."""
SCHEMA = 6
"""The newest version of a queue that uses no more than Redis: with groups, hours, or templates of limits."""
PARTITIONED = "7"
"""The schema of a queue that has partitions, each a queue of its own: who does not know them must not open it."""
COLD = "8"
"""The schema of a queue with a cold tier: who does not know it would not withdraw what is cold."""
CHECK_EVERY = 10.0
"""Seconds between two checks that Redis still has an open queue."""
_KNOWN = [*(str(version).encode() for version in range(SCHEMA + 1)), COLD.encode()]
MIN_SERVER = (6, 2)
NEARLY_FULL = 0.9
"""The share of the memory, or of the clients, from which on a server is nearly full: some time is left to act."""
_SETTINGS = ("stop-writes-on-bgsave-error", "save", "min-replicas-to-write")
"""What INFO does not tell. Few logins may read it, so it is asked only when it matters."""


class Trouble(NamedTuple):
    """What is wrong with a server that runs."""

    text: str
    refuses: bool = True
    """Whether it refuses to store messages now; else it may soon."""


class Survey(NamedTuple):
    """What is known of the server of a queue, and the fields of the queue's `meta`."""

    dangers: list[str]
    """Why it could lose messages, one sentence each."""
    troubles: list[Trouble]
    unread: str
    """Why INFO was not read, as a sentence; '' if it was, or the server has none."""
    meta: dict[bytes, bytes]

    def findings(self) -> Iterator[tuple[str, int]]:
        """Yield what is to be told of the server, each with 1; with 0 what is not known."""
        yield from ((trouble.text, 1) for trouble in self.troubles)
        yield from ((danger, 1) for danger in self.dangers)
        if self.unread:
            yield self.unread, 0


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
    commands: list[RedisCommand[Any]] = [RedisCommand(words, lambda reply: reply) for words in (("INFO",), *schema)]
    return [*commands, register(prefix, name), *identify(keys.meta)]


def removal(keys: Keys, prefix: str, name: str) -> list[RedisCommand[Any]]:
    """Return the commands that delete everything of a queue, as demos do with theirs."""
    names = tuple(getattr(keys, part.name) for part in fields(keys))
    return [RedisCommand(("UNLINK", *names), int), RedisCommand(("SREM", registry(prefix), name), int)]


def check(name: str, replies: Opening, *, embedded: bool, strict: bool) -> None:
    """Log what could lose messages, or raise `UnsafeServerError` if `strict`; raise it always for a newer schema."""
    has_info = not embedded and isinstance(replies.info, bytes)
    dangers = find_dangers(_parse(replies.info)) if has_info else []
    if replies.schema == PARTITIONED.encode():
        raise PartitionsError(f"queue {name} has partitions: open it with partitions='stored', or their number")
    unknown = newer(name, replies.schema)
    if unknown:
        dangers.append(unknown)
    if dangers and (strict or unknown):
        raise UnsafeServerError("; ".join(dangers))
    for danger in dangers:
        log.warning("%s", danger, extra={"queue": name})


def survey(keys: Keys) -> Operation[Survey]:
    """Read what is wrong with the server of a queue, and the fields of the queue's `meta`."""
    read, unread = RedisCommand(("HGETALL", keys.meta), pairs), ""
    try:  # in one round trip with a key of the queue: in a cluster it is its node that tells
        info, meta = yield [server_info(), read]
    except ServerError as error:  # the embedded server has none
        (meta,) = yield [read]
        info, unread = {}, _why_unread(error)
    settings: dict[str, str] = {}
    if info.get("rdb_last_bgsave_status") == "err" or "min_slaves_good_slaves" in info:
        for name in _SETTINGS:
            settings |= yield from _ask(("CONFIG", "GET", name), _read_settings)
    if info.get("cluster_enabled") == "1":
        info |= yield from _ask(("CLUSTER", "INFO"), _parse)
    return Survey(find_dangers(info), find_troubles(info, settings), unread, meta)


def _why_unread(error: ServerError) -> str:
    if "NOPERM" not in str(error).upper() and "no permissions" not in str(error):
        return ""
    return "INFO may not be read with this login: whether the server is full or refuses writes is not known"


def _ask(command: tuple[str, ...], parse: Callable[[Any], dict[str, str]]) -> Operation[dict[str, str]]:
    """Read more of a server, if this login may."""
    try:
        (reply,) = yield [RedisCommand(command, parse)]
    except ServerError:
        return {}
    return dict(reply)


def server_info() -> RedisCommand[dict[str, str]]:
    """Read the `INFO` of a server."""
    return RedisCommand(("INFO",), lambda reply: _parse(reply) if isinstance(reply, bytes) else {})


def newer(name: str, schema: Any) -> str:
    """Return a warning if this delayq does not know the schema of a queue, else ''."""
    if not isinstance(schema, bytes) or schema in _KNOWN:
        return ""
    version = schema[:20].decode(errors="replace")
    return f"queue {name} has schema {version}, but this delayq knows only {COLD}: upgrade delayq"


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


class Memory(NamedTuple):
    """How full a server is, in bytes."""

    used: int
    """What counts against the maximum."""
    most: int
    """0 for no limit."""

    @classmethod
    def of(cls, info: Mapping[str, str]) -> Memory | None:
        """Read it from an `INFO`; None if that does not tell."""
        if "used_memory" not in info:
            return None
        used = _number(info, "used_memory") - _number(info, "mem_not_counted_for_evict")
        return cls(used, _number(info, "maxmemory"))

    @property
    def share(self) -> float:
        """The share of the maximum that is used; 0 without one."""
        return self.used / self.most if self.most else 0.0


def find_troubles(info: Mapping[str, str], settings: Mapping[str, str]) -> list[Trouble]:
    """Return why a server refuses to store messages, or soon may: by its `INFO`, and what is known of `_SETTINGS`."""
    found = [_memory(info), _snapshot(info, settings), _replica(info), _replicas(info, settings), _clients(info)]
    if info.get("aof_enabled") == "1" and info.get("aof_last_write_status") == "err":
        found.append(Trouble("Redis cannot write its append-only file (is the disk full?): writes are refused"))
    if info.get("cluster_state", "ok") != "ok":
        found.append(Trouble(f"the cluster is down (cluster_state {info['cluster_state']}): writes are refused"))
    return sorted((one for one in found if one is not None), key=lambda one: not one.refuses)


def _memory(info: Mapping[str, str]) -> Trouble | None:
    memory = Memory.of(info)
    if memory is None or memory.share < NEARLY_FULL or info.get("maxmemory_policy", "").startswith("allkeys"):
        return None  # one that evicts any key is a danger of its own
    figures = f"used {memory.used / (1 << 20):,.1f} MiB of maxmemory {memory.most / (1 << 20):,.1f} MiB"
    if memory.used > memory.most:
        return Trouble(f"Redis is full ({figures}): sends are refused")
    return Trouble(f"Redis is nearly full ({figures}, {memory.share:.0%}): sends are refused once it is", refuses=False)


def _snapshot(info: Mapping[str, str], settings: Mapping[str, str]) -> Trouble | None:
    if info.get("rdb_last_bgsave_status") != "err" or settings.get("save") == "":
        return None
    failed = "the last snapshot of Redis failed (is the disk full?)"
    if not settings:
        return Trouble(f"{failed}: writes are refused, unless stop-writes-on-bgsave-error is off")
    if settings.get("stop-writes-on-bgsave-error") == "no":
        return Trouble(f"{failed}: writes are accepted, and not saved by snapshots", refuses=False)
    return Trouble(f"{failed}: writes are refused until one succeeds (stop-writes-on-bgsave-error)")


def _replica(info: Mapping[str, str]) -> Trouble | None:
    if info.get("role") != "slave" or info.get("slave_read_only") == "0":
        return None
    master = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
    return Trouble(f"this Redis is a read-only replica of {master}: writes are refused")


def _replicas(info: Mapping[str, str], settings: Mapping[str, str]) -> Trouble | None:
    if "min_slaves_good_slaves" not in info:  # no replica is asked for
        return None
    good, wanted = _number(info, "min_slaves_good_slaves"), _number(settings, "min-replicas-to-write") or 1
    if good >= wanted:
        return None
    return Trouble(f"{good} replicas are in step, and min-replicas-to-write asks for {wanted}: writes are refused")


def _clients(info: Mapping[str, str]) -> Trouble | None:
    connected, most = _number(info, "connected_clients"), _number(info, "maxclients")
    if not most or connected < NEARLY_FULL * most:
        return None
    return Trouble(
        f"{connected:,} clients are connected to Redis, and maxclients is {most:,}: more are refused", refuses=False
    )


def _number(values: Mapping[str, str], name: str) -> int:
    text = values.get(name, "")
    return int(text) if text.isdecimal() else 0


def _read_settings(reply: Any) -> dict[str, str]:
    return {name.decode(): value.decode("utf-8", "replace") for name, value in pairs(reply).items()}


def _parse(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}
