"""The base of the calls of a delay queue: how the call of a script is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from delayq.broker.keys import Keys
from delayq.broker.requests import Argument, ScriptCall
from delayq.broker.scripts import Script, read_all, script

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScriptCalls:
    """Builds the calls of one queue. `clock` overrides the server's time (ms since 1970) in tests and the test kit."""

    keys: Keys
    clock: Callable[[], int] | None = None
    _known: dict[str, tuple[Script, tuple[str, ...]]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the scripts now: their files may be replaced, or be gone, when a call is made."""
        read_all("")

    @property
    def _now(self) -> Argument:
        return "" if self.clock is None else self.clock()

    def _call(self, name: str, args: Sequence[Argument], parse: Callable[[Any], T]) -> ScriptCall[T]:
        known = self._known.get(name)
        if known is None:
            found = script(name)
            known = self._known[name] = (found, tuple(getattr(self.keys, part) for part in found.parts))
        return ScriptCall(known[0], known[1], args, parse)
