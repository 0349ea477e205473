"""The dead letter: what could not be processed, with payload and reason, until it is redriven, purged or trimmed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from delayq.config import check_retries
from delayq.errors import ConfigurationError, shown
from delayq.inspector import MOST_ROWS, Inspector, MessageInfo, Page
from delayq.keys import check_id
from delayq.message import Tools
from delayq.operation import Operation
from delayq.states import State
from delayq.twins import twin
from delayq.values import Call

R = TypeVar("R")

SLICE = 100
"""Entries redriven or purged in one call: they carry their payloads."""

_ENTRY = re.compile(r"(.+):[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Redriven:
    """What a redrive did, in entries."""

    redriven: int
    exists: int
    """Left where they are, since a message of their id lives."""


@dataclass(frozen=True, slots=True)
class _Which:
    """Which entries are meant: one by id or entry, those that match, or all."""

    id: str | None
    reason: str | None
    error: str | None

    def fits(self, message: MessageInfo) -> bool:
        return (self.reason or "") in message.reason and (self.error or "") in message.error


def _which(id: str | None, reason: str | None, error: str | None, *, everything: bool) -> _Which:
    if not isinstance(everything, bool):
        raise ConfigurationError(f"everything must be True or False, not {shown(everything)}")
    if sum((id is not None, reason is not None or error is not None, everything)) != 1:
        raise ConfigurationError("say which: an id or entry, a reason or error to match, or everything=True")
    for text in (reason, error):
        if text is not None and (not isinstance(text, str) or not text):
            raise ConfigurationError(f"reason and error must be text to look for, not {shown(text)}")
    if id is not None:
        entry = _ENTRY.fullmatch(id) if isinstance(id, str) else None
        check_id(entry[1] if entry else id)
    return _Which(id, reason, error)


class _DeadLetter:
    """The operations behind both faces."""

    def __init__(self, tools: Tools, perform: Any) -> None:
        """Work on the dead letter of the queue of `tools`, whose face carries operations out with `perform`."""
        self._tools = tools
        self._inspector = Inspector(tools)
        self._perform = perform

    def _list(self, limit: int, cursor: str | None) -> Operation[Page]:
        return self._inspector.page(State.DEAD, limit=limit, cursor=cursor)

    def _redrive(self, which: _Which, retries: int | None) -> Operation[Redriven]:
        if retries is not None:
            check_retries(retries)
        digits = yield from self._each(which, lambda entries: self._tools.calls.redrive(entries, retries=retries))
        return Redriven(digits.count("1"), digits.count("2"))

    def _purge(self, which: _Which) -> Operation[int]:
        digits = yield from self._each(which, self._tools.calls.dead_purge)
        return digits.count("1")

    def _each(self, which: _Which, call: Callable[[list[str]], Call[str]]) -> Operation[str]:
        """Run a call over the entries meant, a slice at a time; returns a digit for each."""
        if which.id is not None:
            digits, *_ = yield [call([which.id]), *self._tools.confirming]
            if digits != "0":
                return str(digits)
            # Not an entry; then an id, of which the last death is meant.
            (found,) = yield [self._tools.calls.get(which.id)]
            if found is None or not found.entry:
                return ""
            digits, *_ = yield [call([found.entry]), *self._tools.confirming]
            return str(digits)
        done = []
        (counted,) = yield [self._tools.calls.counts()]
        cursor: str | None = None
        while True:
            page = yield from self._inspector.page(State.DEAD, limit=MOST_ROWS, cursor=cursor, preview=0)
            # What dies from now on is not meant: a message redriven into the same failure would never end.
            meant = [
                message.entry
                for message in page.messages
                if message.entry
                and message.died
                and message.died.timestamp() * 1000 <= counted.now
                and which.fits(message)
            ]
            for part in _parts(meant):
                digits, *_ = yield [call(part), *self._tools.confirming]
                done.append(digits)
            cursor = page.cursor
            if cursor is None:
                return "".join(done)


def _parts(entries: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(entries), SLICE):
        yield entries[first : first + SLICE]


class _Perform(Protocol):
    def __call__(self, operation: Operation[R], /) -> R: ...


class _AsyncPerform(Protocol):
    async def __call__(self, operation: Operation[R], /) -> R: ...


class DeadLetter(_DeadLetter):
    """The dead letter of a `DelayQueue`, as `queue.dead`."""

    _perform: _Perform

    def list(self, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Read a page of entries, oldest first; give its cursor back for the next one. Touches nothing."""
        return self._perform(self._list(limit, cursor))

    def redrive(
        self,
        id: str | None = None,
        *,
        reason: str | None = None,
        error: str | None = None,
        everything: bool = False,
        retries: int | None = None,
    ) -> Redriven:
        """Send dead messages again, due at once, with fresh retries (as sent, or `retries`).

        Say which: one by its id (the last death) or entry, those whose reason and error contain a text, or
        `everything=True`. Works in slices; each slice is atomic. An entry whose id lives stays where it is.
        """
        return self._perform(self._redrive(_which(id, reason, error, everything=everything), retries))

    def purge(
        self,
        id: str | None = None,
        *,
        reason: str | None = None,
        error: str | None = None,
        everything: bool = False,
    ) -> int:
        """Delete dead messages, chosen as in `redrive`; returns how many."""
        return self._perform(self._purge(_which(id, reason, error, everything=everything)))


class AsyncDeadLetter(_DeadLetter):
    """The dead letter of an `AsyncDelayQueue`; see `DeadLetter`."""

    _perform: _AsyncPerform

    @twin(DeadLetter.list)
    async def list(self, *, limit: int = 100, cursor: str | None = None) -> Page:
        return await self._perform(self._list(limit, cursor))

    @twin(DeadLetter.redrive)
    async def redrive(
        self,
        id: str | None = None,
        *,
        reason: str | None = None,
        error: str | None = None,
        everything: bool = False,
        retries: int | None = None,
    ) -> Redriven:
        return await self._perform(self._redrive(_which(id, reason, error, everything=everything), retries))

    @twin(DeadLetter.purge)
    async def purge(
        self,
        id: str | None = None,
        *,
        reason: str | None = None,
        error: str | None = None,
        everything: bool = False,
    ) -> int:
        return await self._perform(self._purge(_which(id, reason, error, everything=everything)))
