"""Tasks: functions that are called with the arguments of a message, chosen by its name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from functools import partial, update_wrapper
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from delayq.broker.message.attributes import check_message_name, check_timeout
from delayq.errors import ConfigurationError, short_repr
from delayq.queue.sending.message_options import NewMessage
from delayq.queue.sending.producer import Sent
from delayq.queue.tasks.collected_arguments import called_once, read_lists
from delayq.queue.tasks.task_arguments import MisfitError, TaskArguments
from delayq.queue.tasks.task_options import TaskOptions, TaskSendOptions, has_fields, send_options
from delayq.values.backoff import FailurePolicy
from delayq.values.breaker import check_breaker
from delayq.values.checks import check_options
from delayq.values.codec import Codec
from delayq.values.other_names import Hinting
from delayq.values.rates import check_limits
from delayq.worker.delivery.results import keep_result

if TYPE_CHECKING:
    from delayq.worker.delivery.message import AsyncMessage, Message

P = ParamSpec("P")
R = TypeVar("R")

_WITH_FIELDS = ("key", "group")
"""The options whose texts may have fields for the arguments of a call."""
_current: ContextVar[Any] = ContextVar("delayq_message")


class BaseTask(Hinting, Generic[P, R]):
    """A function that can be called directly, and by a message that carries its arguments."""

    def __init__(self, function: Callable[P, R], queue: Any, options: TaskOptions, codec: Codec) -> None:
        """Check the function and the options, for messages in this codec; raises `ConfigurationError`."""
        if not callable(function):
            raise ConfigurationError(f"a task must be callable, not {short_repr(function)}")
        check_options(options, TaskOptions.__annotations__)
        # A function can be a task of several queues.
        self.function: Callable[P, R] = function.function if isinstance(function, BaseTask) else function
        """The function, as it was decorated."""
        self._queue = queue
        own_name = getattr(function, "__name__", "")
        self.name = check_message_name(options.get("name", own_name))
        """The name of its messages."""
        self.aliases = _check_aliases(options.get("aliases", ()))
        """Other names by which it is called."""
        collects = options.get("collect") is not None
        called = called_once(self.name, self.function) if collects else self.function
        self.arguments = TaskArguments(self.name, called, codec)
        """What a send takes: with `collect`, one of each list that the function does."""
        self._read = partial(read_lists, self.arguments) if collects else self.arguments.read
        given: FailurePolicy = queue.settings.policy
        backoff, is_failure = options.get("backoff", given.backoff), options.get("is_failure", given.is_failure)
        self.policy = FailurePolicy.of(backoff, is_failure, given.max_snoozes, keeps_text=given.keeps_text)
        """What its failures mean."""
        self.timeout = check_timeout(options.get("timeout"))
        """How long it may run (ms); 0 as its queue says."""
        self._options = self._checked(send_options(options))
        self.limit = check_limits(options.get("rate_limit"), options.get("burst"), options.get("running"))
        """Its rate and its places, None for each that it does not limit."""
        self.breaker = check_breaker(options.get("breaker"))
        update_wrapper(self, function, updated=())

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now; nothing is sent."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """Show the name."""
        return f"<{type(self).__name__} {self.name} of queue {self._queue.name}>"

    def options(self, **options: Unpack[TaskSendOptions]) -> Self:
        """Return the task with options for its sends: `remind.options(delay="1h", id="r-42").send(42)`."""
        check_options(options, TaskSendOptions.__annotations__)
        if "at" in options and "delay" in options:
            raise ConfigurationError("give delay or at, but not both")
        timed, debounced = options.keys() & {"delay", "at"}, options.get("debounce") is not None
        grouped = (options if "group" in options else self._options).get("group") is not None
        if timed and debounced and not grouped:
            raise ConfigurationError(f"give {min(timed)} or debounce, but not both: debounce says when it is due")
        if grouped:  # it waits, and then joins its group
            instead = {"delay", "at"} if timed else set[str]()
        else:
            instead = {"delay", "at", "debounce", "at_most"} if timed or debounced else set[str]()
            instead.update(["collect"] * bool(timed))
            instead.update(["jitter"] * debounced)
        if "id" in options:
            instead.add("unique")  # that of the task, which makes the id
        kept = {name: value for name, value in self._options.items() if name not in instead}
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed._options = self._checked(cast("TaskSendOptions", {**kept, **options}))
        return changed

    def message(self, /, *args: P.args, **kwargs: P.kwargs) -> NewMessage[Any]:
        """Return the message that calls the function with these arguments, for `send_many`.

        Raises `PayloadError` if the function does not take them.
        """
        options: dict[str, Any] = dict(self._options)
        if options.pop("replace", False):
            raise ConfigurationError("replace is an option of send_many, not of one of its messages")
        if any(options.pop(option, None) is not None for option in ("debounce", "at_most", "collect", "group")):
            raise ConfigurationError("debounce is an option of a single send, not of a message of send_many")
        payload = self._bind(options, args, kwargs)
        return NewMessage(payload, name=self.name, **options)

    def _send(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        options: dict[str, Any] = dict(self._options)
        send = self._queue.send_schedule_msg if "at" in options else self._queue.send_delay_msg
        payload = self._bind(options, args, kwargs)
        return send(payload, name=self.name, **options)

    def _checked(self, options: TaskSendOptions) -> TaskSendOptions:
        for option in _WITH_FIELDS:
            if has_fields(pattern := options.get(option)):
                self.arguments.check_pattern(cast("str", pattern), option)
        return options

    def _bind(self, options: dict[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the payload of a call, and fill the fields of its key and group."""
        payload = self.arguments.bind(args, kwargs)
        for option in _WITH_FIELDS:
            if has_fields(options.get(option)):
                options[option] = self.arguments.fill(options[option], payload)
        return payload

    def problem(self, payload: Any) -> str:
        """Return why the function does not take this payload; '' if it does."""
        try:
            self._read(payload)
        except MisfitError as error:
            return f"task {self.name} does not take these arguments: {error}"
        return ""

    def handler(self, misfit: Callable[[Any, str], Exception]) -> Callable[[Any], Any]:
        """Return the function that processes a message.

        What `misfit` returns is raised for a message whose arguments do not fit; it is told why.
        """
        function: Any = self.function
        read, policy, timeout = self._read, self.policy, self.timeout

        def arguments_of(message: Any) -> dict[str, Any]:
            delivery = message.delivery
            delivery.policy, delivery.timeout = policy, delivery.timeout or timeout
            try:
                return read(message.payload)
            except MisfitError as error:
                raise misfit(message, str(error)) from None

        async def await_function(message: Any) -> object:
            arguments, before = arguments_of(message), _current.set(message)
            try:
                return _result(await function(**arguments), message)
            finally:
                _current.reset(before)

        def call_function(message: Any) -> object:
            arguments, before = arguments_of(message), _current.set(message)
            try:
                return _result(function(**arguments), message)
            finally:
                _current.reset(before)

        awaits = iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)
        return await_function if awaits else call_function


