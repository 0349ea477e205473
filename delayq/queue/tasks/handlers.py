"""Registers the functions that process messages: the callback of a queue, its tasks, those of schedules and names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from delayq.broker.context import QueueContext
from delayq.broker.message.attributes import check_message_name
from delayq.broker.scripts import MAX_IDS
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, NoCallbackError, short_repr
from delayq.options import Settings
from delayq.queue.control.limit_calls import declare_call
from delayq.queue.sending.message_options import NewMessage
from delayq.values.checks import check_int
from delayq.values.codec import Codec, recode, stable_encode
from delayq.values.plain import AnnotatedType
from delayq.worker.drivers.work_buffer import Callback

if TYPE_CHECKING:
    from delayq.queue.consuming.unhandled import UnhandledMessages
    from delayq.queue.hooks.hooks import Hooks
    from delayq.queue.inspecting.message_info import MessageInfo
    from delayq.queue.tasks.tasks import BaseTask
    from delayq.schedules.store import ScheduleOutcome
    from delayq.values.breaker import Breaker
    from delayq.values.rates import Pace

F = TypeVar("F", bound=Callable[..., Any])

MAX_NAMES = 1024
"""Names of messages whose functions are remembered."""
MISSING: Any = object()
"""Stands for no function, where `batch_callback` is used as a decorator with arguments."""


class HandlerRegistry:
    """The functions of one queue: its callback, its tasks, those of the declared schedules, those of names."""

    def __init__(self, queue: str, settings: Settings, encode: Callable[[Any], bytes], *, awaits: bool = False) -> None:
        """Start empty; coroutine functions are allowed if the queue `awaits` them."""
        self._queue = queue
        self._settings = settings
        self.encode = encode
        self._awaits = awaits
        self._callback: Callback | None = None
        self._functions: Mapping[str, Callable[[Any], Any]] = MappingProxyType({})
        self._named: Mapping[str, Callable[[Any], Any]] = MappingProxyType({})
        self._tasks: Mapping[str, BaseTask[..., Any]] = MappingProxyType({})
        self.returns: dict[str, AnnotatedType] = {}
        """What tasks return by their annotations, by name; read wherever the results of the queue are."""
        self.declared: Mapping[str, bytes] = MappingProxyType({})
        """The declared schedules by name, encoded as they are stored."""
        limit = (settings.rate_limit, settings.running)
        self.limits: Mapping[str | None, tuple[Pace | None, int | None]] = MappingProxyType(
            {} if limit == (None, None) else {None: limit}
        )
        """The limits of tasks by name; that of None is the queue's."""
        self.stored = False
        """Whether this process has stored in Redis what it declares."""
        self._logged = False
        """Whether it has logged which schedules are left over."""
        self.hooks: Hooks | None = None
        """Those of the program, if it has any."""
        self.around: Callable[[Callback], Callback] | None = None
        """Puts something around the callback whenever consuming starts, such as spans; None for nothing."""

    def of_queue(self, name: str, codec: Codec, own: Codec) -> HandlerRegistry:
        """Return a registry with the same functions for another queue, whose `own` codec may differ from `codec`."""
        registry = copy(self)
        registry.__dict__.pop("_unhandled", None)
        registry.__dict__.update(_queue=name, stored=False)
        if own is not codec:
            registry.encode = stable_encode(own)
            specs = {schedule: spec.partition(b"\n") for schedule, spec in self.declared.items()}
            declared = {
                schedule: definition + end + recode(payload, codec, own)
                for schedule, (definition, end, payload) in specs.items()
            }
            registry.declared = MappingProxyType(declared)
        return registry

    def callback(self, function: F) -> F:
        """Register the function that processes one message; returns it."""
        self._set(Callback(self._checked(function, "callback")))
        return function

    def batch_callback(self, function: Any, most: int) -> Any:
        """Register the function that processes up to `most` messages at a time; without one, return a decorator."""
        most = check_int(most, "most", 1, MAX_IDS)

        def register(function: F) -> F:
            self._set(Callback(self._checked(function, "batch_callback"), most))
            return function

        return register if function is MISSING else register(function)

    def _set(self, callback: Callback) -> None:
        if self._callback not in (None, callback):  # a decorator that runs again is harmless
            raise ConfigurationError(
                f"queue {self._queue} has a callback already: {_describe(self._callback)}; use another queue, or call"
                " both functions in one callback"
            )
        self._callback = callback

    def schedule(self, name: str | None, options: Mapping[str, Any]) -> Callable[[F], F]:
        """Return a decorator that declares a schedule and registers its function, whose name is the default."""
        # Imported late: it is slow to load, and most queues have no schedules.
        from delayq.schedules.definition import make_schedule, pack

        if any(callable(options.get(rule)) for rule in ("every", "cron", "rrule")):
            raise ConfigurationError('give the interval or expression of a schedule: @queue.every("15m")')

        if isinstance(options.get("payload"), NewMessage):
            raise ConfigurationError("the payload of a declared schedule is no NewMessage: it calls its own function")

        def register(function: F) -> F:
            self._checked(function, "the function of a schedule")
            schedule = getattr(function, "__name__", "") if name is None else name
            spec = pack(make_schedule(schedule, options), self._settings, self.encode, declared=True)
            if schedule in self.declared:
                raise ConfigurationError(f"schedule {schedule} is declared twice: give one of them another name")
            self._functions = {**self._functions, schedule: function}
            self.declared = {**self.declared, schedule: spec}
            return function

        return register

    def on(self, name: str) -> Callable[[F], F]:
        """Return a decorator that registers the function for a name, and for those that begin with it."""
        if callable(name):
            raise ConfigurationError('give the name of the messages: @queue.on("invoice.")')
        check_message_name(name)

        def register(function: F) -> F:
            self._checked(function, f"the function for {name}")
            self._refuse_taken(name, function)
            self._named = {**self._named, name: function}
            return function

        return register

    def task(self, task: BaseTask[..., Any]) -> None:
        """Register a task by its name and its aliases."""
        if not self._awaits and inspect.iscoroutinefunction(task.function):
            raise ConfigurationError(f"task {task.name} is a coroutine function: use it with an AsyncDelayQueue")
        names = (task.name, *task.aliases)
        for name in names:
            self._refuse_taken(name, task.function)
        self._tasks = {**self._tasks, **dict.fromkeys(names, task)}
        self.returns |= dict.fromkeys(names, AnnotatedType(task.arguments.returns))
        if task.limit != (None, None):
            self.limits = {**self.limits, task.name: task.limit}

    def in_one_form(self, name: str | None, payload: Any) -> Any:
        """Return the payload of a message with a name in one form for all calls of its task that are equal."""
        task = self._tasks.get(name or "")
        return payload if task is None else task.arguments.canonical(payload)

    @property
    def declares(self) -> bool:
        """Whether the program declares schedules or limits, which are stored when consuming starts."""
        return bool(self.declared or self.limits)

    def _refuse_taken(self, name: str, function: Any) -> None:
        """Refuse a name that another function has; a decorator that runs again is harmless."""
        task = self._tasks.get(name)
        known = self._named.get(name, function) if task is None else task.function
        if known != function:
            raise ConfigurationError(f"name {name} has a function already: {_describe(Callback(known))}")

    def put_declared(self, context: QueueContext) -> Operation[dict[str, ScheduleOutcome]]:
        """Store declared limits and schedules; returns what became of the schedules. First, log schedules left over."""
        if self.limits:
            yield [
                declare_call(context.calls, name, pace=pace, places=places)
                for name, (pace, places) in self.limits.items()
            ]
            self.stored = True
        if not self.declared:
            return {}
        from delayq.schedules.selection import log_orphans  # slow to load, and most queues have no schedules
        from delayq.schedules.store import put

        outcomes = yield from put(context, self.declared)
        if not self._logged:
            yield from log_orphans(context, self.declared)
        self.stored = self._logged = True
        return outcomes

    def _checked(self, function: Any, name: str) -> Any:
        if not callable(function):
            raise ConfigurationError(f"{name} must be callable, not {short_repr(function)}")
        if not self._awaits and inspect.iscoroutinefunction(function):
            raise ConfigurationError(f"{name} is a coroutine function: use it with an AsyncDelayQueue")
        if not _takes_one_argument(function):
            text = f"{name} must take one argument, not {inspect.signature(function)}: {_describe(Callback(function))}"
            raise ConfigurationError(text)
        return function

    @cached_property
    def _unhandled(self) -> UnhandledMessages:
        from delayq.queue.consuming.unhandled import (
            UnhandledMessages,  # slow to load, and most queues have no schedules
        )

        return UnhandledMessages(self._queue, self._settings.unknown_for)

    def find(self) -> Callback:
        """Return the callback that dispatches the queue's messages; raises `NoCallbackError` if there is none."""
        found = self._find()
        if self.hooks is not None:
            found = self.hooks.around(found, self._queue)
        return found if self.around is None else self.around(found)

    def _find(self) -> Callback:
        callback, functions, named, tasks = self._callback, self._functions, self._named, self._tasks
        if not functions and not named and not tasks:
            if callback is None:
                raise NoCallbackError(f"queue {self._queue} has no callback: register one with @queue.callback")
            return callback._replace(breakers=self._breakers())
        if callback is not None and callback.max_batch is not None:
            raise ConfigurationError(
                "a queue with tasks, declared schedules or functions for names cannot have a batch_callback"
            )
        from delayq.schedules.definition import DECLARED_HEADER, HEADER

        unhandled = self._unhandled
        others: Callable[[Any], Any] = unhandled if callback is None else callback.function

        exact = {name: task.handler(self._unhandled.misfit) for name, task in tasks.items()}
        find_named = lru_cache(MAX_NAMES)(partial(_function_for, exact, named, unhandled))
        is_named = bool(named or tasks)

        def select(message: Any) -> Callable[[Any], Any]:
            if is_named and (name := message.name):
                return find_named(name)
            headers = message.headers
            return functions.get(headers.get(HEADER, ""), unhandled if DECLARED_HEADER in headers else others)

        limited = any(task.timeout for task in tasks.values())
        return Callback(
            lambda message: select(message)(message), select=select, limited=limited, breakers=self._breakers()
        )

    def _breakers(self) -> dict[str | None, Breaker]:
        found: dict[str | None, Breaker | None] = {None: self._settings.breaker}
        found |= {task.name: task.breaker for task in self._tasks.values()}
        return {name: breaker for name, breaker in found.items() if breaker is not None}

    def problem(self, message: MessageInfo, payload: Any) -> str:
        """Return why no function of this process takes a message with this payload; '' if one does."""
        from delayq.schedules.definition import DECLARED_HEADER, HEADER

        schedule, name = message.headers.get(HEADER), message.name
        if name in self._tasks:
            return self._tasks[name].problem(payload)
        if name and (self._tasks or self._named):
            return "" if any(map(name.startswith, self._named)) else f"no handler for messages with the name {name}"
        if schedule in self._functions or (self._callback is not None and DECLARED_HEADER not in message.headers):
            return ""
        return "no handler for this message" if schedule is None else f"no handler for schedule {schedule}"


def _function_for(
    exact: Mapping[str, Callable[[Any], Any]],
    beginnings: Mapping[str, Callable[[Any], Any]],
    unhandled: Callable[[Any], Any],
    name: str,
) -> Callable[[Any], Any]:
    """Return the function of a name: of the name itself, else of its longest beginning, else `unhandled`."""
    if name in exact:
        return exact[name]
    known = [one for one in beginnings if name.startswith(one)]
    return beginnings[max(known, key=len)] if known else unhandled


def _takes_one_argument(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C do not tell
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def _describe(callback: Callback | None) -> str:
    """Return the name of a callback and where it is written."""
    function = inspect.unwrap(callback.function) if callback else None
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", None) or short_repr(function)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
