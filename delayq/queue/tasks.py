"""Tasks: functions that are called with the arguments of a message, chosen by its name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import update_wrapper
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast

from delayq.backoff import Backoff, FailurePolicy, IsFailure
from delayq.breaker import Breaker, check_breaker
from delayq.broker.attributes import check_message_name, check_timeout
from delayq.broker.expiry import Missed, check_expiry
from delayq.broker.ids import check_unique
from delayq.broker.priority import check_priority
from delayq.broker.results import check_retention
from delayq.errors import ConfigurationError, short_repr
from delayq.options import check_retries
from delayq.queue.producer import NewMessage, Sent, due_text
from delayq.queue.task_arguments import MisfitError, TaskArguments
from delayq.rates import check_limits
from delayq.times import Duration
from delayq.worker.results import keep_result

if TYPE_CHECKING:
    from delayq.worker.message import AsyncMessage, Message

P = ParamSpec("P")
R = TypeVar("R")

_current: ContextVar[Any] = ContextVar("delayq_message")


class TaskSendOptions(TypedDict, total=False):
    """The options of one send of a task; see `DelayQueue.send_delay_msg`."""

    delay: Duration
    """How long from now the task is due; at once by default."""
    at: datetime
    """When it is due, an aware datetime; instead of `delay`."""
    retries: int
    """How often it is delivered again after a failure; by default that of the task, or `default_retries`."""
    id: str
    """The id of the message; a send of the same id is answered `exists`."""
    headers: Mapping[str, str]
    expires: Duration | datetime
    """When it expires, so long after its due time or at a time; by default that of the task, or never."""
    missed: Missed
    """What becomes of it then: `dead`, or `drop` to discard it."""
    priority: int
    """What comes first of what is due, from -100 to 100, larger first; by default that of the task, or 0."""
    unique: Literal["payload"]
    """Let the name and the arguments make the id: a second send of the same is answered `exists`."""
    unique_for: Duration
    """How long from the send its id is held: a second send of the id is not stored, also after the end."""
    unique_after: Duration
    """How long from its end its id is held."""
    debounce: Duration
    """How long after the last send of the id it is due, in place of `delay`: the last arguments win."""
    at_most: Duration
    """How long after the first of these sends it is due at the latest."""
    retention: Duration
    """How long its result is kept; by default that of the task, or of the queue."""
    timeout: Duration
    """How long it may run, then the attempt has failed; by default that of the task."""
    replace: bool | Literal["after"]
    """Whether a waiting message with this id gets the new arguments and due time; `after` follows a running one too."""


class TaskOptions(TypedDict, total=False):
    """The options of a task."""

    name: str
    """The name of its messages; by default that of the function."""
    aliases: Sequence[str]
    """Names that it had before: messages with them, already sent, still call it."""
    retries: int
    """How often its messages are delivered again after a failure; by default `default_retries`."""
    backoff: Backoff | Duration
    """How long it waits after a failure; by default `nack_delay`."""
    is_failure: IsFailure | None
    """Whether an exception is a failure; by default as the queue says."""
    delay: Duration
    """How long after a send it is due; at once by default."""
    expires: Duration
    """How long after its due time it expires; never by default."""
    missed: Missed
    """What becomes of it then: `dead`, by default, or `drop` to discard it."""
    priority: int
    """What comes first of what is due, from -100 to 100, larger first; 0 by default."""
    unique: Literal["payload"]
    """Let the name and the arguments make the id of each message."""
    unique_for: Duration
    """How long from its send an id is held; by default as long as its message lives."""
    unique_after: Duration
    """How long from the end of its message an id is held; not at all by default."""
    debounce: Duration
    """How long after the last of several sends of one id it is due; by default the first send wins."""
    at_most: Duration
    """How long after the first of them it is due at the latest; no limit by default."""
    retention: Duration
    """How long what the function returns is kept; by default as the queue says."""
    timeout: Duration
    """How long it may run, then the attempt has failed; by default as `max_consume_duration` says."""
    rate_limit: str
    """How many of its messages may start in a time, over all processes, such as `"200/s"`; no limit by default."""
    burst: int
    """How many may start at once under `rate_limit`; by default what it allows in 100 ms, and one more."""
    running: int
    """How many may run at a time, over all processes; any number by default."""
    breaker: Breaker
    """When to start none of its messages for a time because most have failed; never by default."""


class BaseTask(Generic[P, R]):
    """A function that can be called directly, and by a message that carries its arguments."""

    def __init__(self, function: Callable[P, R], queue: Any, options: TaskOptions) -> None:
        """Check the function and the options; raises `ConfigurationError`."""
        if not callable(function):
            raise ConfigurationError(f"a task must be callable, not {short_repr(function)}")
        unknown = options.keys() - TaskOptions.__annotations__.keys()
        if unknown:
            known = ", ".join(TaskOptions.__annotations__)
            raise ConfigurationError(f"a task has no option {min(unknown)}: it has {known}")
        # A function can be a task of several queues.
        self.function: Callable[P, R] = function.function if isinstance(function, BaseTask) else function
        """The function, as it was decorated."""
        self._queue = queue
        own_name = getattr(function, "__name__", "")
        self.name = check_message_name(options.get("name", own_name))
        """The name of its messages."""
        self.aliases = _check_aliases(options.get("aliases", ()))
        """Other names by which it is called."""
        self.arguments = TaskArguments(self.name, self.function, queue._codec)  # noqa: SLF001 - it encodes them
        """What the function takes."""
        given: FailurePolicy = queue.settings.policy
        backoff, is_failure = options.get("backoff", given.backoff), options.get("is_failure", given.is_failure)
        self.policy = FailurePolicy.of(backoff, is_failure, given.max_snoozes)
        """What its failures mean."""
        self.timeout = check_timeout(options.get("timeout"))
        """How long it may run (ms); 0 as its queue says."""
        defaults: TaskSendOptions = {}
        if "retries" in options:
            defaults["retries"] = check_retries(options["retries"])
        if "delay" in options:
            due_text(options["delay"], None)  # refuses one that is invalid
            defaults["delay"] = options["delay"]
        check_expiry(options.get("expires"), options.get("missed", "dead"), 0)
        if "expires" in options:
            defaults["expires"] = options["expires"]
            defaults["missed"] = options.get("missed", "dead")
        if "priority" in options:
            defaults["priority"] = check_priority(options["priority"])
        if "unique" in options:
            check_unique(options["unique"])
            defaults["unique"] = options["unique"]
        if "retention" in options:
            check_retention(options["retention"], 0)
            defaults["retention"] = options["retention"]
        self._options = cast("TaskSendOptions", {**defaults, **_same_id_options(options)})
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
        unknown = options.keys() - TaskSendOptions.__annotations__.keys()
        if unknown:
            known = ", ".join(TaskSendOptions.__annotations__)
            raise ConfigurationError(f"a send has no option {min(unknown)}: it has {known}")
        if "at" in options and "delay" in options:
            raise ConfigurationError("give delay or at, but not both")
        timed, debounced = options.keys() & {"delay", "at"}, "debounce" in options
        if timed and debounced:
            raise ConfigurationError(f"give {min(timed)} or debounce, but not both: debounce says when it is due")
        instead = {"delay", "at", "debounce", "at_most"} if timed or debounced else set[str]()
        if "id" in options:
            instead.add("unique")  # that of the task, which makes the id
        kept = {name: value for name, value in self._options.items() if name not in instead}
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed._options = cast("TaskSendOptions", {**kept, **options})
        return changed

    def message(self, /, *args: P.args, **kwargs: P.kwargs) -> NewMessage[Any]:
        """Return the message that calls the function with these arguments, for `send_many`.

        Raises `PayloadError` if the function does not take them.
        """
        options: dict[str, Any] = dict(self._options)
        if "replace" in options:
            raise ConfigurationError("replace is an option of send_many, not of one of its messages")
        if "debounce" in options:
            raise ConfigurationError("debounce is an option of a single send, not of a message of send_many")
        return NewMessage(self.arguments.bind(args, kwargs), name=self.name, **options)

    def _send(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        options: dict[str, Any] = dict(self._options)
        send = self._queue.send_schedule_msg if "at" in options else self._queue.send_delay_msg
        return send(self.arguments.bind(args, kwargs), name=self.name, **options)

    def problem(self, payload: Any) -> str:
        """Return why the function does not take this payload; '' if it does."""
        try:
            self.arguments.read(payload)
        except MisfitError as error:
            return f"task {self.name} does not take these arguments: {error}"
        return ""

    def handler(self, misfit: Callable[[Any, str], Exception]) -> Callable[[Any], Any]:
        """Return the function that processes a message.

        What `misfit` returns is raised for a message whose arguments do not fit; it is told why.
        """
        function: Any = self.function
        read, policy, timeout = self.arguments.read, self.policy, self.timeout

        def arguments_of(message: Any) -> dict[str, Any]:
            delivery = message._delivery  # noqa: SLF001 - what a message wraps
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
    keep_result(message._delivery, False, message._context)  # noqa: FBT003, SLF001 - what a message wraps
    return None


def _same_id_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for sends of the same id; raise `ConfigurationError` for those that are invalid."""
    from delayq.broker.same_id import check_holds
    from delayq.queue.debouncing import replacing

    given = {name: options[name] for name in ("unique_for", "unique_after", "debounce", "at_most") if name in options}
    if given:
        how = replacing(
            replace=False, debounce=given.get("debounce"), at_most=given.get("at_most"), delay=options.get("delay")
        )
        if "unique_for" in given or "unique_after" in given:
            check_holds(given.get("unique_for"), given.get("unique_after"), "any", replace=how)
    return given


def _check_aliases(aliases: Sequence[str]) -> tuple[str, ...]:
    if isinstance(aliases, str) or not isinstance(aliases, Sequence):
        raise ConfigurationError(f"aliases must be a list of names, not {short_repr(aliases)}")
    return tuple(map(check_message_name, aliases))
