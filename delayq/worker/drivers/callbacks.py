"""How callbacks are called: in the context variables of the start, and for asyncio, if they block, in threads."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, ContextVar, copy_context
from inspect import isawaitable, iscoroutinefunction
from queue import SimpleQueue
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from delayq.worker.drivers.own_threads import TRY_EVERY, OwnThreads

if TYPE_CHECKING:
    from delayq.worker.drivers.work_buffer import Callback


class StartContext:
    """The context variables at the start of a consumer."""

    def __init__(self) -> None:
        """Keep those of the caller."""
        start = copy_context()
        self._start = start
        self._changing = [(variable, copier) for variable, value in start.items() if (copier := _copier(value))]
        self.copy: Callable[[], Context] = self._copy_all if self._changing else start.copy
        """Returns a context for one callback."""

    def _copy_all(self) -> Context:
        context = self._start.copy()
        for variable, copier in self._changing:
            context.run(_set_copy, variable, copier)
        return context


def _copier(value: Any) -> Callable[[], object] | None:
    """Return what copies a value that callbacks would change in place: the precision of decimals, tags of Sentry."""
    if (decimal := sys.modules.get("decimal")) is not None and type(value) is decimal.Context:
        return cast("Callable[[], object]", value.copy)
    if type(value).__module__.startswith("sentry_sdk."):
        return cast("Callable[[], object] | None", getattr(value, "fork", None))
    return None


def _set_copy(variable: ContextVar[Any], copier: Callable[[], object]) -> None:
    variable.set(copier())


class InContext:
    """Awaits what a function returns, all within a context."""

    __slots__ = ("_argument", "_context", "_function")

    def __init__(self, context: Context, function: Callable[[Any], Awaitable[Any]], argument: Any) -> None:
        """Call the function with this argument when it is awaited."""
        self._context, self._function, self._argument = context, function, argument

    def __await__(self) -> Generator[Any, Any, Any]:
        """Run the function and each step of what it returns in the context; returns the result."""
        run = self._context.run
        found: Any = run(self._function, self._argument)
        steps = found if type(found) is CoroutineType else _steps_of(found)
        act: Callable[[Any], Any] = steps.send
        given: Any = None
        while True:
            try:
                step = run(act, given)
            except StopIteration as end:
                return end.value
            try:
                act, given = steps.send, (yield step)
            except GeneratorExit:
                run(steps.close)
                raise
            except BaseException as error:  # noqa: BLE001 - a cancellation, for the callback to see
                act, given = steps.throw, error


async def _steps_of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


Ending = tuple[object, BaseException | None]
"""What a callback returned or raised; as a value, since a future cannot carry a `StopIteration`."""


class _Job(NamedTuple):
    context: Context
    function: Callable[[Any], object]
    argument: Any
    future: asyncio.Future[Ending]
    ended: list[Ending]
    """Its ending, as soon as there is one: before the event loop learns of it."""


class CallbackThreads:
    """Runs functions in threads, as many as are called at a time; idle ones are used again.

    Used in one event loop. The threads are daemons: a callback that hangs does not keep its process alive.
    """

    def __init__(self, name: str, own_threads: OwnThreads) -> None:
        """Start no thread yet; `name` is the start of their names, and `own_threads` starts them."""
        self._name = name
        self._own_threads = own_threads
        self.waiting: set[asyncio.Task[Any] | None] = set()
        """The tasks that wait for a function in a thread."""
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.count = 0
        """How many threads there are."""
        self._busy = 0
        self._trying: asyncio.TimerHandle | None = None

    async def call(self, callback: Callback, argument: Any, context: Context) -> Ending:
        """Call a callback in a thread, unless it is a coroutine function, within a context; returns how it ended."""
        function = callback.function if callback.select is None else callback.select(argument)
        result: object = None
        if is_blocking(function):
            result, error = await self.run(function, argument, context)
            if error is not None:
                return None, error
        else:
            result = context.run(function, argument)
        return (await InContext(context, _given, result) if isawaitable(result) else result), None

    async def run(self, function: Callable[[Any], object], argument: Any, context: Context) -> Ending:
        """Call a function in a thread, within a context; returns what it returned or raised.

        If the task is cancelled before the function has ended, it runs on, and what becomes of it is ignored.
        """
        if self._pid != os.getpid():  # a fork has none of its parent's threads
            self._begin()
        job = _Job(context, function, argument, asyncio.get_running_loop().create_future(), [])
        self._busy += 1
        self._jobs.put(job)
        if self._trying is None:
            self._start_threads()
        self.waiting.add(task := asyncio.current_task())
        try:
            return await job.future
        except asyncio.CancelledError:
            if job.ended:
                return job.ended[0]
            raise
        finally:
            self.waiting.discard(task)

    def _start_threads(self) -> None:
        """Start as many threads as there are jobs; without room for one, try again later while a job may wait."""
        self._trying = None
        while self.count < self._busy:
            if self._own_threads.start(self._work, f"{self._name}-{self.count + 1}") is None:
                self._trying = asyncio.get_running_loop().call_later(TRY_EVERY, self._start_threads)
                return
            self.count += 1

    def close(self) -> None:
        """End the threads, each after the function that it runs."""
        for _ in range(self.count):
            self._jobs.put(None)
        if self._trying is not None:
            self._trying.cancel()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            result: object = None
            error: BaseException | None = None
            try:
                result = job.context.run(job.function, job.argument)
            except BaseException as raised:  # noqa: BLE001 - whatever a callback raises costs one retry only
                error = raised
            job.ended.append((result, error))
            try:
                job.future.get_loop().call_soon_threadsafe(self._end, job)
            except RuntimeError:  # the event loop is closed
                return

    def _end(self, job: _Job) -> None:
        self._busy -= 1
        if not job.future.done():  # cancelled
            job.future.set_result(job.ended[0])


async def _given(result: Any) -> Any:
    return await result


def is_blocking(function: Callable[[Any], Any]) -> bool:
    """Return whether a function is to run in a thread: whatever is not a coroutine function."""
    return not (iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__))
