"""The dead letter of a stream queue: a stream of messages that could not be processed, with payload and reason."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from delayq._parity import awaited
from delayq.broker.context import EngineContext
from delayq.broker.transport.operation import Operation, single
from delayq.errors import ConfigurationError, DelayqError, short_repr
from delayq.queue.dead_groups import DeadGroup
from delayq.queue.dead_letter import DeadFilter, Redriven, read_groups, selected
from delayq.queue.inspecting.deaths import BATCH
from delayq.queue.inspecting.inspector import MAX_BYTES, MAX_READ, MAX_ROWS
from delayq.streams.calls import StreamCalls
from delayq.streams.inspector import StreamInspector
from delayq.streams.keys import ENTRY
from delayq.streams.replies import NO_PAYLOAD, read_headers, read_number, read_text
from delayq.values.checks import check_int, check_retries
from delayq.values.states import State
from delayq.values.times import from_millis

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A dead message. Its `repr` leaves out payload and headers, which may be private."""

    entry: str
    """Its entry id in the dead letter."""
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
    """The cursor of the next page; None on the last page."""


class _StreamDeadLetterOperations:
    """The operations of a stream's dead letter."""

    def __init__(self, context: EngineContext, calls: StreamCalls, executor: Any) -> None:
        self._context = context
        self._calls = calls
        self._inspector = StreamInspector(context, calls)
        self._executor = executor

    def _list(self, limit: int, cursor: str | None) -> Operation[DeadPage]:
        after = "" if cursor is None else _check_entry(cursor, "cursor")
        check_int(limit, "limit", 1, MAX_ROWS)
        messages: list[DeadMessage] = []
        size = 0
        while len(messages) < limit and size < MAX_BYTES:  # one call reads a limited number of bytes
            missing = limit - len(messages)
            (listed,) = yield [self._calls.page(State.DEAD, limit=missing, after=after, preview=-1)]
            messages += [self._message(row.entry, row.fields) for row in listed.rows]
            size += sum(row.size for row in listed.rows)
            after = listed.after
            if not after:
                break
        return DeadPage(messages, after or None)

    def _message(self, entry: str, fields: dict[bytes, bytes]) -> DeadMessage:
        payload: Any = fields.get(b"payload", NO_PAYLOAD)
        with suppress(DelayqError):  # this may be why the message died
            payload = self._context.decode(payload)
        id, reason, error = (read_text(fields, name) for name in (b"id", b"reason", b"error"))
        attempts, died = read_number(fields, b"attempts", 0), from_millis(int(entry.partition("-")[0]))
        return DeadMessage(entry, id, payload, read_headers(fields), attempts, reason, error, died)

    def _redrive(self, selection: str | DeadFilter, retries: int | None) -> Operation[Redriven]:
        if retries is not None:
            check_retries(retries)

        def redrive(entries: list[str]) -> Operation[str]:
            statuses = ""
            while len(statuses) < len(entries):  # one call moves a limited number of bytes
                (moved,) = yield [self._calls.redrive(entries[len(statuses) :], retries=retries)]
                statuses += moved
            return statuses

        statuses = "".join((yield from self._each(selection, redrive)))
        return Redriven(statuses.count("1"), statuses.count("2"))

    def _purge(self, selection: str | DeadFilter) -> Operation[int]:
        def purge(entries: list[str]) -> Operation[int]:
            return single(self._calls.dead_purge(entries))

        return sum((yield from self._each(selection, purge)))

    def _each(self, selection: str | DeadFilter, act: Callable[[list[str]], Operation[T]]) -> Operation[list[T]]:
        """Run an operation on the selected entries, batch by batch; messages that die meanwhile are left out."""
        if isinstance(selection, str):
            entry = yield from self._entry_of(selection)
            return [(yield from act([entry]))] if entry else []
        results: list[T] = []
        (last,) = yield [self._calls.last_dead()]
        after = ""
        while last:
            (listed,) = yield [self._calls.page(State.DEAD, limit=BATCH, after=after, preview=0)]
            rows = [row for row in listed.rows if _order(row.entry) <= _order(last)]
            if any(selection):
                rows = [row for row in rows if selection.matches(self._message(row.entry, row.fields))]
            if rows:
                results.append((yield from act([row.entry for row in rows])))
            after = listed.after
            if not after:
                break
        return results

    def _entry_of(self, id: str) -> Operation[str]:
        """Return an entry, or that of the last death of an id; '' for neither."""
        if ENTRY.fullmatch(id):
            ((_, _, row),) = yield [self._calls.get(id, "dead")]
            if row is not None:
                return id
        after = ""
        while True:
            ((entry, after, _),) = yield [self._calls.find(id, "dead", limit=MAX_READ, after=after)]
            if entry or not after:
                return str(entry)


def _order(entry: str) -> tuple[int, ...]:
    return tuple(map(int, entry.split("-")))


def _check_entry(entry: str, what: str) -> str:
    if not isinstance(entry, str) or not ENTRY.fullmatch(entry):
        raise ConfigurationError(
            f"{what} must be an entry of the dead letter, such as 1767225600000-0, not {short_repr(entry)}"
        )
    return entry


class StreamDeadLetter(_StreamDeadLetterOperations):
    """The dead letter of a `StreamQueue`."""

    _executor: Executor

    def list(self, *, limit: int = 100, cursor: str | None = None) -> DeadPage:
        """Read a page, oldest first; pass its cursor to read the next one."""
        return self._executor.perform(self._list(limit, cursor))

    def groups(self) -> builtins.list[DeadGroup]:
        """Group the entries by the class and the shape of their reasons and errors, as that of a `DelayQueue` does."""
        return self._executor.perform(read_groups(self._inspector))

    def redrive(
        self,
        id: str | None = None,
        *,
        reason: str | None = None,
        error: str | None = None,
        group: str | None = None,
        all: bool = False,
        retries: int | None = None,
    ) -> Redriven:
        """Send dead messages to the stream again, with their original number of retries or with `retries`.

        Select one message by its entry or id (the last death), those whose reason and error contain a text, those of a
        group (see `groups`), or `all=True`. A message stays in the dead letter while one with its id lives in the
        stream.
        """
        return self._executor.perform(self._redrive(selected(id, reason, error, group, all=all), retries))

    def purge(
        self,
        id: str | None = None,
        *,
        reason: str | None = None,
        error: str | None = None,
        group: str | None = None,
        all: bool = False,
    ) -> int:
        """Delete dead messages, selected as in `redrive`; returns how many."""
        return self._executor.perform(self._purge(selected(id, reason, error, group, all=all)))


class AsyncStreamDeadLetter(_StreamDeadLetterOperations):
    """The dead letter of an `AsyncStreamQueue`."""

    _executor: AsyncExecutor

    list = awaited(StreamDeadLetter.list)
    groups = awaited(StreamDeadLetter.groups)
    redrive = awaited(StreamDeadLetter.redrive)
    purge = awaited(StreamDeadLetter.purge)
