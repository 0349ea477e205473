"""The structures of a queue of the Go library, `hdt3213/delayqueue`: read page by page, and ids taken out of them.

A message is an id in one of `pending`, `ready`, `retry`, `unack` and `garbage`, its payload a key of its own that lives
for a time, and its retries left a field of `retry:cnt`. Scores are seconds since 1970.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from delayq.config import MOST_RETRIES
from delayq.executor import Executor
from delayq.values import Command

T = TypeVar("T")

PREFIX = "dp"
"""What the keys begin with, unless `UseCustomPrefix` says otherwise."""
PAGE = 500
"""Ids that are read together, and taken out in one call."""
PLACES = {"pending": "zset", "ready": "list", "retry": "list", "unack": "zset", "garbage": "set"}
"""The structures that hold ids, in the order in which the Go library moves a message through them."""
KEEP = "keep"
"""In place of a score: an id is not to be taken out of a list, but put at its other end, out of the way."""

_COUNTING = {"zset": "ZCARD", "list": "LLEN", "set": "SCARD"}

# KEYS: the place, unack zset, retry:cnt hash, then the payload of each id; no payloads if they are on another node.
# ARGV: the type of the place, entries from the tail of a list among which an id stands, then of each id: id, and the
#   score it was read with ('' in a list or set, or KEEP)
# Returns: a digit an id: 1 taken out, 2 not, since a Go worker holds it, 0 not there any more
# Re-run: answers 0 for what it took out.
_TAKE = """
local place, unack, counts = KEYS[1], KEYS[2], KEYS[3]
local kind, reach = ARGV[1], ARGV[2]
local answers = {}
for i = 3, #ARGV, 2 do
  local id, seen, n, taken = ARGV[i], ARGV[i + 1], #answers + 1, false
  if kind == 'zset' then
    local score = redis.call('ZSCORE', place, id)
    taken = score and tonumber(score) == tonumber(seen) and redis.call('ZREM', place, id) == 1
  elseif kind == 'set' then
    taken = redis.call('SREM', place, id) == 1
  elseif redis.call('LPOS', place, id, 'RANK', -1, 'MAXLEN', reach) then
    taken = redis.call('LREM', place, -1, id) == 1
  end
  if taken and seen == 'keep' then
    redis.call('LPUSH', place, id)
  elseif taken then
    redis.call('HDEL', counts, id)
    if KEYS[3 + n] then redis.call('UNLINK', KEYS[3 + n]) end
  end
  answers[n] = taken and '1' or redis.call('ZSCORE', unack, id) and '2' or '0'
