"""Drains queues by a clock that the test moves: the consumer's own loop, without threads, sleeps and wake-ups.

A drain goes from one due time to the next. At each it consumes every queue, one message at a time, until nothing is
left to do. Then it moves the clock to the next due time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import closing, nullcontext
from datetime import datetime
from inspect import isawaitable
from typing import Any, cast, overload

from delayq.broker.replies import PromoteReply
from delayq.errors import ConfigurationError
from delayq.queue.async_delay_queue import AsyncDelayQueue
from delayq.queue.consuming.lifespans import Lifespans
from delayq.queue.delay_queue import DelayQueue
from delayq.testing.clock import Clock, frozen_time, ruling, ruling_clock
from delayq.testing.deliveries import Delivered
from delayq.testing.drain_worker import DrainState, DrainWorker, Steps, perform
from delayq.testing.queue_factory import AnyQueue, checked
from delayq.values.checks import check_int
from delayq.values.times import Duration, from_millis, timestamp, to_millis

Until = Duration | datetime | None
MAX_CLOCK_GAP = 1000
"""Milliseconds by which the server's time may differ from the test's clock; beyond it a drain refuses to run."""


@overload
def drain(*queues: DelayQueue[Any], until: Until = ..., raising: bool = ..., most: int = ...) -> list[Delivered]: ...
@overload
def drain(
    *queues: AsyncDelayQueue[Any], until: Until = ..., raising: bool = ..., most: int = ...
) -> Awaitable[list[Delivered]]: ...
def drain(*queues: Any, until: Until = None, raising: bool = False, most: int = 10_000) -> Any:
    """Deliver what is due, move the clock to the next due time, deliver that, and so on; returns the deliveries.

    It continues until nothing is due up to `until`, a time or a duration from now, and leaves the clock there. Without
    `until`, it continues until no message is left; occurrences of schedules alone do not keep it running. An exception
    of a callback counts as in a consumer: a retry, finally the dead letter. With `raising` the first error is raised,
    after it has counted. Callbacks run one at a time, in the order of due times: in the calling thread, or in another
    thread if the queue is asynchronous and the callback is no coroutine function. After `most` deliveries it fails,
    since messages might come without end.

    Several queues are drained together, in the order of due times across all of them. The clock is that of the fixture
    `delayq_clock`, or freezegun's on the embedded Redis. Await it if the queues are asynchronous.
    """
    __tracebackhide__ = True
    kinds = {isinstance(checked(queue), AsyncDelayQueue) for queue in queues}
    if len(kinds) != 1:
        raise ConfigurationError("drain needs one or more queues: all DelayQueue or all AsyncDelayQueue")
    run = _Drain(queues, until, DrainState(_find_clock(), raising, check_int(most, "most", 1, 1 << 40)))
    return _drained_async(run.run(), run.lifespans) if True in kinds else _drained(run.run(), run.lifespans)


def _drained(steps: Steps[list[Delivered]], lifespans: Lifespans) -> list[Delivered]:
    __tracebackhide__ = True
    with lifespans, closing(steps):
        try:
            step = next(steps)
            while True:
                try:
                    reply: Any = step(), None
                except BaseException as error:  # noqa: BLE001 - the worker decides which of them count
                    reply = None, error
                step = steps.send(reply)
        except StopIteration as end:
            return cast("list[Delivered]", end.value)


async def _drained_async(steps: Steps[list[Delivered]], lifespans: Lifespans) -> list[Delivered]:
    __tracebackhide__ = True
    mine = cast("asyncio.Task[Any]", asyncio.current_task())
    async with lifespans:
        return await _steps_done(steps, mine)


async def _steps_done(steps: Steps[list[Delivered]], mine: asyncio.Task[Any]) -> list[Delivered]:
    __tracebackhide__ = True
    with closing(steps):
        try:
            step = next(steps)
            while True:
                try:
                    result = step()
                    reply: Any = (await result if isawaitable(result) else result), None
                except asyncio.CancelledError as error:
                    if mine.cancelling():  # the drain itself is cancelled
                        raise
                    reply = None, error
                except BaseException as error:  # noqa: BLE001 - the worker decides which of them count
                    reply = None, error
                step = steps.send(reply)
        except StopIteration as end:
            return cast("list[Delivered]", end.value)


class _Drain:
    """The decisions of one drain: which queue to process, and how far to move the clock."""

    def __init__(self, queues: Sequence[AnyQueue], until: Until, state: DrainState) -> None:
        self._queues = queues
        self._workers = [DrainWorker(queue, state) for queue in queues]
        self.lifespans = Lifespans([worker.lifespan for worker in self._workers if worker.lifespan is not None])
        self._state = state
        self._clock = state.clock
        self._until = until if until is None else self._end(until)

    def _end(self, until: Duration | datetime) -> int:
        if isinstance(until, datetime):
            return timestamp(until, "until")
        return self._clock.milliseconds() + to_millis(until, "until")

    def run(self) -> Steps[list[Delivered]]:
        __tracebackhide__ = True
        for queue in self._queues:
            yield from perform(queue.open)
            time = queue.context.calls.time()
            self._compare((yield from perform(queue.executor.call, time)))
        with closing(self._state.threads), nullcontext() if ruling_clock() else ruling(self._clock):
            for queue in self._queues:
                if queue.handlers.declares:
                    yield from perform(queue.schedules.apply)
            return (yield from self._follow_clock())

    def _compare(self, server_now: int) -> None:
        """Raise `ConfigurationError` if the server does not follow the clock."""
        if ruling_clock() is None and abs(server_now - self._clock.milliseconds()) > MAX_CLOCK_GAP:
            text = "freezegun does not move the clock of a real Redis: use the fixture delayq_clock as well"
            raise ConfigurationError(text)

    def _follow_clock(self) -> Steps[list[Delivered]]:
        """Process what is due at one time after another, until nothing is left or `until`."""
        __tracebackhide__ = True
        while True:
            replies = yield from self._process_due()
            now = self._clock.milliseconds()
            next_due = _next_due(replies, now, schedules_alone=self._until is not None)
            if next_due is None or (self._until is not None and next_due > self._until):
                if self._until is not None and self._until > now:
                    self._clock.move_to(from_millis(self._until))
                return self._state.delivered
            self._clock.move_to(from_millis(next_due))

    def _process_due(self) -> Steps[list[PromoteReply]]:
        """Process every queue until none has anything to do at this time; returns the last reply of each."""
        while True:
            before, replies = len(self._state.delivered), []
            for worker in self._workers:
                promoted = None
                while promoted is None:  # a crashed worker is replaced
                    promoted = yield from worker.process_due()
                replies.append(promoted)
            # A callback of one queue may have sent messages to another.
            if len(self._workers) == 1 or len(self._state.delivered) == before:
                return replies


def _next_due(replies: Sequence[PromoteReply], now: int, *, schedules_alone: bool) -> int | None:
    """Return the next time (ms) at which something is due, None if nothing is; schedules alone may not count."""
    times = (at for one in replies for at in (one.next_due, one.next_deadline, one.next_gate, one.paused))
    messages = [at for at in times if at > now]
    if not messages and not schedules_alone:
        return None
    # An occurrence still due now cannot be fired here: an optional dependency is not installed.
    schedules = [one.next_schedule for one in replies if one.next_schedule > now]
    return min([*messages, *schedules], default=None)


def _find_clock() -> Clock:
    clock = ruling_clock()
    if clock is None and frozen_time() is None:
        raise ConfigurationError("drain needs a clock: use the fixture delayq_clock, or freeze the time with freezegun")
    return clock or Clock()
