"""Plain commands that the readers and the archive need besides the engine's calls; each may be carried out again."""

from __future__ import annotations

from typing import Any, NamedTuple

from delayq.answers import offset_of, pairs
from delayq.keys import Keys, registry
from delayq.values import Command


class Log(NamedTuple):
    """How far an event log reaches: the offset of the first entry kept (0 for none) and of the last ever written."""

    first: int
    last: int


class Position(NamedTuple):
    """How far an archive of the event log has come: the last offset it holds, and where it is."""

    offset: int
    path: str


def is_known(keys: Keys, prefix: str, queue: str) -> list[Command[bool]]:
    """Tell whether a queue has been opened under its name, and whether it has contents."""
    return [
        Command(("SISMEMBER", registry(prefix), queue), bool),
        Command(("EXISTS", keys.meta, keys.messages, keys.dead, keys.events), bool),
    ]


def pending_before(keys: Keys, due: int) -> Command[int]:
    """Count the pending messages that are due before a time (ms)."""
    return Command(("ZCOUNT", keys.pending, "-inf", f"({due}"), int)


def pending_at(keys: Keys, rank: int) -> Command[tuple[int, bytes] | None]:
    """Read the due time (ms) and the id of the pending message that so many others go before."""
    return Command(("ZRANGE", keys.pending, rank, rank, "WITHSCORES"), _read_member)


def log(keys: Keys) -> Command[Log]:
    """Read how far the event log reaches; fails with "no such key" if nothing was ever written to it."""
    return Command(("XINFO", "STREAM", keys.events), _read_log)


def log_setting(keys: Keys) -> Command[bool]:
    """Tell whether the event log is on."""
    return Command(("HEXISTS", keys.meta, "events"), bool)


def note_archive(keys: Keys, archive: str, position: Position) -> Command[bool]:
    """Note how far an archive of the event log has come."""
    return Command(("HSET", keys.archives, archive, f"{position.offset} {position.path}"), bool)


def archives(keys: Keys) -> Command[dict[str, Position]]:
    """Read how far every archive of the event log has come."""
    return Command(("HGETALL", keys.archives), _read_positions)


def forget_archive(keys: Keys, archive: str) -> Command[bool]:
    """Forget an archive of the event log; answers whether it was known."""
    return Command(("HDEL", keys.archives, archive), bool)


def _read_member(answer: list[Any]) -> tuple[int, bytes] | None:
    if not answer:
        return None
    member, score = answer[0] if isinstance(answer[0], list) else answer
    return int(float(score)), member


def _read_log(answer: Any) -> Log:
    found = pairs(answer)
    first = found[b"first-entry"]
    return Log(offset_of(first[0]) if first else 0, offset_of(found[b"last-generated-id"]))


def _read_positions(answer: Any) -> dict[str, Position]:
    found = {archive.decode(): position.decode().partition(" ") for archive, position in pairs(answer).items()}
    return {archive: Position(int(offset), path) for archive, (offset, _, path) in found.items()}
