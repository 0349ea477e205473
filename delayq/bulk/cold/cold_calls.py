"""The calls that move messages to the cold tier and back, and how their replies are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from delayq.broker.calls import Calls
from delayq.broker.foreign import shown_id, stored_id
from delayq.broker.replies import statuses
from delayq.broker.requests import RedisCommand, ScriptCall, flat
from delayq.broker.transport.operation import Operation

REFUSED = "-"
"""The reply for messages that are not taken out of the queue, and for a file of which all is noted."""
BACK, EXISTS, SETTLED, WITHDRAWN = "1056"
"""The statuses of messages that were to come back."""
_PAGE = 1000
_CHANGE = re.compile(r"(-|\d{1,15}) (\d{1,15})\b")


class ColdRow(NamedTuple):
    """A message as it is stored; its due time in milliseconds since 1970."""

    id: str
    due: int
    retries: int
    payload: bytes
    headers: bytes
    attributes: bytes

    @property
    def text(self) -> bytes:
        """All but the id and the due time, as `spill` compares it."""
        return b"\n".join([b"%d" % self.retries, self.headers, self.attributes, self.payload])


class ColdChange(NamedTuple):
    """What was noted of a message that may be cold."""

    due: int | None
    """Its new due time (ms); None if it was withdrawn, so that it does not come back."""
    at: int
    """When that was noted (ms)."""
    is_done: bool
    """Whether it was brought back before its file, or left out then: its place in the file says nothing."""

    @classmethod
    def read(cls, stored: bytes | None) -> Self | None:
        """Parse what is stored; None for nothing, and for what another program has written."""
        text = (stored or b"").decode("utf-8", "replace")
        found = _CHANGE.match(text)
        if found is None:
            return None
        due, at = found.groups()
        return cls(None if due == "-" else int(due), int(at), text.endswith(" done"))


def spill_call(
    calls: Calls, folder: str, file: str, rows: Sequence[ColdRow], *, first: int, oldest: int
) -> ScriptCall[str]:
    """Take messages out of the queue that a file has, unless they have changed since `oldest` (ms).

    A status each: 1 moved, 0 stays; of the first ones only, if they are large. `-` if the file was given up.
    """
    cells = flat((row.id, row.due, row.text) for row in rows)
    return calls.script("spill", [calls.now, folder, file, first, oldest, *cells], statuses)


def file_spilled_call(calls: Calls, file: str, moved: str, days: Mapping[str, int]) -> ScriptCall[str]:
    """Note the files by day that a spilled file was divided into, and how many messages each has.

    They are noted if the statuses of its messages, which it returns, are still `moved`. `-` if they were noted before,
    `void …` if the file was given up.
    """
    return calls.script("file_spilled", [calls.now, file, moved, *flat(days.items())], statuses)


def give_up_call(calls: Calls, file: str) -> ScriptCall[str]:
    """Give a file up, unless messages have been moved to it: returns a status for each of these, else `void …`."""
    return file_spilled_call(calls, file, "", {})


def merge_files_call(calls: Calls, file: str, rows: int, old: Iterable[str]) -> ScriptCall[int]:
    """Let one file by day count in place of others; returns 1, or 0 if they are not as they were any more."""
    return calls.script("merge_files", [file, rows, *old], int)


def restore_call(calls: Calls, file: str, rows: Sequence[ColdRow], *, first: int) -> ScriptCall[str]:
    """Bring messages of a file back, of which `first` are back; without a file, those that were rescheduled.

    A status each: 1 back, 0 exists, 5 settled, 6 withdrawn, - not rescheduled, or back before its file. If another
    number of its messages is back, `@` and this number; `@` alone if the file is not in the tier.
    """
    return calls.script("restore", [calls.now, file, first, *flat(rows)], statuses)


def drop_changes_call(calls: Calls, latest: int, ids: Iterable[str]) -> ScriptCall[int]:
    """Delete what was noted of messages until a time (ms); returns how many were deleted."""
    return calls.script("drop_changes", [latest, *ids], int)


def set_calls(calls: Calls, **fields: int | str) -> RedisCommand[int]:
    """Note how the tier is used: `keep`, `passed` and `where` of `ColdTier`."""
    return RedisCommand(("HSET", calls.keys.cold, *map(str, flat(fields.items()))), int)


def forget_calls(calls: Calls, kind: str, names: Iterable[str]) -> list[RedisCommand[int]]:
    """Delete what is known of files that are `back`, or of `moved` ones that were given up."""
    return [RedisCommand(("HDEL", calls.keys.cold, f"{kind} {name}"), int) for name in names]


def read_change(calls: Calls, id: str) -> RedisCommand[ColdChange | None]:
    """Read what was noted of a message; None if nothing was."""
    return RedisCommand(("HGET", calls.keys.cold_changes, stored_id(id)), ColdChange.read)


def read_changes(calls: Calls) -> Operation[dict[str, ColdChange]]:
    """Read what was noted of messages that may be cold, by id."""
    changes: dict[str, ColdChange] = {}
    cursor = b"0"
    while True:
        words = ("HSCAN", calls.keys.cold_changes, cursor, "COUNT", _PAGE)
        (reply,) = yield [RedisCommand(words, lambda reply: reply)]
        cursor, cells = reply
        noted = ((shown_id(id), ColdChange.read(value)) for id, value in _pairs(cells))
        changes |= {id: change for id, change in noted if change is not None}
        if cursor == b"0":
            return changes


def _pairs(cells: Any) -> Iterable[tuple[bytes, bytes]]:
    return cells.items() if isinstance(cells, dict) else zip(cells[::2], cells[1::2], strict=True)
