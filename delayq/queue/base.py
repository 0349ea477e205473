"""Base classes of delay queues and stream queues: options, opening, consuming with a callback, and leases."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, overload

from delayq.broker.context import EngineContext
from delayq.broker.shared_calls import preload
from delayq.broker.transport.operation import Operation, together
from delayq.broker.transport.server_url import find_url
from delayq.errors import CannotConnectError, DelayqError, UnavailableError
from delayq.options import QueueOptions, read_settings
from delayq.queue.consuming.consumer import ConsumeOptions, check_consume_options
from delayq.queue.consuming.lease import Lease
from delayq.queue.consuming.starting import D, Starts
from delayq.queue.sending.producer import Producer
from delayq.queue.server_check import CHECK_EVERY, Opening, check
from delayq.queue.tasks.handlers import MISSING, HandlerRegistry
from delayq.safe_log import SafeLog
from delayq.values.codec import Codec, codec_of_queue, find_codec, stable_encode
from delayq.values.other_names import Hinting
from delayq.values.times import Duration, monotonic, to_millis
from delayq.worker.delivery.message import Message
from delayq.worker.drivers.served import OneQueue, ServerLoop

if TYPE_CHECKING:
    from typing_extensions import TypeForm  # in `typing` from Python 3.15 on
    from typing_extensions import TypeVar as TypeVarWithDefault  # in `typing` from Python 3.13 on

    from delayq.broker.transport.executor import AsyncExecutor, Executor
    from delayq.queue.consuming.lifespans import Lifespan
    from delayq.queue.hooks.hooks import Hooks

    T = TypeVarWithDefault("T", default=Any)  # without a `payload_type`, payloads may be any values
    M = TypeVarWithDefault("M", default=Any)
else:
    T = TypeVar("T")
    M = TypeVar("M")
R = TypeVar("R")

ANY_PAYLOAD: Any = None
"""The `payload_type` by default. Its own type does not bind the type of the payloads, as that of None would."""

log = SafeLog("delayq.queue")


class QueueBase(Hinting, Generic[T, M]):
    """The options and the context of one queue with payloads T, whose callbacks take messages M."""

    context: EngineContext
    """Of the package, not for programs, as are the other parts without a word in the handbook."""
    executor: Executor | AsyncExecutor
    awaits = False
    """Whether callbacks may be coroutine functions."""
    _scripts = ""
    """The engine whose scripts it runs, as `preload` names it."""
    telemetry: Any = None
    """What records it; see `delayq.telemetry`."""

    def __init__(self, name: str, payload_type: TypeForm[T], callback: Any, options: QueueOptions) -> None:
        """Validate everything; nothing is sent to Redis."""
        self.name = name
        self.prefix = options.get("prefix", "delayq")
        self.settings = read_settings(options)
        self._options = options
        self.codec: Codec = find_codec(options.get("codec", "json"), payload_type, name)
        self.handlers = HandlerRegistry(self.name, self.settings, stable_encode(self.codec), awaits=self.awaits)
        self.context = self._make_context()
        self.producer = Producer(self.context, self.codec, self.handlers.in_one_form)
        self._identity: Any = None
        """The identity that Redis has given the queue, as this process knows it; see `shared_calls.identify`."""
        self.own_lifespan: Lifespan | None = None
        if (lifespan := options.get("lifespan")) is not None:
            from delayq.queue.consuming.lifespans import Lifespan  # not every program has one

            self.own_lifespan = Lifespan(name, lifespan, awaits=self.awaits)
        if callback is not None:
            self.callback(callback)

    def __repr__(self) -> str:
        """Show the name only: the URL may contain a password."""
        return f"<{type(self).__name__} {self.name}>"

    async def __call__(self) -> Self:
        """Return the queue itself, so that it is a dependency of FastAPI: `Depends(queue)`."""
        return self

    def _all_queues(self) -> list[Self]:
        return [self]

    def _make_context(self) -> EngineContext:
        """Return the context; raise `ConfigurationError` for an invalid name."""
        raise NotImplementedError

    def _named(self, name: str) -> Self:
        """Return the queue `name` with the options, handlers and connections of this one, for a worker only."""
        queue = copy(self)
        queue._rename(name)  # noqa: SLF001 - of the same class
        return queue

    def _rename(self, name: str) -> None:
        self.name = name
        before, self.codec = self.codec, codec_of_queue(self.codec, name)
        self.context = self._make_context()
        self.handlers = self.handlers.of_queue(name, before, self.codec)
        self.executor = copy(self.executor)
        self.executor.opening = self.executor.checking = None  # its worker does both
        if self.telemetry is not None:
            self.telemetry(self)

    def _opening(self) -> list[Any]:
        """Return the requests that open the queue."""
        raise NotImplementedError

    def _put_declared(self) -> Operation[Any]:
        """Store the schedules that the program declares; only called if there are any."""
        raise NotImplementedError

    @property
    def hooks(self) -> Hooks:
        """What the program has done around sends and callbacks, and when messages end."""
        if self.handlers.hooks is None:
            from delayq.queue.hooks.hooks import Hooks  # not every program has hooks

            self.handlers.hooks = Hooks(self)
        return self.handlers.hooks

    def callback(self, function: Callable[[M], R]) -> Callable[[M], R]:
        """Register the function that processes messages, as a decorator or by a call; returns it unchanged.

        The function is called with a message. If it returns, the message is acknowledged. `False` or an exception uses
        one retry. It may raise `Retry`, `Snooze`, `Reject`, `Discard` or `StopWorker` for another outcome. A queue has
        one callback: a second one raises `ConfigurationError`.
        """
        return self.handlers.callback(function)

    @overload
    def batch_callback(self, function: Callable[[list[M]], R], *, most: int = 100) -> Callable[[list[M]], R]: ...
    @overload
    def batch_callback(self, *, most: int = 100) -> Callable[[Callable[[list[M]], R]], Callable[[list[M]], R]]: ...
    def batch_callback(self, function: Any = MISSING, *, most: int = 100) -> Any:
        """Register the function that processes messages in batches, as a decorator or by a call; see `callback`.

        The function is called with a list of 1 to `most` messages (up to 1000). It never waits for a batch to fill up.
        If it returns, all messages that were not settled by hand are acknowledged. `False` or an exception uses one
        retry of each; `Retry`, `Snooze`, `Reject`, `Discard` and `StopWorker` apply to all. It may also return a list
        with one result for each message, which counts as the result of a callback; an exception in the list counts as
        raised. `concurrency` is the number of batches that run at a time.
        """
        return self.handlers.batch_callback(function, most)

    def _check_consuming(self, options: ConsumeOptions) -> None:
        self.handlers.find()
        check_consume_options(options)

    def _make_driver(self, kind: type[D], options: ConsumeOptions) -> D:
        context, executor, grace = self.context, self.executor, options.get("grace")
        if (concurrency := options.get("concurrency")) is not None:
            context = context.with_settings(replace(context.settings, concurrency=concurrency))
        lifespan = None if self.own_lifespan is None else self.own_lifespan.anew()
        if lifespan is not None:
            context = context.with_lifespan(lifespan)
        burst, hook = options.get("burst", False), options.get("on_health_change")
        queue = OneQueue(context, self.handlers.find(), executor, kind.message_class, burst=burst)
        millis = context.settings.grace if grace is None else to_millis(grace, "grace")
        servers, name = [ServerLoop(executor, queue)], f"delayq-{self.name}"
        driver = kind(queue, servers, name, grace=millis / 1000, on_health_change=hook)
        if lifespan is not None:
            driver.lifespans = lifespan.together([lifespan])
        return driver

    @property
    def _parts(self) -> QueueParts:
        client = self._options.get("redis")
        server = find_url(self._options) if client is None else id(client)
        return QueueParts(
            source=(self._scripts, self.prefix, self.name, getattr(self, "group", ""), server),
            opening=self._opening,
            check=self._check,
            put_declared=self._put_declared,
            reopen_if_lost=self._reopen_if_lost,
            is_known=lambda identity: identity == self._identity,
            named=self._named,
        )

    @property
    def is_embedded(self) -> bool:
        """Whether its server is the embedded one."""
        return "redis" not in self._options and find_url(self._options).startswith("memory://")

    def _check(self, replies: list[Any]) -> None:
        for reply in replies:
            if isinstance(reply, UnavailableError | CannotConnectError):
                raise reply
        opened, others = Opening.split(replies)
        if others and isinstance(others[0], DelayqError):
            raise others[0]
        check(self.name, opened, embedded=self.is_embedded, strict=self.settings.strict)
        self._identity = opened.identity
        self.executor.opening, self.executor.check_at = None, monotonic() + CHECK_EVERY

    def _reopen_if_lost(self) -> Operation[None]:
        """Open the queue again if Redis has lost it: register it, and apply the options and declared schedules."""
        try:
            opening, _ = Opening.split(self._opening())
            identity, _ = yield [opening.identity, opening.registered]
            if identity != self._identity:
                yield from self._open_again()
        finally:
            self.executor.check_at = monotonic() + CHECK_EVERY

    def _open_again(self) -> Operation[None]:
        known, text = self._identity, "Redis has lost queue %s with all messages: opening it again"
        log.warning(text, self.name, extra={"queue": self.name})
        self._check((yield from together(self._opening())))
        if self.handlers.stored:
            found, self._identity = self._identity, known  # what fails is tried again
            yield from self._put_declared()
            self._identity = found


class QueueParts(NamedTuple):
    """What workers of many queues do with a queue object: a program sees no such methods."""

    source: tuple[object, ...]
    """Where its consumers get their messages: equal for two objects of the same queue. The last of it is the server."""
    opening: Callable[[], list[Any]]
    """Returns the requests that open it."""
    check: Callable[[list[Any]], None]
    """Reads their replies; raises why it cannot be opened."""
    put_declared: Callable[[], Operation[Any]]
    reopen_if_lost: Callable[[], Operation[None]]
    is_known: Callable[[Any], bool]
    """Returns whether Redis has the queue that this process has opened, by the identity that it has given."""
    named: Callable[[str], Any]


def parts_of(queue: QueueBase[Any]) -> QueueParts:
    """Return what workers do with a queue object."""
    return queue._parts  # noqa: SLF001 - no name that a program sees


class SyncBase(QueueBase[T, Message[T]], Starts):
    """Base of queues whose methods block."""

    executor: Executor

    def __init__(self, name: str, payload_type: TypeForm[T], callback: Any, options: QueueOptions) -> None:
        """Make the client, which connects at its first use."""
        from delayq.broker.transport.executor import open_executor  # loads redis, which `import delayq` does not need

        super().__init__(name, payload_type, callback, options)
        self.executor = open_executor(options, self.settings)
        self.executor.opening, self.executor.checking = self.open, self._reopen_if_lost
        self._perform = self.executor.perform

    def open(self, *, connect_timeout: Duration | None = None) -> None:
        """Connect, check the server, register the queue, and apply the options that count for all processes.

        The first call that writes does this by itself. Call it earlier to learn at once what is wrong. It raises
        `UnavailableError` if Redis does not answer within `connect_timeout`, by default the queue's `deadline`.
        """
        deadline = None if connect_timeout is None else to_millis(connect_timeout, "connect_timeout") / 1000
        if self.executor.opening:
            self._check(self.executor.run(self._opening(), deadline=deadline))

    def _open_to_consume(self, connect_timeout: Duration | None) -> None:
        self.open(connect_timeout=connect_timeout)
        if self.handlers.declares:
            self._perform(self._put_declared(), writes=True)

    def close(self) -> None:
        """Stop consuming and close the connections that this queue made."""
        self.stop_consume()
        self.executor.close()

    @overload
    def lease(
        self, duration: Duration | None = None, *, n: None = None, block: Duration = 0
    ) -> Lease[T, Message[T] | None]: ...
    @overload
    def lease(self, duration: Duration | None = None, *, n: int, block: Duration = 0) -> Lease[T, list[Message[T]]]: ...
    def lease(self, duration: Duration | None = None, *, n: int | None = None, block: Duration = 0) -> Lease[T, Any]:
        """Claim one message, or up to `n`, without a callback; waits up to `block` for the first.

        As a context manager it returns the message (None if there is none) or, with `n`, the list. On exit it acks
        what was not settled by hand, or nacks it after an exception. If you iterate over the lease instead, settle
        each message yourself with `message.ack()` and so on.
        """
        return Lease(self.context, self.executor, duration, n, block=block)

    def __enter__(self) -> Self:
        """Return the queue; leaving closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def preload(self) -> int:
        """Load the scripts of this kind of queue into Redis, for users who are not allowed to; returns how many.

        All queues of this kind on the server use them, until it restarts. Safe to call at any time.
        """
        return len(self.executor.perform(together(preload(self._scripts))))
