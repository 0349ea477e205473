"""Reads the structures of a queue of the Go library, `hdt3213/delayqueue`, page by page, and removes ids from them.

The id of a message is in one of `pending`, `ready`, `retry`, `unack` and `garbage`. Its payload is a key of its own
with an expiry time; its remaining retries are a field of `retry:cnt`. Scores are seconds since 1970.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from delayq.broker.requests import Argument, RedisCommand
from delayq.broker.transport.executor import Executor
from delayq.broker.transport.operation import together
from delayq.values.checks import MAX_RETRIES

T = TypeVar("T")

PREFIX = "dp"
"""First part of the keys, unless the Go program calls `UseCustomPrefix`."""
PAGE = 500
"""Ids that are read, or removed, in one call."""
STRUCTURES = {"pending": "zset", "ready": "list", "retry": "list", "unack": "zset", "garbage": "set"}
"""The structures with ids and their types, in the order in which the Go library moves a message through them."""
KEEP = "keep"
"""Instead of a score: do not remove the id from its list, but move it to the other end, out of the way."""

_COUNT_COMMANDS = {"zset": "ZCARD", "list": "LLEN", "set": "SCARD"}

# KEYS: the structure, unack zset, retry:cnt hash, then the payload of each id; no payloads if they are on another node.
# ARGV: type of the structure, how many entries from the tail of a list to search, then for each id: the id, and the
#   score that was read with it ('' in a list or set, or KEEP)
# Returns: a status per id: 1 removed, 2 not removed because a Go worker has leased it, 0 no longer there
# Re-run: returns 0 for the ids that the first run removed.
_REMOVE = """
local structure, unack, retry_counts = KEYS[1], KEYS[2], KEYS[3]
local kind, depth = ARGV[1], ARGV[2]
local statuses = {}
for i = 3, #ARGV, 2 do
  local id, expected, n, removed = ARGV[i], ARGV[i + 1], #statuses + 1, false
  if kind == 'zset' then
    local score = redis.call('ZSCORE', structure, id)
    removed = score and tonumber(score) == tonumber(expected) and redis.call('ZREM', structure, id) == 1
  elseif kind == 'set' then
    removed = redis.call('SREM', structure, id) == 1
  elseif redis.call('LPOS', structure, id, 'RANK', -1, 'MAXLEN', depth) then
    removed = redis.call('LREM', structure, -1, id) == 1
  end
  if removed and expected == 'keep' then
    redis.call('LPUSH', structure, id)
  elseif removed then
    redis.call('HDEL', retry_counts, id)
    if KEYS[3 + n] then redis.call('UNLINK', KEYS[3 + n]) end
  end
  statuses[n] = removed and '1' or redis.call('ZSCORE', unack, id) and '2' or '0'
