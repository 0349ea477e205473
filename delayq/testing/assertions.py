"""What is scheduled: assertions that say what is there instead."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, overload

from delayq.clock import Duration, milliseconds, moment, timestamp
from delayq.config import whole
from delayq.errors import shown
from delayq.inspector import MOST_ROWS, Inspector, MessageInfo
from delayq.operation import Operation
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.states import State
from delayq.testing import inside

T = TypeVar("T")

WAITING = (State.PENDING, State.READY, State.RETRY, State.BACKOFF)
"""The states of a message that is still to be delivered."""
MOST_SHOWN = 20
"""Messages that a failure lists."""
WHOLE = 512 << 20
"""Bytes of a payload that are read: as many as one may have."""

_ANY: Any = object()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is asked for, and how a failure calls it."""

    payload: Any
    id: str | None
    at: int | None
    within: int | None

    def fits(self, message: MessageInfo, now: int) -> bool:
        if self.payload is not _ANY and message.payload != self.payload:
            return False
        if self.id is not None and message.id != self.id:
            return False
        due = _due(message)
        if self.at is not None:
            return abs(due - self.at) <= (self.within or 0)
        # A due time is rounded up to the millisecond, and the time that Redis tells down.
        return self.within is None or due <= now + self.within + 1

    def __str__(self) -> str:
        named = [] if self.payload is _ANY else [f"payload={self.payload!r}"]
        named += [] if self.id is None else [f"id={self.id!r}"]
        said = f" with {' and '.join(named)}" if named else ""
        tolerance = "" if self.within is None else f"{self.within / 1000:g} s"
        if self.at is not None:
            return f"{said} due at {_time(moment(self.at))}{tolerance and f', give or take {tolerance}'}"
        return f"{said} due within {tolerance}" if tolerance else said


def _wanted(payload: Any, id: str | None, at: datetime | None, within: Duration | None) -> _Wanted:
    return _Wanted(
        payload,
        id,
        None if at is None else timestamp(at),
        None if within is None else milliseconds(within, "within"),
    )


@overload
def assert_scheduled(
    queue: DelayQueue[T],
    *,
    payload: Any = ...,
    id: str | None = ...,
    at: datetime | None = ...,
    within: Duration | None = ...,
    times: int | None = ...,
) -> MessageInfo: ...
@overload
def assert_scheduled(
    queue: AsyncDelayQueue[T],
    *,
    payload: Any = ...,
    id: str | None = ...,
    at: datetime | None = ...,
    within: Duration | None = ...,
    times: int | None = ...,
) -> Awaitable[MessageInfo]: ...
def assert_scheduled(
    queue: inside.AnyQueue,
    *,
    payload: Any = _ANY,
    id: str | None = None,
    at: datetime | None = None,
    within: Duration | None = None,
    times: int | None = None,
) -> Any:
    """Assert that a message is still to be delivered, and return the first such by its time; awaited if `queue` is so.

    It has this `payload` (what equals it), this `id`, is due `at` this aware time, or `within` this duration from now;
    both together: `at` this time, give or take `within`. With `times` there are exactly so many. A failure lists what
    is there.
    """
    __tracebackhide__ = True
    if times is not None:
        whole(times, "times", 1, 1_000_000)
    wanted = _wanted(payload, id, at, within)
    return inside.perform(inside.checked(queue), _found(queue, wanted, times))


@overload
def assert_nothing_scheduled(
    queue: DelayQueue[T],
    *,
    payload: Any = ...,
    id: str | None = ...,
    at: datetime | None = ...,
    within: Duration | None = ...,
) -> None: ...
@overload
def assert_nothing_scheduled(
    queue: AsyncDelayQueue[T],
    *,
    payload: Any = ...,
    id: str | None = ...,
    at: datetime | None = ...,
    within: Duration | None = ...,
) -> Awaitable[None]: ...
def assert_nothing_scheduled(
    queue: inside.AnyQueue,
    *,
    payload: Any = _ANY,
    id: str | None = None,
    at: datetime | None = None,
    within: Duration | None = None,
) -> Any:
    """Assert that no message is still to be delivered, or none of this kind; see `assert_scheduled`."""
    __tracebackhide__ = True
    return inside.perform(inside.checked(queue), _missed(queue, _wanted(payload, id, at, within)))


def _found(queue: inside.AnyQueue, wanted: _Wanted, times: int | None) -> Operation[MessageInfo]:
    __tracebackhide__ = True
    now, waiting = yield from _waiting(queue)
    found = [message for message in waiting if wanted.fits(message, now)]
    if times is not None and len(found) != times:
        raise AssertionError(f"{len(found)} and not {times} messages{wanted} are scheduled. {_listed(queue, waiting)}")
    if not found:
        raise AssertionError(f"no message{wanted} is scheduled. {_listed(queue, waiting)}")
    return found[0]


def _missed(queue: inside.AnyQueue, wanted: _Wanted) -> Operation[None]:
    __tracebackhide__ = True
    now, waiting = yield from _waiting(queue)
    found = [message for message in waiting if wanted.fits(message, now)]
    if found:
        raise AssertionError(f"{len(found)} messages{wanted} are scheduled. {_listed(queue, waiting)}")


def _waiting(queue: inside.AnyQueue) -> Operation[tuple[int, list[MessageInfo]]]:
    """Read the server's time and what waits, by due time."""
    inspector = Inspector(inside.tools(queue))
    stats = yield from inspector.stats()
    waiting: dict[str, MessageInfo] = {}
    for state in WAITING:
        cursor: str | None = None
        while True:
            page = yield from inspector.page(state, limit=MOST_ROWS, cursor=cursor, preview=WHOLE)
            waiting.update((message.id, message) for message in page.messages)
            cursor = page.cursor
            if cursor is None:
                break
    return timestamp(stats.at), sorted(waiting.values(), key=_due)


def _due(message: MessageInfo) -> int:
    """Return when a message is to be delivered: after a failure, when its delay is over."""
    at = message.deadline if message.state is State.BACKOFF else message.due
    return 0 if at is None else timestamp(at)


def _listed(queue: inside.AnyQueue, waiting: list[MessageInfo]) -> str:
    if not waiting:
        return f"Queue {queue.name} has none."
    lines = [
        f"  {message.id}  {message.state}  due {_time(moment(_due(message)))}  {shown(message.payload)}"
        for message in waiting[:MOST_SHOWN]
    ]
    if len(waiting) > MOST_SHOWN:
        lines.append(f"  and {len(waiting) - MOST_SHOWN} more")
    return "\n".join([f"Queue {queue.name} has:", *lines])


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds" if at.microsecond else "seconds").replace("+00:00", "Z")
