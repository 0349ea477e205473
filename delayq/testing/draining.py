"""Draining queues by a clock that a test turns: the consumer's own flow, without its threads, waits and wake-ups.

A drain looks in at one due time after the other. At each it is a consumer of every queue, one message at a time, until
nothing is left to do; then the clock is turned to what comes next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from inspect import isawaitable
from typing import Any, cast, overload

from delayq.answers import Promoted
from delayq.clock import Duration, milliseconds, moment, timestamp
from delayq.config import whole
from delayq.errors import ConfigurationError
from delayq.executor import AsyncExecutor, Executor
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.testing import inside
from delayq.testing.clock import Clock, frozen_time, ruling, ruling_clock
from delayq.testing.delivered import Delivered
from delayq.testing.worker import Ask, Invoke, Terms, Worker

FOLLOWS = 1000
"""Milliseconds by which a queue may be off the clock before a drain refuses to go by it."""

_Steps = Generator[Ask | Invoke, Any, list[Delivered]]


@overload
def drain(
    *queues: DelayQueue[Any], until: Duration | datetime | None = ..., raising: bool = ..., most: int = ...
) -> list[Delivered]: ...
@overload
def drain(
    *queues: AsyncDelayQueue[Any], until: Duration | datetime | None = ..., raising: bool = ..., most: int = ...
) -> Awaitable[list[Delivered]]: ...
def drain(*queues: Any, until: Duration | datetime | None = None, raising: bool = False, most: int = 10_000) -> Any:
    """Deliver what is due, turn the clock to what comes next, deliver that, and so on; returns what was delivered.

    It goes on until nothing is due up to `until`, a time or a duration from now, and leaves the clock there; without
    it, until no message is left (the occurrences of schedules alone keep nothing going). What callbacks raise counts as
    in a consumer: a retry, in the end the dead letter. With `raising` the first error is raised, once it has counted.
    Callbacks run one at a time in the calling thread, in the order of due times. After `most` deliveries it fails:
    there may be no end.

    Several queues are drained together: what comes first in any of them comes first. The clock is that of the fixture
    `delayq_clock`, or freezegun's on the embedded Redis. To be awaited where the queues are asynchronous.
    """
    __tracebackhide__ = True
    kinds = {isinstance(inside.checked(queue), AsyncDelayQueue) for queue in queues}
    if len(kinds) != 1:
        raise ConfigurationError("give queues to drain, all of them blocking or all of them asynchronous")
    draining = _Drain(queues, until, Terms(_found_clock(), raising, whole(most, "most", 1, 1 << 40)))
    return _drained_async(queues, draining) if True in kinds else _drained(queues, draining)


def _drained(queues: Sequence[DelayQueue[Any]], draining: _Drain) -> list[Delivered]:
    __tracebackhide__ = True
    for queue in queues:
        queue.open()
        draining.compare(cast("Executor", inside.executor(queue)).call(inside.tools(queue).calls.time()))
    with draining.ruled() as steps:
        for queue in queues:
            if inside.declares_schedules(queue):
                queue.schedules.apply()
        try:
            step = next(steps)
            while True:
                if isinstance(step, Ask):
                    step = steps.send(cast("Executor", step.line).run(step.calls))
                    continue
                try:
                    answer: Any = step.function(step.given), None
                except BaseException as error:  # noqa: BLE001 - the worker tells what counts as in a consumer
                    answer = None, error
                step = steps.send(answer)
        except StopIteration as end:
            return cast("list[Delivered]", end.value)


async def _drained_async(queues: Sequence[AsyncDelayQueue[Any]], draining: _Drain) -> list[Delivered]:
    __tracebackhide__ = True
    mine = cast("asyncio.Task[Any]", asyncio.current_task())
    for queue in queues:
        await queue.open()
        draining.compare(await cast("AsyncExecutor", inside.executor(queue)).call(inside.tools(queue).calls.time()))
    with draining.ruled() as steps:
        for queue in queues:
            if inside.declares_schedules(queue):
                await queue.schedules.apply()
        try:
            step = next(steps)
            while True:
                if isinstance(step, Ask):
                    step = steps.send(await cast("AsyncExecutor", step.line).run(step.calls))
                    continue
                try:
                    result = step.function(step.given)
                    answer: Any = (await result if isawaitable(result) else result), None
                except asyncio.CancelledError as error:
                    if mine.cancelling():  # it is the drain that is to end
                        raise
                    answer = None, error
                except BaseException as error:  # noqa: BLE001 - the worker tells what counts as in a consumer
                    answer = None, error
                step = steps.send(answer)
        except StopIteration as end:
            return cast("list[Delivered]", end.value)


class _Drain:
    """The decisions of one drain: which queue is looked in at, and to when the clock is turned."""

    def __init__(self, queues: Sequence[inside.AnyQueue], until: Duration | datetime | None, terms: Terms) -> None:
        """Drain queues on some terms; nothing is done yet."""
        self._workers = [Worker(queue, terms) for queue in queues]
        self._terms = terms
        self._clock = terms.clock
        self._until = until if until is None else self._end(until)

    def _end(self, until: Duration | datetime) -> int:
        if isinstance(until, datetime):
            return timestamp(until, "until")
        return self._clock.milliseconds() + milliseconds(until, "until")

    def compare(self, server_now: int) -> None:
        """Refuse a server that does not go by the clock."""
        if ruling_clock() is None and abs(server_now - self._clock.milliseconds()) > FOLLOWS:
            text = "freezegun does not turn the clock of a real Redis: ask for the fixture delayq_clock, too"
            raise ConfigurationError(text)

    @contextmanager
    def ruled(self) -> Iterator[_Steps]:
        """Give the steps, while every queue goes by the clock."""
        with ExitStack() as rule:
            if ruling_clock() is None:
                rule.enter_context(ruling(self._clock))
            yield self._steps()

    def _steps(self) -> _Steps:
        while True:
            seen = yield from self._look_in()
            now = self._clock.milliseconds()
            upcoming = _upcoming(seen, now, schedules_alone=self._until is not None)
            if upcoming is None or (self._until is not None and upcoming > self._until):
                if self._until is not None and self._until > now:
                    self._clock.move_to(moment(self._until))
                return self._terms.delivered
            self._clock.move_to(moment(upcoming))

    def _look_in(self) -> Generator[Ask | Invoke, Any, list[Promoted]]:
        """Look in at every queue, until none has anything to do at this time; returns what was seen last of each."""
        while True:
            before, seen = len(self._terms.delivered), []
            for worker in self._workers:
                one = None
                while one is None:  # a worker that has crashed is followed by the next one
                    one = yield from worker.look_in()
                seen.append(one)
            # What one has delivered may have sent something to another.
            if len(self._workers) == 1 or len(self._terms.delivered) == before:
                return seen


def _upcoming(seen: Sequence[Promoted], now: int, *, schedules_alone: bool) -> int | None:
    """Return the time of what comes next, None for nothing; schedules go on for ever, and count for nothing alone."""
    messages = [at for one in seen for at in (one.next_due, one.next_deadline) if at > now]
    if not messages and not schedules_alone:
        return None
    # An occurrence that is not fired at its time cannot be: what it takes is not installed.
    schedules = [one.next_schedule for one in seen if one.next_schedule > now]
    return min([*messages, *schedules], default=None)


def _found_clock() -> Clock:
    ruling_one = ruling_clock()
    if ruling_one is None and frozen_time() is None:
        raise ConfigurationError("there is no clock to turn: ask for the fixture delayq_clock, or freeze the time")
    return ruling_one or Clock()