class Task(BaseTask[P, R]):
    """A task of a `DelayQueue`: `remind.send(42)` sends a message, and a worker calls `remind(42)`.

    Arguments are stored by name, as an object such as `{"user": 42}`. They are checked against the parameters and
    their types at the send, and converted to these types at the delivery: a `datetime` arrives as one.
    """

    def send(self, /, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send a message that calls the function with these arguments, by the options of the task.

        Raises `PayloadError` if the function does not take them, and what `send_delay_msg` raises.
        """
        return cast("Sent", self._send(args, kwargs))


class AsyncTask(BaseTask[P, R]):
    """A task of an `AsyncDelayQueue`; see `Task`."""

    def send(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Sent]:
        """Send a message that calls the function with these arguments, by the options of the task.

        Raises `PayloadError` if the function does not take them, and what `send_delay_msg` raises.
        """
        return cast("Coroutine[Any, Any, Sent]", self._send(args, kwargs))


def current_message() -> Message[Any] | AsyncMessage[Any]:
    """Return the message whose task is running; raises `ConfigurationError` outside of a task."""
    message = _current.get(None)
    if message is None:
        raise ConfigurationError("current_message() is only known while a task runs")
    return cast("Message[Any]", message)


def _result(result: object, message: Any) -> object:
    """Return what decides on the message: any result of a task is a success, even False, which is kept as one."""
    if result is not False:
        return result
    keep_result(message.delivery, False, message.context)  # noqa: FBT003
    return None


def _check_aliases(aliases: Sequence[str]) -> tuple[str, ...]:
    if isinstance(aliases, str) or not isinstance(aliases, Sequence):
        raise ConfigurationError(f"aliases must be a list of names, not {short_repr(aliases)}")
    return tuple(map(check_message_name, aliases))
