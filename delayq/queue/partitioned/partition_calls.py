"""The calls of a partition: those that place or look for an id say since which epoch they know where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from delayq.broker.calls import Calls
from delayq.broker.requests import Argument, ScriptCall
from delayq.broker.scripts import GUARDED, script

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionCalls(Calls):
    """Builds the calls of one partition.

    A script of `GUARDED` raises `EpochError` if the number of partitions has changed: read the layout again, and make
    the call again for the partition that it is for then. A call whose reply was lost is not refused if it was executed.
    """

    epoch: Callable[[], int] = lambda: 0
    """Returns the epoch of the layout that this process knows."""

    def script(self, name: str, args: Sequence[Argument], parse: Callable[[Any], T]) -> ScriptCall[T]:
        """Return the call of a script on the keys of the partition."""
        if name not in GUARDED:
            return Calls.script(self, name, args, parse)
        known = self._known.get(name)
        if known is None:
            found = script(name).guarded()
            known = self._known[name] = (found, tuple(getattr(self.keys, part) for part in found.parts))
        return ScriptCall(known[0], known[1], [*args, self.epoch()], parse)
