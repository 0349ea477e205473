"""Registering the functions that process a queue's messages: its callback, and those of schedules declared in code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from delayq.clock import Duration
from delayq.codec import Codec
from delayq.config import Settings, whole
from delayq.errors import ConfigurationError, NoCallbackError, shown
from delayq.face import AsyncFace, BlockingFace
from delayq.script import MOST_IDS
from delayq.workbench import Callback

if TYPE_CHECKING:
    from delayq.schedules.definition import ScheduleOptions
    from delayq.schedules.face import AsyncSchedules, Schedules

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_MISSING: Any = object()


class Registers:
    """Holds the functions of a queue."""

    name: str
    settings: Settings
    _codec: Codec
    _callback: Callback | None = None
    _functions: Mapping[str, Callable[[Any], Any]] = MappingProxyType({})
    _declared: Mapping[str, bytes] = MappingProxyType({})
    _awaits = False

    def callback(self, function: F) -> F:
        """Register the function that processes messages, as a decorator or by a call; returns it unchanged.

        It gets a message. Returning acknowledges it; `False` or an exception takes one retry; raising `Retry`,
        `Reject` or `Discard` says more. A queue has one callback, and the last one registered counts.
        """
        self._callback = Callback(self._checked_function(function, "callback"))
        return function

    @overload
    def batch_callback(self, function: F, *, most: int = 100) -> F: ...
    @overload
    def batch_callback(self, *, most: int = 100) -> Callable[[F], F]: ...
    def batch_callback(self, function: Any = _MISSING, *, most: int = 100) -> Any:
        """Register the function that processes messages in batches, as a decorator or by a call; see `callback`.

        It gets a list of 1 to `most` messages (up to 1000): those that are there, for nothing waits for a batch to
        fill up. Returning acknowledges all that were not settled by hand; `False` or an exception takes one retry
        from each, and `Retry`, `Reject` or `Discard` is about all. A list with an entry for each message judges each
        by its entry as by the result of a callback, where an exception counts as raised. `concurrency` is the number
        of batches at a time.
        """
        most = whole(most, "most", 1, MOST_IDS)

        def register(function: F) -> F:
            self._callback = Callback(self._checked_function(function, "batch_callback"), most)
            return function

        return register if function is _MISSING else register(function)

    def cron(
        self, expression: str, *, tz: str | None = None, name: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[F], F]:
        """Declare a schedule by a cron expression in a time zone (`UTC`), and register what processes its messages.

        A decorator, as `@queue.cron("0 9 * * MON-FRI", tz="Europe/Berlin")`; the function is registered as by
        `callback`, for the messages of this schedule alone. Its name is that of the function, unless one is given. The
        schedule is put into Redis when consuming starts, or by `queue.schedules.apply()`.
        """
        return self._schedule(name, {**options, "cron": expression, "tz": tz})

    def every(
        self, interval: Duration, *, name: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[F], F]:
        """Declare a schedule by the time between two occurrences, as `@queue.every("15m")`; see `cron`.

        They are counted from `start`, by default from 1970, so that all processes agree: every 15 minutes is at the
        quarters of an hour in UTC.
        """
        return self._schedule(name, {**options, "every": interval})

    def _schedule(self, name: str | None, options: Mapping[str, Any]) -> Callable[[F], F]:
        # Not before: it takes its time, and most queues have no schedules.
        from delayq.schedules.definition import make_schedule, pack

        def register(function: F) -> F:
            self._checked_function(function, "the function of a schedule")
            named = getattr(function, "__name__", "") if name is None else name
            spec = pack(make_schedule(named, options), self.settings, self._codec.encode, declared=True)
            if named in self._declared:
                raise ConfigurationError(f"schedule {named} is declared already: give one of them another name")
            self._functions = {**self._functions, named: function}
            self._declared = {**self._declared, named: spec}
            return function

        return register

    def _checked_function(self, function: Any, name: str) -> Any:
        if not callable(function):
            raise ConfigurationError(f"{name} must be callable, not {shown(function)}")
        if not self._awaits and inspect.iscoroutinefunction(function):
            raise ConfigurationError(f"{name} is a coroutine function: those are for an AsyncDelayQueue")
        return function

    def _found_callback(self) -> Callback:
        callback, functions = self._callback, self._functions
        if not functions:
            if callback is None:
                raise NoCallbackError(f"queue {self.name} has no callback: register one with @queue.callback")
            return callback
        if callback is not None and callback.most is not None:
            raise ConfigurationError("schedules declared in code have a function each, which takes no batch_callback")
        from delayq.schedules.definition import HEADER

        others: Callable[[Any], Any] = _refuse if callback is None else callback.function

        def dispatch(message: Any) -> Any:
            return functions.get(message.headers.get(HEADER, ""), others)(message)

        return Callback(dispatch)


def _refuse(message: Any) -> None:
    from delayq.schedules.definition import HEADER

    name = message.headers.get(HEADER)
    whose = "no schedule" if name is None else f"schedule {name}, which is not declared here"
    raise NoCallbackError(f"this consumer has no callback, and the message is of {whose}")


class Scheduler(Registers, BlockingFace[T]):
    """Functions and schedules of a queue."""

    @cached_property
    def schedules(self) -> Schedules:
        """The schedules of this queue."""
        from delayq.schedules.face import Schedules

        return Schedules(self)


class AsyncScheduler(Registers, AsyncFace[T]):
    """Functions and schedules of a queue."""

    @cached_property
    def schedules(self) -> AsyncSchedules:
        """The schedules of this queue."""
        from delayq.schedules.face import AsyncSchedules

        return AsyncSchedules(self)