end
return table.concat(statuses)
"""

# KEYS: payloads. Returns: the size of each in bytes, 0 if it does not exist.
# One script takes half as long as one STRLEN per payload.
_SIZES = """
local sizes = {}
for n, key in ipairs(KEYS) do sizes[n] = tonumber(redis.pcall('STRLEN', key)) or 0 end
return sizes
"""


class Entry(NamedTuple):
    """An id in a structure, and its score there; '' in lists and sets."""

    id: bytes
    score: str = ""


class GoQueue:
    """A queue of the Go library."""

    def __init__(self, executor: Executor, name: str, prefix: str, *, tagged: bool) -> None:
        """Name the keys, with a hash tag if `tagged`: the Go library uses one on a cluster and with `UseHashTagKey`."""
        self._executor = executor
        bases = [f"{first}:{name}" for first in dict.fromkeys((prefix, PREFIX))]
        self._base, *_ = self._bases = [f"{{{base}}}" if tagged else base for base in bases]
        # `UseCustomPrefix` does not apply to payloads, so on a cluster they may be on another node.
        self._payloads_apart = tagged and len(bases) > 1

    def count(self) -> Counter[str]:
        """Count the ids in each structure that is not empty."""
        return +Counter({structure: self.length(structure) for structure in STRUCTURES})

    def length(self, structure: str) -> int:
        """Count the ids in one structure."""
        return int(self._run(_COUNT_COMMANDS[STRUCTURES[structure]], self._key(structure)))

    def leased(self, after: int) -> int:
        """Count the leases and retry waits that end after a time (seconds since 1970)."""
        return int(self._run("ZCOUNT", self._key("unack"), f"({after}", "+inf"))

    def page(self, structure: str, offset: int, limit: int) -> list[Entry]:
        """Read a page of a zset from its start, or of a list from its tail, from where Go delivers."""
        key = self._key(structure)
        if STRUCTURES[structure] == "zset":
            return _scored(self._run("ZRANGE", key, offset, offset + limit - 1, "WITHSCORES"))
        return [Entry(id) for id in reversed(self._run("LRANGE", key, -offset - limit, -offset - 1))]

    def count_unchanged(self, structure: str, entries: Sequence[Entry]) -> int:
        """Count the entries of a zset that still have the score they were read with."""
        scores = self._run("ZMSCORE", self._key(structure), *(entry.id for entry in entries))
        pairs = zip(scores, entries, strict=True)
        return sum(score is not None and float(score) == float(entry.score) for score, entry in pairs)

    def scan(self, structure: str) -> Iterator[list[Entry]]:
        """Read a set page by page."""
        cursor = b"0"
        while True:
            cursor, ids = self._run("SSCAN", self._key(structure), cursor, "COUNT", PAGE)
            yield [Entry(id) for id in ids]
            if cursor == b"0":
                return

    def measure(self, ids: Sequence[str]) -> tuple[list[int], list[int]]:
        """Read the size of each payload in bytes, 0 if it does not exist, and the remaining retries of each message."""
        commands = [RedisCommand(("EVAL", _SIZES, len(ids), *keys), list) for keys in self._payload_keys(ids)]
        commands.append(RedisCommand(("HMGET", self._key("retry:cnt"), *ids), list))
        *sizes, counts = self._executor.perform(together(commands))
        return list(map(max, zip(*sizes, strict=True))), list(map(_retries, counts))

    def payloads(self, ids: Sequence[str]) -> dict[str, tuple[str, bytes]]:
        """Read the existing payloads by id, each with its key."""
        found: dict[str, tuple[str, bytes]] = {}
        for keys in self._payload_keys(ids):
            for id, key, payload in zip(ids, keys, self._run("MGET", *keys), strict=True):
                if payload is not None:
                    found.setdefault(id, (key, payload))
        return found

    def remove(self, structure: str, entries: Sequence[Entry], keys: Sequence[str], *, depth: int) -> str:
        """Remove entries that have not changed since they were read, with their payloads and retry counts.

        Returns a status each: 1 removed, 2 not removed because a Go worker has leased it, 0 no longer there. An entry
        of a list must be among the last `depth`.
        """
        all_keys = [self._key(name) for name in (structure, "unack", "retry:cnt")]
        all_keys += [] if self._payloads_apart else keys
        values = [value for entry in entries for value in entry]
        reply: bytes = self._run("EVAL", _REMOVE, len(all_keys), *all_keys, STRUCTURES[structure], depth, *values)
        statuses = reply.decode()
        removed = [key for key, status in zip(keys, statuses, strict=False) if status == "1"]
        if self._payloads_apart and removed:
            self._run("UNLINK", *removed)
        return statuses

    def _key(self, part: str) -> str:
        return f"{self._base}:{part}"

    def _payload_keys(self, ids: Sequence[str]) -> list[list[str]]:
        return [[f"{base}:msg:{id}" for id in ids] for base in self._bases]

    def _run(self, *command: Argument) -> Any:
        return self._executor.call(RedisCommand(command, lambda reply: reply))


def _scored(reply: list[Any]) -> list[Entry]:
    """Return ids with their scores; in RESP3, the reply has pairs with floats."""
    if reply and isinstance(reply[0], list):
        return [Entry(id, repr(score)) for id, score in reply]
    return [Entry(id, score.decode()) for id, score in zip(reply[::2], reply[1::2], strict=True)]


def _retries(count: bytes | None) -> int:
    """Return a number of retries that is valid in delayq; anything but a number is 0, as in the Go library."""
    try:
        return min(max(int(count or 0), 0), MAX_RETRIES)
    except ValueError:
        return 0
