"""The calls of a partition, and those that move what is stored from one to another, in batches of a kind.

A batch leaves its partition in one script and enters the other in one script. In between it is in `moving` of the
first, where no other script sees it. It is stored once, however often it is brought: see `lua/move/lib/batch.lua`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self, TypeVar

from delayq.broker.calls import Calls
from delayq.broker.foreign import stored_id
from delayq.broker.replies import statuses
from delayq.broker.requests import Argument, RedisCommand, ScriptCall, flat
from delayq.broker.scripts import GUARDED, MAX_MOVED, script

T = TypeVar("T")

AT_ONCE = MAX_MOVED
"""Ids, entries or schedules that one call moves at most; fewer if they are large."""


@dataclass(frozen=True, slots=True)
class PartitionCalls(Calls):
    """Builds the calls of one partition.

    A script of `GUARDED` raises `EpochError` if the number of partitions has changed: read the layout again, and make
    the call again for the partition that it is for then. A call whose reply was lost is not refused if it was executed.
    """

    epoch: Callable[[], int] = lambda: 0
    """Returns the epoch of the layout that this process knows."""
    on_close: Callable[[int, int | None], object] = lambda *_: None
    """Is told that a callback closes the queue, or changes its breaker: see `Calls.close`."""

    def close(self, name: str | None, delay: int, *, pause: int | None = None) -> ScriptCall[str]:
        """Close a name or the partition, see `Calls.close`; of the whole queue `on_close` is told."""
        if name is None:
            self.on_close(delay, pause)
        return Calls.close(self, name, delay, pause=pause)

    def script(self, name: str, args: Sequence[Argument], parse: Callable[[Any], T]) -> ScriptCall[T]:
        """Return the call of a script on the keys of the partition."""
        if name not in GUARDED:
            return Calls.script(self, name, args, parse)
        known = self._known.get(name)
        if known is None:
            found = script(name).guarded()
            known = self._known[name] = (found, tuple(getattr(self.keys, part) for part in found.parts))
        return ScriptCall(known[0], known[1], [*args, self.epoch()], parse)


class Kind(StrEnum):
    """What a batch holds; its value is the first word of its fields in `moving`."""

    MESSAGES = "messages"
    """All of some ids: messages, reserved ids and results."""
    DEATHS = "deaths"
    """Entries of the dead letter."""
    SCHEDULES = "schedules"


MOVES, LEASED = "1", "2"
"""Statuses of what was to move; 0 for what is not there."""


class SentOff(NamedTuple):
    """The reply of a script that packs a batch."""

    statuses: str
    """Of the first of what was asked for, see the script."""
    numbers: list[int]
    """Of all batches that are on the same way, those to arrive first before the others."""

    @classmethod
    def read(cls, reply: bytes) -> Self:
        """Parse the reply."""
        found, _, numbers = reply.decode().partition(" ")
        return cls(found, [int(number) for number in numbers.split()])


def move_out_call(calls: Calls, target: str, ids: Iterable[str | bytes]) -> ScriptCall[SentOff]:
    """Pack ids, the first ones if they are large; status: 1 moves, 2 leased, 0 nothing of it is here."""
    return calls.script("move_out", [calls.now, target, *_stored(ids)], SentOff.read)


def deaths_out_call(calls: Calls, target: str, entries: Iterable[str | bytes]) -> ScriptCall[SentOff]:
    """Pack entries of the dead letter, the first ones if they are large; status: 1 moves, 0 gone."""
    return calls.script("deaths_out", [calls.now, target, *_stored(entries)], SentOff.read)


def schedules_out_call(calls: Calls, target: str, names: Iterable[str | bytes]) -> ScriptCall[SentOff]:
    """Pack schedules, the first ones if they are large; status: 1 moves, 0 no such schedule."""
    return calls.script("schedules_out", [calls.now, target, *_stored(names)], SentOff.read)


def _stored(names: Iterable[str | bytes]) -> list[str | bytes]:
    return [stored_id(name) if isinstance(name, str) else name for name in names]


def read_call(calls: Calls, kind: Kind, target: str, number: int) -> RedisCommand[bytes | None]:
    """Read a batch; None if it has arrived."""
    return RedisCommand(("HGET", calls.keys.moving, f"{kind} {target} {number}"), lambda reply: reply)


def move_in_call(calls: Calls, source: str, number: int, batch: bytes) -> ScriptCall[str]:
    """Store a batch of messages, the first of those that are on its way; status: 1 stored, 2 it has arrived before.

    Then a status for each message: 1 stored, 0 one with its id is there, and stays.
    """
    return calls.script("move_in", [calls.now, source, number, batch], statuses)


def deaths_in_call(calls: Calls, source: str, number: int, batch: bytes) -> ScriptCall[str]:
    """Store a batch of the dead letter; status as of `move_in`."""
    return calls.script("deaths_in", [calls.now, source, number, batch], statuses)


def schedules_in_call(calls: Calls, source: str, number: int, batch: bytes) -> ScriptCall[str]:
    """Store a batch of schedules; statuses as of `move_in`."""
    return calls.script("schedules_in", [calls.now, source, number, batch], statuses)


OUT = {Kind.MESSAGES: move_out_call, Kind.DEATHS: deaths_out_call, Kind.SCHEDULES: schedules_out_call}
"""The calls that pack."""
IN = {Kind.MESSAGES: move_in_call, Kind.DEATHS: deaths_in_call, Kind.SCHEDULES: schedules_in_call}
"""The calls that store what was packed."""


def moved_call(calls: Calls, kind: Kind, target: str, number: int) -> ScriptCall[list[int]]:
    """Delete the batches up to a number, which have arrived; returns those that are left on this way."""
    return calls.script("moved", [kind.value, target, number], lambda reply: [int(one) for one in reply.split()[1:]])


def repartition_call(calls: Calls, epoch: int, read: str | None = None, **fields: int | str) -> ScriptCall[bool]:
    """Set the epoch of a partition if its own is lower, or that of a queue if it still is the one that was `read`.

    `fields` of `meta` are set with it; '' deletes one. Returns whether it was changed.
    """
    before = "" if read is None else read or "none"
    return calls.script("repartition", [epoch, before, *flat(fields.items())], lambda reply: reply == 1)


class Way(NamedTuple):
    """Batches of a kind on their way to a partition."""

    kind: Kind
    target: str
    numbers: list[int]


def ways_call(calls: Calls) -> RedisCommand[list[Way]]:
    """Read which batches are on their way from a partition, as one command: without their contents."""
    return RedisCommand(("HKEYS", calls.keys.moving), _read_ways)


def _read_ways(reply: Any) -> list[Way]:
    found: dict[tuple[Kind, str], list[int]] = {}
    for field in reply:
        words = field.decode("utf-8", "replace").split(" ")
        if len(words) == 3 and words[0] in OUT:  # noqa: PLR2004 - kind, target and number
            found.setdefault((Kind(words[0]), words[1]), []).append(int(words[2]))
    return [Way(kind, target, sorted(numbers)) for (kind, target), numbers in found.items()]
