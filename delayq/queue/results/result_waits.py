"""Results of messages, and waits for them: however many wait at a queue object, one reads the ends for all.

Each wait adds its id. One at a time registers all new ids in Redis, and looks at each before and after. One at a
time reads the stream of ends in a blocking command, and wakes those whose messages have ended. Others sleep. Who leaves
hands its part on.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.keys import check_id
from delayq.broker.replies import integers, pairs
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.results import Ending, KeptRecord, ResultCodec
from delayq.broker.scripts import MAX_IDS, MAX_SETTLED
from delayq.broker.transport.operation import Operation
from delayq.errors import MessageFailedError, NoResultError, ResultTimeoutError
from delayq.queue.inspecting.deaths import Death, read_death
from delayq.values.text import format_duration, pluralize
from delayq.values.times import Duration, monotonic, timestamp, to_millis

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor


class EndReply(NamedTuple):
    """How a message has ended, as stored."""

    alive: str
    """`kept` if it lives, and it or what waits to follow it has retention; `alive` without; '' if it has ended."""
    record: bytes
    """The record of the last one that was completed, '' for none; its first line if `alive` is `kept`."""
    death: bytes
    """The last one that died, without its payload; '' for none."""

    def since(self, before: EndReply) -> EndReply:
        """Return this reply without the record and the death that an earlier reply, of a message alive, has."""
        is_old = self.record.partition(b"\n")[0] == before.record
        return EndReply(self.alive, b"" if is_old else self.record, b"" if self.death == before.death else self.death)


def outcomes_call(calls: Calls, ids: Iterable[str]) -> ScriptCall[list[EndReply]]:
    """Read how messages have ended; fewer than asked for if they are large."""
    return calls.script("outcomes", [*ids], _read_ends)


def await_ends_call(calls: Calls, ids: Iterable[str], *, duration: int) -> ScriptCall[str]:
    """Note that this process waits for the ends of messages, for so long (ms); returns a position before them."""
    return calls.script("await_ends", [calls.now, duration, *ids], _read_position)


def next_ends(calls: Calls, after: str, *, limit: int, timeout: float) -> RedisCommand[list[tuple[str, list[str]]]]:
    """Wait up to `timeout` seconds for ends after a position: positions, each with its ids (none: all may have)."""
    block = max(1, int(timeout * 1000))
    stream = ("STREAMS", calls.keys.ends, after)
    return RedisCommand(("XREAD", "COUNT", limit, "BLOCK", block, *stream), _read_entries)


def _read_ends(reply: list[bytes]) -> list[EndReply]:
    """Parse the reply of `outcomes`."""
    return [EndReply(alive.decode(), *rest) for alive, *rest in zip(*(reply[at::3] for at in range(3)), strict=True)]


def _read_position(reply: bytes) -> str:
    return f"{integers(reply)[1] - 1}-0"


def _read_entries(reply: Any) -> list[tuple[str, list[str]]]:
    if not reply:
        return []
    ((_, entries),) = reply.items() if isinstance(reply, dict) else reply
    return [(position.decode(), pairs(fields).get(b"ids", b"").decode().split()) for position, fields in entries]


def has_ended(reply: EndReply) -> bool:
    """Tell whether there is nothing to wait for: the message has ended, is unknown, or its result will not be kept."""
    return reply.alive != "kept"


def value_of(id: str, reply: EndReply, results: ResultCodec, *, before: EndReply | None) -> Any:
    """Return the result of a message that has ended; raise an error that says why there is none.

    `before` is what this process saw while the message was alive, None if it has not: what was there already is of an
    earlier message with this id.
    """
    if before:
        reply = reply.since(before)
    elif reply.alive:
        raise NoResultError(f"no result of message {id}: it was sent without retention")
    record = KeptRecord.read(reply.record) if reply.record else None
    death = read_death(reply.death)
    if death is not None and (record is None or timestamp(death.died) > record.completed):
        _raise_failure(id, death)
    if record is None:
        if reply.alive:
            raise NoResultError(f"no result of message {id}: one without retention has taken its place")
        if before:
            reason = "cancelled or purged"
            raise MessageFailedError(f"message {id} was {reason}", id=id, reason=reason)
        text = "the queue has none with this id; it was never sent, had no retention, or its time is over"
        raise NoResultError(f"no result of message {id}: {text}")
    if record.ending == Ending.DISCARDED:
        text = f"message {id} was discarded{f': {record.note}' if record.note else ''}"
        raise MessageFailedError(text, id=id, reason=record.note or "discarded", attempts=record.attempts)
    if record.ending == Ending.UNKEPT:
        raise NoResultError(f"message {id} is done, but its result was not kept: {record.note}")
    return results.read(record)


def _raise_failure(id: str, death: Death) -> NoReturn:
    why = f"{death.reason}{f': {death.error}' if death.error else ''}"
    text = f"message {id} failed after {pluralize(death.attempts, 'attempt')}: {why}"
    raise MessageFailedError(text, id=id, reason=death.reason, error=death.error, attempts=death.attempts)


REGISTERED = 60_000
"""Milliseconds for which ids are registered: those of a process that was killed are forgotten then."""
RENEW_EVERY = 20.0
"""Seconds between renewals, which also look at every id: an end that a failover has lost is noticed then."""
ENTRIES = 100
"""Entries of the stream that one read takes."""


class WaitPart(Enum):
    """What one call does for all that wait."""

    LOOKS = auto()
    """Only for itself, a last time."""
    REGISTERS = auto()
    READS = auto()


class ResultWait:
    """One call that waits for a result."""

    __slots__ = ("before", "event", "id", "is_over", "reply")

    def __init__(self, id: str, event: Any) -> None:
        self.id = id
        self.event = event
        """Set when there is something to do for it."""
        self.before: EndReply | None = None
        """What was there when its message was first seen alive; None if it was not yet."""
        self.is_over = False
        """Whether it looks a last time, or has."""
        self.reply: EndReply | None = None
        """How its message has ended; None while it has not."""


class ResultWaits:
    """Everything that is waited for at one queue object in this process; the lock guards all of it."""

    _event: Any

    def __init__(self, context: QueueContext, executor: Any) -> None:
        self._context = context
        self._executor = executor
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._waits: dict[str, list[ResultWait]] = {}
        self._new: dict[str, None] = {}
        """Ids that are not registered yet, in order."""
        self._registers = self._reads = False
        """Whether somebody does."""
        self._position: str | None = None
        """How far the ends were read; None while nobody waits."""
        self._renew_at = 0.0

    def _add(self, id: str) -> ResultWait:
        check_id(id)
        if self._pid != os.getpid():  # a fork has none of its parent's threads
            self._begin()
        wait = ResultWait(id, self._event())
        with self._lock:
            self._waits.setdefault(id, []).append(wait)
            self._new[id] = None
        return wait

    def _leave(self, wait: ResultWait) -> None:
        with self._lock:
            others = self._waits.get(wait.id, [])
            if wait not in others:  # of an event loop that was closed
                return
            others.remove(wait)
            if not others:
                del self._waits[wait.id]
                self._new.pop(wait.id, None)
            if not self._waits:
                self._position = None
            self._wake_next()

    def _wake_next(self) -> None:
        """Wake one for each part that nobody has."""
        if self._new and not self._registers:
            self._waits[next(iter(self._new))][0].event.set()
        if not self._reads:
            for id, waits in self._waits.items():
                if id not in self._new and waits[0].reply is None:
                    waits[0].event.set()
                    return

    def _next_part(self, wait: ResultWait, remaining: float) -> tuple[WaitPart, Operation[Any]] | None:
        """Return what this call is to do, for all; None to sleep until it is woken, or to give up."""
        with self._lock:
            if remaining <= 0:
                if wait.is_over:
                    return None
                wait.is_over = True
                return WaitPart.LOOKS, self._look([wait.id])
            if self._new and not self._registers:
                self._registers = True
                return WaitPart.REGISTERS, self._register()
            if not self._reads and wait.id not in self._new and self._position is not None:
                self._reads = True
                return WaitPart.READS, self._read(remaining)
        return None

    def _end_part(self, part: WaitPart) -> None:
        with self._lock:
            if part is WaitPart.REGISTERS:
                self._registers = False
            elif part is WaitPart.READS:
                self._reads = False
            self._wake_next()

    def _register(self) -> Operation[None]:
        """Look at the new ids, register those that have not ended, and look again."""
        with self._lock:
            ids = [*self._new][:MAX_IDS]
        alive = yield from self._look(ids)
        if alive:
            yield from self._note(alive)
        with self._lock:
            for id in ids:
                self._new.pop(id, None)

    def _note(self, ids: list[str]) -> Operation[list[str]]:
        """Register ids and look at them: what ends from then on is in the stream. Returns those that have not ended."""
        (position,) = yield [await_ends_call(self._context.calls, ids, duration=REGISTERED)]
        with self._lock:
            if self._position is None:
                self._position, self._renew_at = position, monotonic() + RENEW_EVERY
        return (yield from self._look(ids))

    def _read(self, remaining: float) -> Operation[None]:
        """Read the next ends, waiting for them, and look at those that somebody here waits for."""
        if monotonic() >= self._renew_at:
            self._renew_at = monotonic() + RENEW_EVERY
            yield from self._renew(self._registered_among(None))
        position, timeout = self._position, min(remaining, self._executor.max_block, RENEW_EVERY)
        if position is None:
            return
        (entries,) = yield [next_ends(self._context.calls, position, limit=ENTRIES, timeout=timeout)]
        if entries:
            is_all = any(not ids for _, ids in entries)  # after a purge
            ended = None if is_all else {id for _, ids in entries for id in ids}
            yield from self._renew((yield from self._look(self._registered_among(ended))))  # another has their id
            self._position = entries[-1][0]

    def _renew(self, ids: list[str]) -> Operation[None]:
        for first in range(0, len(ids), MAX_IDS):
            yield from self._note(ids[first : first + MAX_IDS])

    def _registered_among(self, ids: set[str] | None) -> list[str]:
        """Return the registered ids among these, or all of them."""
        with self._lock:
            return [id for id in self._waits if id not in self._new and (ids is None or id in ids)]

    def _look(self, ids: list[str]) -> Operation[list[str]]:
        """Read how messages have ended, and wake those who wait for them; returns those that have not."""
        alive, done = list[str](), 0
        while done < len(ids):
            (replies,) = yield [outcomes_call(self._context.calls, ids[done : done + MAX_SETTLED])]
            for id, reply in zip(ids[done:], replies, strict=False):
                if not has_ended(reply):
                    alive.append(id)
                with self._lock:
                    self._tell(self._waits.get(id, ()), reply)
            done += len(replies)
        return alive

    def _tell(self, waits: Iterable[ResultWait], reply: EndReply) -> None:
        for wait in waits:
            if has_ended(reply):
                wait.reply = reply
                wait.event.set()
            elif wait.before is None:
                wait.before = reply

    def _value(self, wait: ResultWait, reply: EndReply) -> Any:
        return value_of(wait.id, reply, self._context.results, before=wait.before)


def _timeout_seconds(timeout: Duration | None) -> float:
    return float("inf") if timeout is None else to_millis(timeout, "timeout") / 1000


def _too_late(wait: ResultWait, seconds: float) -> ResultTimeoutError:
    return ResultTimeoutError(f"message {wait.id} has not ended within {format_duration(seconds)}")


class BlockingResultWaits(ResultWaits):
    """The waits of threads."""

    _event = threading.Event

    def wait(self, id: str, timeout: Duration | None) -> Any:
        """Return the result of a message, once it has ended."""
        seconds = _timeout_seconds(timeout)
        end, wait = monotonic() + seconds, self._add(id)
        try:
            while True:
                wait.event.clear()
                if wait.reply is not None:
                    return self._value(wait, wait.reply)
                remaining = end - monotonic()
                if doing := self._next_part(wait, remaining):
                    part, operation = doing
                    try:
                        self._executor.perform(operation)
                    finally:
                        self._end_part(part)
                elif remaining <= 0:
                    raise _too_late(wait, seconds)
                else:
                    wait.event.wait(min(remaining, RENEW_EVERY))
        finally:
            self._leave(wait)


class AsyncResultWaits(ResultWaits):
    """The waits of the tasks of an event loop."""

    _event = asyncio.Event

    def __init__(self, context: QueueContext, executor: AsyncExecutor) -> None:
        super().__init__(context, executor)
        executor.on_new_loop.append(self._begin)

    async def wait(self, id: str, timeout: Duration | None) -> Any:  # noqa: ASYNC109 - the method of a queue
        """Return the result of a message, once it has ended."""
        self._executor.check_loop()
        seconds = _timeout_seconds(timeout)
        end, wait = monotonic() + seconds, self._add(id)
        try:
            while True:
                wait.event.clear()
                if wait.reply is not None:
                    return self._value(wait, wait.reply)
                remaining = end - monotonic()
                if doing := self._next_part(wait, remaining):
                    part, operation = doing
                    try:
                        await self._executor.perform(operation)
                    finally:
                        self._end_part(part)
                elif remaining <= 0:
                    raise _too_late(wait, seconds)
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(wait.event.wait(), min(remaining, RENEW_EVERY))
        finally:
            self._leave(wait)