end
return table.concat(answers)
"""

# KEYS: payloads. Returns: the bytes of each, 0 also for none. One command, not one a payload: it halves the work.
_MEASURE = """
local sizes = {}
for n, key in ipairs(KEYS) do sizes[n] = tonumber(redis.pcall('STRLEN', key)) or 0 end
return sizes
"""


class Entry(NamedTuple):
    """An id in a place, and the score it has there; '' where there are none."""

    id: bytes
    score: str = ""


class GoQueue:
    """A queue of the Go library."""

    def __init__(self, executor: Executor, name: str, prefix: str, *, tagged: bool) -> None:
        """Name the keys: with a hash tag, as on a cluster and with `UseHashTagKey`, or without."""
        self._executor = executor
        bases = [f"{first}:{name}" for first in dict.fromkeys((prefix, PREFIX))]
        self._base, *_ = self._bases = [f"{{{base}}}" if tagged else base for base in bases]
        # With `UseCustomPrefix` payloads are under the usual prefix all the same: in a cluster, on another node.
        self._apart = tagged and len(bases) > 1

    def count(self) -> Counter[str]:
        """Count the ids in each place that holds any."""
        return +Counter(dict(zip(PLACES, self._run([self._length(place) for place in PLACES]), strict=True)))

    def length(self, place: str) -> int:
        """Count the ids in one place."""
        return self._executor.call(self._length(place))

    def leased(self, after: int) -> int:
        """Count the leases, and the waits after a failure, that end after a time (seconds since 1970)."""
        return self._executor.call(Command(("ZCOUNT", self._key("unack"), f"({after}", "+inf"), int))

    def page(self, place: str, offset: int, limit: int) -> list[Entry]:
        """Read a page of a zset from its beginning, or of a list from its tail, where the next to be delivered are."""
        key = self._key(place)
        if PLACES[place] == "zset":
            return self._executor.call(Command(("ZRANGE", key, offset, offset + limit - 1, "WITHSCORES"), _scored))
        tail: Command[list[bytes]] = Command(("LRANGE", key, -offset - limit, -offset - 1), list)
        ids = self._executor.call(tail)
        return [Entry(id) for id in reversed(ids)]

    def standing(self, place: str, entries: Sequence[Entry]) -> int:
        """Count the entries of a zset that stand there as they were read."""
        reading: Command[list[Any]] = Command(("ZMSCORE", self._key(place), *(entry.id for entry in entries)), list)
        scores = self._executor.call(reading)
        return sum(
            score is not None and float(score) == float(entry.score)
            for score, entry in zip(scores, entries, strict=True)
        )

    def scan(self, place: str) -> Iterator[list[Entry]]:
        """Read a set page by page."""
        cursor = b"0"
        while True:
            scanning: Command[list[Any]] = Command(("SSCAN", self._key(place), cursor, "COUNT", PAGE), list)
            cursor, ids = self._executor.call(scanning)
            yield [Entry(id) for id in ids]
            if cursor == b"0":
                return

    def measure(self, ids: Sequence[str]) -> tuple[list[int], list[int]]:
        """Read the bytes of each payload, 0 also where there is none, and the retries left of each message."""
        sizing = [Command(("EVAL", _MEASURE, len(ids), *keys), list) for keys in self._payload_keys(ids)]
        *sizes, counts = self._run([*sizing, Command(("HMGET", self._key("retry:cnt"), *ids), list)])
        return list(map(max, zip(*sizes, strict=True))), list(map(_retries, counts))

    def payloads(self, ids: Sequence[str]) -> dict[str, tuple[str, bytes]]:
        """Read the payloads of those that have one, each with its key."""
        columns = self._payload_keys(ids)
        answers: list[list[bytes | None]] = self._run([Command(("MGET", *keys), list) for keys in columns])
        found: dict[str, tuple[str, bytes]] = {}
        for keys, payloads in zip(columns, answers, strict=True):
            for id, key, payload in zip(ids, keys, payloads, strict=True):
                if payload is not None:
                    found.setdefault(id, (key, payload))
        return found

    def take(self, place: str, entries: Sequence[Entry], keys: Sequence[str], *, reach: int) -> str:
        """Take out entries that stand as they were read, with their payloads and counts.

        Answers a digit each: 1 taken out, 2 not, since a Go worker holds it, 0 not there any more. An entry of a list
        stands among the last `reach`.
        """
        named = [self._key(place), self._key("unack"), self._key("retry:cnt"), *([] if self._apart else keys)]
        rows = [value for entry in entries for value in entry]
        digits = self._executor.call(
            Command(("EVAL", _TAKE, len(named), *named, PLACES[place], reach, *rows), bytes)
        ).decode()
        if self._apart and (taken := [key for key, digit in zip(keys, digits, strict=False) if digit == "1"]):
            self._executor.call(Command(("UNLINK", *taken), int))
        return digits

    def _length(self, place: str) -> Command[int]:
        return Command((_COUNTING[PLACES[place]], self._key(place)), int)

    def _key(self, part: str) -> str:
        return f"{self._base}:{part}"

    def _payload_keys(self, ids: Sequence[str]) -> list[list[str]]:
        return [[f"{base}:msg:{id}" for id in ids] for base in self._bases]

    def _run(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Carry out commands in one round trip; raises the first error."""
        answers = self._executor.run(commands)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers


def _scored(answer: list[Any]) -> list[Entry]:
    """Return ids with their scores, which by Redis' newer protocol are pairs and floats already."""
    if answer and isinstance(answer[0], list):
        return [Entry(id, repr(score)) for id, score in answer]
    return [Entry(id, score.decode()) for id, score in zip(answer[::2], answer[1::2], strict=True)]


def _retries(count: bytes | None) -> int:
    """Return a number of retries that delayq takes; what is no number is 0, as it is to the Go library."""
    try:
        return min(max(int(count or 0), 0), MOST_RETRIES)
    except ValueError:
        return 0
