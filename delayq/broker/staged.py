"""What a reader of batches has claimed and not committed yet: its calls, and how they are stored.

A reader is a checkpoint of Spark. It claims messages under rising numbers, up to `MAX_STAGED` each, and a batch is a
range of numbers. What is stored under a number does not change until the number is committed, so a batch can be read
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, compress, pairwise
from typing import Any, NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.replies import integers, pairs
from delayq.broker.requests import Receipt, RedisCommand, ScriptCall
from delayq.broker.scripts import MAX_SETTLED

MAX_STAGED = MAX_SETTLED
"""Messages under one number: they are acknowledged by one call."""
_CELLS = 8


class StageReply(NamedTuple):
    """The result of a call that stages messages; `now` in ms."""

    number: int
    """The last number of the reader; -1 if another run of it has begun, so that nothing was claimed."""
    staged: int
    """Messages that this call has claimed."""
    left: int
    """What else waits to be claimed."""
    now: int
    unsure: int = 0
    """Messages claimed by it that may not start now: they expire, have hours, or join a group."""


class CommitReply(NamedTuple):
    """The result of the commit of one number."""

    acked: int
    """Messages acknowledged by it; -1 if another run of the reader has begun, so that nothing was changed."""
    late: int
    """Messages whose lease had expired, and that were claimed again since."""
    more: int
    """1 if the number is to be committed by another call."""


class ReaderState(NamedTuple):
    """How far a reader is: the first number that is not committed, the last one, and when it was last heard of (ms)."""

    first: int
    last: int
    heard: int
    lease: int
    """How long (ms) its claims last."""
    run: str = ""
    """Its latest run."""

    @classmethod
    def read(cls, text: bytes | None, run: bytes | None = None) -> ReaderState:
        """Parse what is stored; a reader that has staged nothing yet has no numbers."""
        words = (text or b"").split()
        if len(words) != len(cls._fields) - 1 or not all(word.isdigit() for word in words):
            words = [b"1", b"0", b"0", b"0"]
        first, last, heard, lease = map(int, words)
        return cls(first, last, heard, lease, (run or b"").decode("utf-8", "replace"))


class StagedMessages(NamedTuple):
    """The messages under one number, by columns; times in ms since 1970."""

    number: int
    ids: list[bytes]
    tokens: list[int]
    dues: list[int]
    attempts: list[int]
    retries: list[int]
    payloads: list[bytes]
    headers: list[bytes]
    attributes: list[bytes]
    withheld: int = 0
    """Rows that were left out."""

    @classmethod
    def read(cls, number: int, ids: bytes, texts: bytes, withheld: bytes | None) -> StagedMessages:
        """Parse what `stage` has stored under a number, without the rows that `withhold` names."""
        names, (tokens, dues, attempts, retries, *sizes) = _read_ids(ids)
        found = _cut(texts, chain.from_iterable(zip(*sizes, strict=True)))
        columns: Any = names, tokens, dues, attempts, retries, found[::3], found[1::3], found[2::3]
        left_out = {*map(int, (withheld or b"").split())}
        if left_out:
            kept = [row not in left_out for row in range(len(names))]
            columns = [[*compress(column, kept)] for column in columns]
        return cls(number, *columns)._replace(withheld=len(left_out))


def _read_ids(stored: bytes) -> tuple[list[bytes], list[list[int]]]:
    """Return the ids under a number, and the columns of numbers: from their tokens to the sizes of their texts."""
    lines, _, names = stored.partition(b"\n\n")
    cells = [*map(int, lines.split())]
    sizes, *columns = (cells[at::_CELLS] for at in range(_CELLS))
    return _cut(names, sizes), columns


def _cut(text: bytes, sizes: Iterable[int]) -> list[bytes]:
    return [text[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]


def stage_call(
    calls: Calls, wanted: int, *, lease: int, consumer_id: str, reader: str, run: str, after: int
) -> ScriptCall[StageReply]:
    """Claim up to `wanted` messages under a lease (ms), and store them under a number higher than `after`."""
    args = [calls.now, wanted, lease, consumer_id, reader, run, after]
    return calls.script("stage", args, lambda reply: StageReply(*integers(reply)))


def commit_staged_call(calls: Calls, number: int, *, reader: str, run: str) -> ScriptCall[CommitReply]:
    """Acknowledge what is staged under a number and still leased, and delete the number."""
    args = [calls.now, reader, run, number]
    return calls.script("commit_staged", args, lambda reply: CommitReply(*integers(reply)))


def begin_reading(calls: Calls, reader: str, run: str) -> RedisCommand[Any]:
    """Begin a run of a reader; from now on calls of its runs before change nothing."""
    return RedisCommand(("HSET", calls.keys.readers, f"{reader} run", run), int)


def read_reader(calls: Calls, reader: str) -> RedisCommand[ReaderState]:
    """Read how far a reader is."""
    return RedisCommand(("HMGET", calls.keys.readers, reader, f"{reader} run"), lambda reply: ReaderState.read(*reply))


def read_readers(calls: Calls) -> RedisCommand[dict[str, ReaderState]]:
    """Read how far all readers are."""
    return RedisCommand(("HGETALL", calls.keys.readers), _read_all)


def _read_all(reply: Any) -> dict[str, ReaderState]:
    found = {name.decode("utf-8", "replace"): text for name, text in pairs(reply).items()}
    return {name: ReaderState.read(text) for name, text in found.items() if " " not in name}


def read_staged(calls: Calls, reader: str, numbers: Sequence[int]) -> RedisCommand[list[StagedMessages]]:
    """Read what is staged under these numbers; those without anything are left out."""

    def read(reply: list[bytes | None]) -> list[StagedMessages]:
        rows = zip(numbers, reply[::3], reply[1::3], reply[2::3], strict=True)
        return [StagedMessages.read(n, ids, texts, left) for n, ids, texts, left in rows if ids and texts is not None]

    return RedisCommand(("HMGET", calls.keys.staged, *_fields(reader, numbers)), read)


def read_receipts(calls: Calls, reader: str, numbers: Sequence[int]) -> RedisCommand[list[Receipt]]:
    """Read the receipts of what is staged under these numbers."""

    def read(reply: list[bytes | None]) -> list[Receipt]:
        receipts = []
        for ids, columns in map(_read_ids, filter(None, reply)):
            names = [id.decode("utf-8", "surrogateescape") for id in ids]
            receipts += [*map(Receipt, names, columns[0])]
        return receipts

    return RedisCommand(("HMGET", calls.keys.staged, *(f"{reader} {number}" for number in numbers)), read)


def withhold(calls: Calls, reader: str, number: int, rows: Iterable[int]) -> RedisCommand[Any]:
    """Leave rows, by their positions, out of what is read under a number that no batch has yet."""
    return RedisCommand(("HSET", calls.keys.staged, f"{reader} {number} withheld", " ".join(map(str, rows))), int)


def forget_reader(calls: Calls, reader: str, numbers: Sequence[int]) -> list[RedisCommand[Any]]:
    """Delete a reader, and what it has staged under these numbers."""
    pages = [numbers[at : at + 100] for at in range(0, len(numbers), 100)]
    deletions = [("HDEL", calls.keys.staged, *_fields(reader, page)) for page in pages]
    return [RedisCommand(words, int) for words in (*deletions, ("HDEL", calls.keys.readers, reader, f"{reader} run"))]


def _fields(reader: str, numbers: Iterable[int]) -> list[str]:
    return [f"{reader} {number}{what}" for number in numbers for what in ("", " texts", " withheld")]
