"""The dead letter of a stream queue: a stream itself, of what could not be processed, with payload and reason."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from delayq.clock import moment
from delayq.config import check_retries, whole
from delayq.dead_letter import SLICE, Redriven, _AsyncPerform, _Perform
from delayq.errors import ConfigurationError, DelayqError, shown
from delayq.inspector import MOST_ROWS
from delayq.message import Tools
from delayq.operation import Operation
from delayq.streams.answers import read_number
from delayq.streams.calls import StreamCalls
from delayq.streams.keys import ENTRY
from delayq.twins import twin

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message of the dead letter. Its `repr` leaves payload and headers out, which may be private."""

    entry: str
    """What it is called in the dead letter."""
    id: str
    payload: Any = field(repr=False)
    """The decoded payload; the raw bytes if they are undecodable."""
    headers: dict[str, str] = field(repr=False)
    attempts: int
    reason: str
    error: str
    """Its last error; empty if there was none."""
    died: datetime


@dataclass(frozen=True, slots=True)
class DeadPage:
    """A page of the dead letter."""

    messages: list[DeadMessage]
    cursor: str | None
    """What the next page is asked for with; None at the end."""


class _DeadLetter:
    """The operations behind both faces."""

    def __init__(self, tools: Tools, calls: StreamCalls, perform: Any) -> None:
        """Work on the dead letter of the queue of `tools`, whose face carries operations out with `perform`."""
        self._tools = tools
        self._calls = calls
        self._perform = perform

    def _list(self, limit: int, cursor: str | None) -> Operation[DeadPage]:
        first = "-" if cursor is None else f"({_checked(cursor, 'cursor')}"
        whole(limit, "limit", 1, MOST_ROWS)
        (rows,) = yield [self._calls.dead(first, "+", limit=limit)]
        return DeadPage([self._message(*row) for row in rows], rows[-1][0] if len(rows) == limit else None)

    def _message(self, entry: str, fields: dict[bytes, bytes]) -> DeadMessage:
        def text(name: bytes) -> str:
            return fields.get(name, b"").decode("utf-8", "replace")

        payload: Any = fields.get(b"payload", b"")
        headers: dict[str, str] = {}
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # others may have written anything there
            headers = _decode_headers(fields.get(b"headers", b"{}"))
        with suppress(DelayqError):  # which may be what it died of
            payload = self._tools.decode(payload)
        return DeadMessage(
            entry,
            text(b"id"),
            payload,
            headers,
            read_number(fields, b"attempts", 0),
            text(b"reason"),
            text(b"error"),
            moment(int(entry.partition("-")[0])),
        )

    def _redrive(self, entry: str | None, *, everything: bool, retries: int | None) -> Operation[Redriven]:
        if retries is not None:
            check_retries(retries)
        done: list[str] = yield from self._each(
            entry, everything, lambda entries: self._calls.redrive(entries, retries=retries)
        )
        digits = "".join(done)
        return Redriven(digits.count("1"), digits.count("2"))

    def _purge(self, entry: str | None, *, everything: bool) -> Operation[int]:
        done: list[int] = yield from self._each(entry, everything, self._calls.dead_purge)
        return sum(done)

    def _each(
        self,
        entry: str | None,
        everything: bool,  # noqa: FBT001 - as it was given
        call: Callable[[list[str]], Any],
    ) -> Operation[list[Any]]:
        """Run a call over the entries meant, a slice at a time; what dies from now on is not meant."""
        if (entry is None) == (everything is not True):
            raise ConfigurationError("say which: an entry, or everything=True")
        if entry is not None:
            return (yield [call([_checked(entry, "entry")])])
        answers: list[Any] = []
        (last,) = yield [self._calls.last_dead()]
        first = "-"
        while last:
            (rows,) = yield [self._calls.dead(first, last[0][0], limit=SLICE)]
            if not rows:
                break
            answers += yield [call([row for row, _ in rows])]
            first = f"({rows[-1][0]}"
        return answers


def _checked(entry: str, what: str) -> str:
    if not isinstance(entry, str) or not ENTRY.fullmatch(entry):
        raise ConfigurationError(f"{what} must be an entry of the dead letter, such as 1767225600000-0: {shown(entry)}")
    return entry


class StreamDeadLetter(_DeadLetter):
    """The dead letter of a `StreamQueue`."""

    _perform: _Perform

    def list(self, *, limit: int = 100, cursor: str | None = None) -> DeadPage:
        """Read a page, oldest first; give its cursor back for the next one."""
        return self._perform(self._list(limit, cursor))

    def redrive(self, entry: str | None = None, *, everything: bool = False, retries: int | None = None) -> Redriven:
        """Send an entry, or everything, to the stream again, with as many retries as at first or with `retries`.

        A message whose own id lives in the stream stays where it is.
        """
        return self._perform(self._redrive(entry, everything=everything, retries=retries))

    def purge(self, entry: str | None = None, *, everything: bool = False) -> int:
        """Delete an entry, or everything; returns how many."""
        return self._perform(self._purge(entry, everything=everything))


class AsyncStreamDeadLetter(_DeadLetter):
    """The dead letter of an `AsyncStreamQueue`."""

    _perform: _AsyncPerform

    @twin(StreamDeadLetter.list)
    async def list(self, *, limit: int = 100, cursor: str | None = None) -> DeadPage:
        return await self._perform(self._list(limit, cursor))

    @twin(StreamDeadLetter.redrive)
    async def redrive(
        self, entry: str | None = None, *, everything: bool = False, retries: int | None = None
    ) -> Redriven:
        return await self._perform(self._redrive(entry, everything=everything, retries=retries))

    @twin(StreamDeadLetter.purge)
    async def purge(self, entry: str | None = None, *, everything: bool = False) -> int:
        return await self._perform(self._purge(entry, everything=everything))
