"""Assertions about scheduled messages; a failure lists the messages that are there."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, TypeVar, Unpack, overload

from delayq.broker.transport.operation import Operation
from delayq.errors import short_repr
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.delay_queue import DelayQueue
from delayq.queue.inspecting.inspector import MAX_ROWS, Inspector
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.testing.queue_factory import AnyQueue, checked
from delayq.values.checks import check_int
from delayq.values.states import State
from delayq.values.times import Duration, from_millis, timestamp, to_millis

T = TypeVar("T")

WAITING = (State.PENDING, State.READY, State.RETRY, State.BACKOFF, State.THROTTLED)
"""The states of a message that is still to be delivered."""
MAX_SHOWN = 20
"""How many messages a failure lists."""
MAX_PAYLOAD = 512 << 20
"""Bytes of a payload to read: the maximum that Redis can store."""

_ANY: Any = object()


@dataclass(frozen=True, slots=True)
class _Expected:
    """The message a test expects, and how a failure describes it."""

    payload: Any
    id: str | None
    name: str | None
    at: int | None
    within: int | None

    def matches(self, message: MessageInfo, now: int) -> bool:
        if self.payload is not _ANY and message.payload != self.payload:
            return False
        if self.id is not None and message.id != self.id:
            return False
        if self.name is not None and message.name != self.name:
            return False
        due = _due(message)
        if self.at is not None:
            return abs(due - self.at) <= (self.within or 0)
        # Due times are rounded up to the millisecond, the time of Redis is rounded down.
        return self.within is None or due <= now + self.within + 1

    def __str__(self) -> str:
        parts = [] if self.payload is _ANY else [f"payload={self.payload!r}"]
        parts += [f"{key}={value!r}" for key, value in (("id", self.id), ("name", self.name)) if value is not None]
        text = f" with {' and '.join(parts)}" if parts else ""
        tolerance = "" if self.within is None else f"{self.within / 1000:g} s"
        if self.at is not None:
            return f"{text} due at {_time(from_millis(self.at))}{tolerance and f' ± {tolerance}'}"
        return f"{text} due within {tolerance}" if tolerance else text


def _expected(
    payload: Any, id: str | None, name: str | None, at: datetime | None, within: Duration | None
) -> _Expected:
    at_ms = None if at is None else timestamp(at)
    return _Expected(payload, id, name, at_ms, None if within is None else to_millis(within, "within"))


class _Wanted(TypedDict, total=False):
    payload: Any
    id: str | None
    name: str | None
    at: datetime | None
    within: Duration | None


@overload
def assert_scheduled(queue: DelayQueue[T], *, times: int | None = ..., **criteria: Unpack[_Wanted]) -> MessageInfo: ...
@overload
def assert_scheduled(
    queue: AsyncDelayQueue[T], *, times: int | None = ..., **criteria: Unpack[_Wanted]
) -> Awaitable[MessageInfo]: ...
def assert_scheduled(
    queue: AnyQueue,
    *,
    payload: Any = _ANY,
    id: str | None = None,
    name: str | None = None,
    at: datetime | None = None,
    within: Duration | None = None,
    times: int | None = None,
) -> Any:
    """Assert that a message is scheduled, and return the first by due time; await it for an `AsyncDelayQueue`.

    The message equals `payload`, has this `id`, this `name` (as that of a task), is due `at` this aware time, or
    `within` this duration from now. With both, it is due `at` this time, plus or minus `within`. With `times`, exactly
    that many messages match. A failure lists the messages that are there.
    """
    __tracebackhide__ = True
    if times is not None:
        check_int(times, "times", 1, 1_000_000)
    expected = _expected(payload, id, name, at, within)
    return checked(queue).executor.perform(_found(queue, expected, times))


@overload
def assert_nothing_scheduled(queue: DelayQueue[T], **criteria: Unpack[_Wanted]) -> None: ...
@overload
def assert_nothing_scheduled(queue: AsyncDelayQueue[T], **criteria: Unpack[_Wanted]) -> Awaitable[None]: ...
def assert_nothing_scheduled(
    queue: AnyQueue,
    *,
    payload: Any = _ANY,
    id: str | None = None,
    name: str | None = None,
    at: datetime | None = None,
    within: Duration | None = None,
) -> Any:
    """Assert that no message is scheduled, or none that matches; see `assert_scheduled`."""
    __tracebackhide__ = True
    return checked(queue).executor.perform(_missed(queue, _expected(payload, id, name, at, within)))


def _found(queue: AnyQueue, expected: _Expected, times: int | None) -> Operation[MessageInfo]:
    __tracebackhide__ = True
    found, listed = yield from _search(queue, expected)
    if times is not None and len(found) != times:
        raise AssertionError(f"expected {times} messages{expected}, but {len(found)} are scheduled. {listed}")
    if not found:
        raise AssertionError(f"no message{expected} is scheduled. {listed}")
    return found[0]


def _missed(queue: AnyQueue, expected: _Expected) -> Operation[None]:
    __tracebackhide__ = True
    found, listed = yield from _search(queue, expected)
    if found:
        raise AssertionError(f"{len(found)} messages{expected} are scheduled. {listed}")


def _search(queue: AnyQueue, expected: _Expected) -> Operation[tuple[list[MessageInfo], str]]:
    """Return the waiting messages that match, by due time, and a list of all that wait, as text."""
    inspector = Inspector(queue.context)
    stats = yield from inspector.stats()
    waiting: dict[str, MessageInfo] = {}
    for state in WAITING:
        cursor: str | None = None
        while True:
            page = yield from inspector.page(state, limit=MAX_ROWS, cursor=cursor, preview=MAX_PAYLOAD)
            waiting.update((message.id, message) for message in page.messages)
            cursor = page.cursor
            if cursor is None:
                break
    now, ordered = timestamp(stats.at), sorted(waiting.values(), key=_due)
    return [message for message in ordered if expected.matches(message, now)], _listed(queue, ordered)


def _due(message: MessageInfo) -> int:
    """Return when a message will be delivered: after a failure, when its retry delay ends."""
    at = message.deadline if message.state is State.BACKOFF else message.due
    return 0 if at is None else timestamp(at)


def _listed(queue: AnyQueue, waiting: list[MessageInfo]) -> str:
    if not waiting:
        return f"Queue {queue.name} has no messages."
    lines = [
        f"  {message.id}  {message.state}  due {_time(from_millis(_due(message)))}  {short_repr(message.payload)}"
        for message in waiting[:MAX_SHOWN]
    ]
    if len(waiting) > MAX_SHOWN:
        lines.append(f"  and {len(waiting) - MAX_SHOWN} more")
    return "\n".join([f"Queue {queue.name} has:", *lines])


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds" if at.microsecond else "seconds").replace("+00:00", "Z")
