"""What the two delay queues share: their keys and calls, and the functions for schedules and names."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack

from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.keys import Keys, registry
from delayq.broker.requests import RedisCommand, ScriptCall
from delayq.broker.results import ResultCodec
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, DelayqError, PayloadError, QueueInUseError, ServerError
from delayq.privacy.redaction import Redacted
from delayq.queue.base import M, QueueBase, R, T
from delayq.queue.control.registered import is_in_use, register, tell_unregistered
from delayq.queue.server_check import Opening, opening
from delayq.queue.tasks.handlers import MISSING
from delayq.values.codec import codec_of_results, find_codec
from delayq.values.text import pluralize
from delayq.values.times import Duration

if TYPE_CHECKING:
    from delayq.queue.tasks.task_options import TaskOptions
    from delayq.schedules.definition import ScheduleOptions


class RemoveReply(NamedTuple):
    """What keeps a queue from being removed."""

    messages: int
    dead: int
    schedules: int
    consumers: int
    cold: int


def remove_call(calls: Calls) -> ScriptCall[RemoveReply]:
    """Delete every key of a queue that has nothing any more; returns what it has, all 0 if it was removed."""
    return calls.script("remove", [calls.now], RemoveReply._make)


def remove(context: QueueContext, prefix: str) -> Operation[bool]:
    """Remove a queue that has nothing any more; returns whether it was in use. Raises `QueueInUseError`.

    A user who may remove this queue alone may not write the registry: its name stays there, and stands for no queue.
    """
    was_used, found = yield [is_in_use(prefix, context.queue), remove_call(context.calls)]
    if any(found):
        raise QueueInUseError(f"{context.queue} is not removed, it has {_told(found)}")
    with suppress(ServerError):
        yield [RedisCommand(("SREM", registry(prefix), context.queue), bool)]
        # A process that has opened the queue anew since then has listed it before its name was taken off.
        (is_back,) = yield [is_in_use(prefix, context.queue)]
        if is_back:
            yield [register(prefix, context.queue)]
    return bool(was_used)


def _told(found: RemoveReply) -> str:
    """Return what a queue has, with what to do about it."""
    things = {
        "message": (found.messages, "purge it"),
        "dead message": (found.dead, "purge its dead letter"),
        "schedule": (found.schedules, "remove them"),
        "live consumer": (found.consumers, "stop them"),
        "cold message": (found.cold, "bring them back, or purge it"),
    }
    return ", ".join(f"{pluralize(count, what)} ({todo})" for what, (count, todo) in things.items() if count)


class DelayBase(QueueBase[T, M]):
    """What the two delay queues share: their keys and calls."""

    context: QueueContext

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Make a queue over partitions, of a class of its own, if the option `partitions` says so."""
        if "partitions" in options and not hasattr(cls, "partition_of"):
            # Few queues have partitions, and their module is above this one.
            kind: type[Self] = import_module("delayq.queue.partitioned.partitioned_queue").kind_of(cls)
            return object.__new__(kind)
        return object.__new__(cls)

    def _make_context(self) -> QueueContext:
        settings, codec = self.settings, find_codec(self._options.get("codec", "json"), None, self.name)
        results = ResultCodec(codec_of_results(codec), settings.max_result, keeps_text=settings.policy.keeps_text)
        results.types = self.handlers.returns
        hides = isinstance(codec, Redacted)
        return QueueContext(self._make_calls(), settings, self.codec.decode, self.name, results, hides=hides)

    def _make_calls(self) -> Calls:
        return Calls(Keys.of(self.prefix, self.name))

    def _opening(self) -> list[Any]:
        requests: list[Any] = list(opening(self.context.calls.keys, self.prefix, self.name))
        settings, calls = self.settings, self.context.calls
        events, window = settings.events, settings.dedupe_window
        max_ids = settings.dedupe_max if "dedupe_max" in self._options else None
        limits = {"dead_max": settings.dead_max, "dead_ttl": settings.dead_ttl}
        dead = [value if name in self._options else None for name, value in limits.items()]
        step, slo, redact = settings.priority_step, settings.lateness_slo, settings.redact
        if any(value is not None for value in (events, window, *dead, step, slo, redact)):
            window_options: Any = {"dedupe_window": window, "dedupe_max": max_ids}
            others: Any = {"dead": dead, "priority_step": step, "lateness_slo": slo, "redact": redact}
            requests.append(calls.configure(events=events, **window_options, **others))
        return requests

    def _check(self, replies: list[Any]) -> None:
        super()._check(replies)
        refused = Opening.split(replies)[0].registered
        if refused and not isinstance(refused, DelayqError):
            tell_unregistered(self.prefix, self.name, refused)

    def _removing(self, opening: Callable[[], Any]) -> Operation[bool]:
        """Remove the queue; the next call that writes opens it again with `opening`."""
        listed = yield from remove(self.context, self.prefix)
        self.executor.opening, self.executor.check_at = opening, math.inf
        return listed

    def _put_declared(self) -> Operation[Any]:
        return self.handlers.put_declared(self.context)

    def cron(
        self, expression: str, *, tz: str | None = None, name: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[Callable[[M], R]], Callable[[M], R]]:
        """Declare a schedule with a cron expression, and register the function that processes its messages.

        Use it as a decorator: `@queue.cron("0 9 * * MON-FRI", tz="Europe/Berlin")`. The time zone is `UTC` by default.
        The function works like a `callback`, but only for messages of this schedule. The schedule has the name of the
        function unless you give one. It is stored in Redis when consuming starts, or by `queue.schedules.apply()`.
        """
        return self.handlers.schedule(name, {**options, "cron": expression, "tz": tz})

    def every(
        self, interval: Duration, *, tz: str | None = None, name: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[Callable[[M], R]], Callable[[M], R]]:
        """Declare a schedule with an interval, as in `@queue.every("15m")`; see `cron`.

        Intervals are counted from `start`, by default from 1970, so that all processes agree: every 15 minutes means
        at each quarter of an hour in UTC. With `tz`, an interval must be whole days, such as `"2d"`: it occurs at the
        same local time, that of `start` or midnight, also after a clock change.
        """
        return self.handlers.schedule(name, {**options, "every": interval, "tz": tz})

    def rrule(
        self, rule: str, *, tz: str | None = None, name: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Callable[[Callable[[M], R]], Callable[[M], R]]:
        """Declare a schedule with a recurrence rule of iCalendar, as in `@queue.rrule("FREQ=MONTHLY;BYDAY=-1FR")`.

        See `cron`. The rule counts from `start`, which also says the time of day if the rule does not.
        """
        return self.handlers.schedule(name, {**options, "rrule": rule, "tz": tz})

    def _register_task(self, kind: Any, function: Any, options: TaskOptions) -> Any:
        """Make and register a task of this kind; without a function, return the decorator that does."""
        if function is MISSING:
            return lambda decorated: self._register_task(kind, decorated, options)
        try:
            self.codec.encode({})
        except PayloadError as error:
            text = "tasks need a queue with the json codec and without a payload_type, or a codec of your own"
            raise ConfigurationError(text) from error
        task = kind(function, self, options, self.codec)
        self.handlers.task(task)
        return task

    def on(self, name: str) -> Callable[[Callable[[M], R]], Callable[[M], R]]:
        """Register the function that processes messages with this name, or whose name begins with it.

        Use it as a decorator: `@queue.on("invoice.")`. A task of the exact name counts first, then the function of the
        longest beginning. It works like a `callback`, which then only gets messages without a name. A name that no
        function here processes is left to other processes; see the option `unknown_for`.
        """
        return self.handlers.on(name)
