"""How far an archive is: in its facts, and in Redis, which keeps the log for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Self
from uuid import uuid4

from delayq.archive.archive_folder import Folder
from delayq.archive.log_follower import Offset
from delayq.broker.keys import Keys
from delayq.broker.replies import pairs
from delayq.broker.requests import RedisCommand


class Position(NamedTuple):
    """How far an archive is: the last batch whose files it has, and the one that is being written."""

    query: str
    """Names the files, with the number of their batch; another one after a roll-back of the log."""
    batch: int
    """The number of the last batch; -1 before the first."""
    at: Offset
    """The end of the last batch."""
    to: Offset | None = None
    """The end of the next batch, if its files may be there in part: they are written again, up to the same end."""

    @classmethod
    def new(cls, at: Offset) -> Self:
        """Return the position of an archive that begins after an offset."""
        return cls(str(uuid4()), -1, at)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self | None:
        """Return the position in the facts of an archive, if it is there."""
        stored = facts.get("position")
        return None if stored is None else cls(**stored)


def position_of_spark(checkpoint: str, begin: Offset) -> Position | None:
    """Return how far an archive was that an older delayq wrote with Spark, by its checkpoint; None without one.

    `begin` is where it began: Spark does not store that.
    """
    folder = Folder.open(checkpoint)
    if folder is None or not folder.has("metadata"):
        return None
    numbers = {name: folder.numbers(name) for name in ("offsets", "commits")}
    ends = {number: json.loads(folder.text(f"offsets/{number}").splitlines()[-1]) for number in numbers["offsets"][-2:]}
    query, last = json.loads(folder.text("metadata"))["id"], max(numbers["commits"], default=-1)
    if last >= 0 and last not in ends:
        ends[last] = json.loads(folder.text(f"offsets/{last}").splitlines()[-1])
    position = Position(query, last, ends.get(last, begin), ends.get(last + 1))
    return position._replace(to=None) if position.to == position.at else position


class ArchivePosition(NamedTuple):
    """The progress of an archive, as Redis has it: the last offset it holds, and its path."""

    offset: int
    path: str


def archives(keys: Keys) -> RedisCommand[dict[str, ArchivePosition]]:
    """Read the progress of every archive of the event log, by its query."""
    return RedisCommand(("HGETALL", keys.archives), _read_positions)


def _read_positions(reply: Any) -> dict[str, ArchivePosition]:
    stored = {query.decode(): position.decode().partition(" ") for query, position in pairs(reply).items()}
    return {query: ArchivePosition(int(offset), path) for query, (offset, _, path) in stored.items()}
