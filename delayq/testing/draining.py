"""Draining a queue by a clock that a test turns: the consumer's own flow, without its threads, waits and wake-ups.

A drain looks in at one due time after the other. At each it is a consumer that takes messages one by one and runs the
callback itself, until nothing is left to do; then the clock is turned to what comes next.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from inspect import isawaitable
from typing import Any, Literal, NamedTuple, TypeVar, cast, overload

from delayq.answers import Promoted
from delayq.clock import Duration, milliseconds, moment, monotonic, timestamp
from delayq.config import whole
from delayq.errors import ConfigurationError, DelayqError
from delayq.executor import AsyncExecutor, Executor
from delayq.flow import Event, Start, Turn, Wait
from delayq.flows.consume import Consumption
from delayq.message import AsyncMessage, Holding, Message, Tools
from delayq.outcomes import Outcome
from delayq.queue import AsyncDelayQueue, DelayQueue
from delayq.testing import inside
from delayq.testing.clock import Clock, frozen_time, ruling, ruling_clock
from delayq.testing.delivered import Delivered, told
from delayq.testing.faults import Crash
from delayq.verdict import Completion
from delayq.workbench import Workbench

T = TypeVar("T")

FOLLOWS = 1000
"""Milliseconds by which a queue may be off the clock before a drain refuses to go by it."""


class _Invoke(NamedTuple):
    """A callback to be called; the answer is what it returned, or what it raised."""

    function: Any
    given: Any


_Answer = tuple[object, BaseException | None]
_Steps = Generator["list[Any] | _Invoke", Any, list[Delivered]]


@overload
def drain(
    queue: DelayQueue[T], until: Duration | datetime | None = ..., *, raising: bool = ..., most: int = ...
) -> list[Delivered]: ...
@overload
def drain(
    queue: AsyncDelayQueue[T], until: Duration | datetime | None = ..., *, raising: bool = ..., most: int = ...
) -> Awaitable[list[Delivered]]: ...
def drain(
    queue: inside.AnyQueue, until: Duration | datetime | None = None, *, raising: bool = False, most: int = 10_000
) -> Any:
    """Deliver what is due, turn the clock to what comes next, deliver that, and so on; returns what was delivered.

    It goes on until nothing is due up to `until`, a time or a duration from now, and leaves the clock there; without
    it, until no message is left (the occurrences of schedules alone keep nothing going). What callbacks raise counts as
    in a consumer: a retry, in the end the dead letter. With `raising` the first error is raised, once it has counted.
    Callbacks run one at a time in the calling thread, in the order of due times. After `most` deliveries it fails:
    there may be no end.

    The clock is that of the fixture `delayq_clock`, or freezegun's on the embedded Redis. To be awaited where the queue
    is asynchronous.
    """
    __tracebackhide__ = True
    draining = _Drain(inside.checked(queue), until, raising=raising, most=whole(most, "most", 1, 1 << 40))
    if isinstance(queue, AsyncDelayQueue):
        return _drained_async(queue, draining)
    return _drained(queue, draining)


def _drained(queue: DelayQueue[Any], draining: _Drain) -> list[Delivered]:
    __tracebackhide__ = True
    queue.open()
    line = cast("Executor", inside.executor(queue))
    with draining.ruled(line.call(draining.tools.calls.time())) as steps:
        if inside.declares_schedules(queue):
            queue.schedules.apply()
        try:
            step = next(steps)
            while True:
                if isinstance(step, _Invoke):
                    try:
                        answer: Any = step.function(step.given), None
                    except BaseException as error:  # noqa: BLE001 - the drain tells what counts as in a consumer
                        answer = None, error
                else:
                    answer = line.run(step)
                step = steps.send(answer)
        except StopIteration as end:
            return cast("list[Delivered]", end.value)


async def _drained_async(queue: AsyncDelayQueue[Any], draining: _Drain) -> list[Delivered]:
    __tracebackhide__ = True
    await queue.open()
    line, mine = cast("AsyncExecutor", inside.executor(queue)), cast("asyncio.Task[Any]", asyncio.current_task())
    with draining.ruled(await line.call(draining.tools.calls.time())) as steps:
        if inside.declares_schedules(queue):
            await queue.schedules.apply()
        try:
            step = next(steps)
            while True:
                if isinstance(step, _Invoke):
                    try:
                        result = step.function(step.given)
                        answer: Any = (await result if isawaitable(result) else result), None
                    except asyncio.CancelledError as error:
                        if mine.cancelling():  # it is the drain that is to end
                            raise
                        answer = None, error
                    except BaseException as error:  # noqa: BLE001 - the drain tells what counts as in a consumer
                        answer = None, error
                else:
                    answer = await line.run(step)
                step = steps.send(answer)
        except StopIteration as end:
            return cast("list[Delivered]", end.value)


class _Drain:
    """The decisions of one drain; they touch no socket, and the clock is what they turn."""

    def __init__(self, queue: inside.AnyQueue, until: Duration | datetime | None, *, raising: bool, most: int) -> None:
        """Drain a queue; nothing is done yet."""
        mine = inside.tools(queue)
        # One after the other, and none laid by: the order is that of the queue, and a crash takes nothing with it.
        self.tools = Tools(mine.calls, replace(mine.settings, concurrency=1, prefetch=0), mine.decode)
        self._queue = queue
        self._callback = inside.callback(queue)
        self._raising = raising
        self._most = most
        self._clock = _found_clock()
        self._until = until if until is None else self._end(until)
        self._delivered: list[Delivered] = []
        self._raised: BaseException | None = None

    def _end(self, until: Duration | datetime) -> int:
        if isinstance(until, datetime):
            return timestamp(until, "until")
        return self._clock.milliseconds() + milliseconds(until, "until")

    @contextmanager
    def ruled(self, server_now: int) -> Iterator[_Steps]:
        """Give the steps, while every queue goes by the clock."""
        with ExitStack() as rule:
            if ruling_clock() is None:
                if abs(server_now - self._clock.milliseconds()) > FOLLOWS:
                    raise ConfigurationError(
                        "freezegun does not turn the clock of a real Redis: ask for the fixture delayq_clock, too"
                    )
                rule.enter_context(ruling(self._clock))
            yield self._steps()

    def _steps(self) -> _Steps:
        while True:
            seen = yield from self._look_in()
            if seen is None:  # the worker has crashed, and the next one takes its place
                continue
            now = self._clock.milliseconds()
            upcoming = _upcoming(seen, now, schedules_alone=self._until is not None)
            if upcoming is None or (self._until is not None and upcoming > self._until):
                if self._until is not None and self._until > now:
                    self._clock.move_to(moment(self._until))
                return self._delivered
            self._clock.move_to(moment(upcoming))

    def _look_in(self) -> Generator[list[Any] | _Invoke, Any, Promoted | None]:
        """Do as a consumer what is to be done at this time; returns what it saw last, None if it has crashed."""
        bench = Workbench(self._callback, self._handed_over, self.tools, inside.executor(self._queue))
        flow = Consumption(self.tools, holder="drain", batch=self._callback.batch).run()
        step = next(flow)
        before = seen = None
        while True:
            event = Event(0.0)
            if isinstance(step, Turn):
                if self._raised is not None:  # settled before it is raised, and nothing more is claimed
                    _ = yield [call for call in step.calls if call.script.name != "ready_to_unack"]
                    raise self._raised
                event.answers = yield step.calls
                before, seen = seen, _promoted(event.answers)._replace(now=0)  # it may go on by itself
            elif isinstance(step, Start):
                bench.lay(step.holdings)
                completions = yield from self._work(bench)
                if completions is None:
                    return None
                event.completions = completions
            elif isinstance(step, Wait) and step.seconds > 0 and seen is not None and seen == before:
                # Seen twice alike: where Redis had to be taught a script first, a look may have come before what it
                # was to see.
                return seen
            event.now = monotonic()
            step = flow.send(event)

    def _handed_over(self, holding: Holding, tools: Tools, line: Any, _: float) -> Message[Any] | AsyncMessage[Any]:
        """Return a message that was handed over as soon as it was claimed: the time between is not by this clock."""
        kind = AsyncMessage if isinstance(self._queue, AsyncDelayQueue) else Message
        return kind(holding, tools, line, holding.claimed)

    def _work(self, bench: Workbench) -> Generator[_Invoke, _Answer, list[Completion] | None]:
        """Call the callback with what lies on the bench; returns the completions, None if the worker has crashed."""
        ended: list[Completion] = []
        while (taken := bench.take()) is not None:
            batch, holdings, given = taken
            at = self._clock.now
            if given is not None:
                if len(self._delivered) >= self._most:
                    raise AssertionError(f"{self._most} messages were delivered, and there is no end: see `most`")
                with _deadlines_following(self._clock, holdings):
                    result, error = yield _Invoke(bench.function, given)
                if isinstance(error, Crash):
                    self._tell(holdings, at, "crashed")
                    return None
                if error is not None and not _counts(error):
                    raise error
                if error is not None and self._raising and not isinstance(error, Outcome):
                    self._raised = error
                bench.put_back(batch, holdings, result, error)
            for completion in bench.clear():
                ended.append(completion)
                self._tell(completion.holdings, at, completion)
        return ended

    def _tell(self, holdings: Sequence[Holding], at: datetime, outcome: Completion | Literal["crashed"]) -> None:
        self._delivered += [told(one, self.tools.decode, at, outcome) for one in holdings]


def _promoted(answers: Iterable[Any]) -> Promoted:
    """Return what a turn saw; raises what Redis refused."""
    seen = None
    for answer in answers:
        if isinstance(answer, DelayqError):
            raise answer
        if isinstance(answer, Promoted):
            seen = answer
    return cast("Promoted", seen)  # every turn looks


def _upcoming(seen: Promoted, now: int, *, schedules_alone: bool) -> int | None:
    """Return the time of what comes next, None for nothing; schedules go on for ever, and count for nothing alone."""
    messages = [at for at in (seen.next_due, seen.next_deadline) if at > now]
    if not messages and not schedules_alone:
        return None
    # An occurrence that is not fired at its time cannot be: what it takes is not installed.
    schedules = [seen.next_schedule] if seen.next_schedule > now else []
    return min([*messages, *schedules], default=None)


def _counts(error: BaseException) -> bool:
    """Tell whether an exception of a callback counts as in a consumer, rather than being about the test itself."""
    pytest = sys.modules.get("_pytest.outcomes")
    return not isinstance(error, KeyboardInterrupt | (pytest.OutcomeException if pytest else KeyboardInterrupt))


def _found_clock() -> Clock:
    ruling_one = ruling_clock()
    if ruling_one is None and frozen_time() is None:
        raise ConfigurationError("there is no clock to turn: ask for the fixture delayq_clock, or freeze the time")
    return ruling_one or Clock()


@contextmanager
def _deadlines_following(clock: Clock, holdings: list[Holding]) -> Iterator[None]:
    """Have leases run out, as messages tell it, when the callback itself turns the clock."""

    def follow(passed: int) -> None:
        for holding in holdings:
            holding.deadline -= passed / 1000

    clock.watchers.append(follow)
    try:
        yield
    finally:
        clock.watchers.remove(follow)
