"""The faces of a queue, blocking and asyncio side by side: every method is one line over a shared operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from delayq.calls import Calls
from delayq.clock import Duration, milliseconds
from delayq.codec import find_codec
from delayq.config import QueueOptions, find_url, read_settings
from delayq.consumer import AsyncConsuming, Consuming
from delayq.dead_letter import AsyncDeadLetter, DeadLetter
from delayq.doctor import check, opening
from delayq.errors import ConfigurationError, NoCallbackError, ServerError, UnavailableError
from delayq.executor import open_async_executor, open_executor
from delayq.inspector import Counts, Inspector, MessageInfo, Page, Stats
from delayq.keys import Keys, check_id, check_name
from delayq.message import AsyncMessage, Message, Tools
from delayq.operation import Operation
from delayq.producer import NewMessage, Producer, Sent, SentMany, due_text
from delayq.puller import AsyncLease, Lease
from delayq.states import State
from delayq.twins import twin

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class CancelOutcome(StrEnum):
    """What cancelling found: withdrawn, or why not."""

    CANCELLED = "cancelled"
    RUNNING = "running"
    DEAD = "dead"
    GONE = "gone"


class RescheduleOutcome(StrEnum):
    """What rescheduling found: moved, or why not."""

    RESCHEDULED = "rescheduled"
    RUNNING = "running"
    DEAD = "dead"
    GONE = "gone"


_CANCELLED = dict(zip("1230", CancelOutcome, strict=True))
_RESCHEDULED = dict(zip("1230", RescheduleOutcome, strict=True))


class _Queue(Generic[T]):
    """What both faces share: the options, and the operations behind the methods."""

    def __init__(self, name: str, payload_type: type[T] | None, callback: Any, options: QueueOptions) -> None:
        self.name = check_name(name)
        self.prefix = options.get("prefix", "delayq")
        self.settings = read_settings(options)
        self._options = options
        self._callback: Any = None
        codec = find_codec(options.get("codec", "json"), payload_type)
        self._tools = Tools(Calls(Keys.of(self.prefix, name)), self.settings, codec.decode)
        self._producer = Producer(self._tools, codec)
        self._inspector = Inspector(self._tools)
        self._opened = False
        if callback is not None:
            self.callback(callback)

    def __repr__(self) -> str:
        """Show the queue by name; the URL may hold a password."""
        return f"<{type(self).__name__} {self.name}>"

    def callback(self, function: F) -> F:
        """Register the function that processes messages, as a decorator or by a call; returns it unchanged.

        It gets a message. Returning acknowledges it; `False` or an exception takes one retry; raising `Retry`,
        `Reject` or `Discard` says more. A queue has one callback, and the last one registered counts.
        """
        if not callable(function):
            raise ConfigurationError(f"callback must be callable, not {function!r:.60}")
        self._callback = function
        return function

    def _found_callback(self) -> Any:
        if self._callback is None:
            raise NoCallbackError(f"queue {self.name} has no callback: register one with @queue.callback")
        return self._callback

    def _opening(self) -> list[Any]:
        return list(opening(self._tools.calls.keys, self.prefix, self.name))

    def _check(self, answers: list[Any]) -> None:
        for answer in answers:
            if isinstance(answer, UnavailableError) or (isinstance(answer, ServerError) and "NOAUTH" in str(answer)):
                raise answer
        embedded = "redis" not in self._options and find_url(self._options).startswith("memory://")
        check(self.name, answers, embedded=embedded, strict=self.settings.strict)
        self._opened = True

    def _cancel(self, id: str) -> Operation[CancelOutcome]:
        (digit,) = yield [self._tools.calls.cancel([check_id(id)])]
        return _CANCELLED[digit]

    def _reschedule(self, id: str, delay: Duration | None, at: datetime | None) -> Operation[RescheduleOutcome]:
        if delay is None and at is None:
            raise ConfigurationError("give a delay, or at")
        (digit,) = yield [self._tools.calls.reschedule([(check_id(id), due_text(delay, at))])]
        return _RESCHEDULED[digit]

    def _purge(self) -> Operation[int]:
        (purged,) = yield [self._tools.calls.purge()]
        return int(purged)


class DelayQueue(_Queue[T]):
    """A reliable delay queue: a message sent with a delay is delivered at its time, and again until it is settled.

    Delivery is at least once, never before the due time, and after `retries` redeliveries a message lies in the dead
    letter with payload and reason. Safe to use from several threads. `payload_type` makes the payloads typed, and
    the options are those of `QueueOptions`.
    """

    @overload
    def __init__(
        self: DelayQueue[Any],
        name: str,
        *,
        payload_type: None = None,
        callback: Callable[[Message[Any]], object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        payload_type: type[T],
        callback: Callable[[Message[T]], object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        payload_type: type[T] | None = None,
        callback: Callable[[Message[T]], object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        """Open the queue `name`; nothing is sent to Redis before the first use."""
        super().__init__(name, payload_type, callback, options)
        self._executor = open_executor(options, self.settings)
        self._dead = DeadLetter(self._tools, self._executor)
        self._consuming: Consuming | None = None

    def send_delay_msg(
        self,
        payload: T,
        delay: Duration = 0,
        retries: int | None = None,
        *,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sent:
        """Send a message that is due after `delay`, to be redelivered up to `retries` times.

        When this returns, the message is stored. With an `id` the send is idempotent: while a message of this id
        lives, the same id is answered `exists`, and with `replace` a waiting one gets this payload and time instead.
        On `OutcomeUnknown` send again with the same id.
        """
        return self._perform(self._producer.send(NewMessage(payload, delay, None, retries, id, headers), replace=replace))

    def send_schedule_msg(
        self,
        payload: T,
        at: datetime,
        retries: int | None = None,
        *,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sent:
        """Send a message that is due `at` an aware time, or at once if that has passed; see `send_delay_msg`."""
        return self._perform(self._producer.send(NewMessage(payload, None, at, retries, id, headers), replace=replace))

    def send_many(
        self,
        messages: Iterable[T | NewMessage[T]],
        delay: Duration = 0,
        retries: int | None = None,
        *,
        replace: bool = False,
    ) -> SentMany:
        """Send many messages in few round trips; says which ids were new.

        Takes payloads, and `NewMessage`s for those with a time, retries or id of their own. All are checked and
        encoded before the first is sent; then they go in slices, each stored as a whole or not at all.
        """
        return self._perform(self._producer.send_many(messages, delay=delay, retries=retries, replace=replace))

    def cancel(self, id: str) -> CancelOutcome:
        """Withdraw a message that nobody is processing. `cancelled` is a promise: it is never delivered again."""
        return self._perform(self._cancel(id))

    def reschedule(self, id: str, delay: Duration | None = None, *, at: datetime | None = None) -> RescheduleOutcome:
        """Give a message that nobody is processing a new due time; its attempts and retries stay as they are."""
        return self._perform(self._reschedule(id, delay, at))

    def get(self, id: str) -> MessageInfo | None:
        """Read a message, alive or dead; None if the id is unknown. Touches nothing."""
        return self._perform(self._inspector.get(id))

    def counts(self) -> Counts:
        """Count the messages in each state, as of one moment."""
        return self._perform(self._inspector.counts())

    def stats(self) -> Stats:
        """Read counts, the next and the oldest due time, and totals since the queue was made."""
        return self._perform(self._inspector.stats())

    def list(self, state: State | str, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Read a page of the messages in a state; give its cursor back for the next one. Touches nothing.

        A page looks at `limit` entries (at most 1,000) and may hold fewer messages. Pages are read one after another
        while the queue goes on: a message on the move may be seen twice or not at all.
        """
        return self._perform(self._inspector.page(state, limit=limit, cursor=cursor))

    @property
    def dead(self) -> DeadLetter:
        """The dead letter of this queue."""
        return self._dead

    def purge(self) -> int:
        """Delete every message of the queue, running ones included, but not the dead letter; returns how many."""
        return self._perform(self._purge())

    @overload
    def lease(
        self, duration: Duration | None = None, *, n: None = None, block: Duration = 0
    ) -> Lease[T, Message[T] | None]: ...
    @overload
    def lease(self, duration: Duration | None = None, *, n: int, block: Duration = 0) -> Lease[T, list[Message[T]]]: ...
    def lease(self, duration: Duration | None = None, *, n: int | None = None, block: Duration = 0) -> Lease[T, Any]:
        """Claim one message, or up to `n`, without a callback; wait up to `block` for the first.

        As a context manager it gives the message (None if there is none) or the list, acks on success and nacks on
        an exception whatever was not settled by hand. Iterated over, it leaves settling to `message.ack()` and so on.
        """
        self._open()
        lease: Lease[T, Any] = Lease(self._tools, self._executor, Message, duration, n, block)
        self._executor.perform(lease._take())  # noqa: SLF001 - the two halves of one thing
        return lease

    def start_consume(self) -> Consuming:
        """Start to consume in the background; returns the running consumer if there is one already."""
        return self._start(burst=False)

    def stop_consume(self, grace: Duration | None = None) -> bool:
        """Stop the consumer and wait for it; returns whether it has ended.

        It claims no more, gives back what has not started, waits up to `grace` (by default the queue's) for running
        callbacks and nacks what it cuts off. Harmless when nothing runs, and inside a callback, where it does not
        wait.
        """
        consuming = self._consuming
        if consuming is None or not consuming.running:
            return True
        consuming.stop(None if grace is None else milliseconds(grace, "grace") / 1000)
        return consuming.wait()

    def run(self, *, burst: bool = False) -> None:
        """Consume until stopped; with `burst`, until nothing is due any more.

        A burst waits for messages that come back within a tick, such as nacked ones, and leaves later ones. Ctrl-C
        stops as `stop_consume` does, and a second one at once.
        """
        consuming = self._start(burst=burst)
        try:
            consuming.wait()
        except KeyboardInterrupt:
            consuming.stop()
            try:
                consuming.wait()
            except KeyboardInterrupt:
                consuming.stop(0)
                consuming.wait()
                raise

    def close(self) -> None:
        """Stop consuming and close the connections that this queue made."""
        self.stop_consume()
        self._executor.close()

    def __enter__(self) -> Self:
        """Return the queue; leaving closes it."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the queue."""
        self.close()

    def _start(self, *, burst: bool) -> Consuming:
        callback = self._found_callback()
        self._open()
        if self._consuming is None or not self._consuming.running:
            name = f"delayq-{self.name}"
            self._consuming = Consuming(self._executor, self._tools, callback, name, burst=burst)
        return self._consuming

    def _open(self) -> None:
        if not self._opened:
            self._check(self._executor.run(self._opening()))

    def _perform(self, operation: Operation[Any]) -> Any:
        self._open()
        return self._executor.perform(operation)


class AsyncDelayQueue(_Queue[T]):
    """A reliable delay queue for asyncio; see `DelayQueue`. Callbacks are coroutine functions, or do not block.

    Belongs to the event loop in which it is first used.
    """

    @overload
    def __init__(
        self: AsyncDelayQueue[Any],
        name: str,
        *,
        payload_type: None = None,
        callback: Callable[[AsyncMessage[Any]], Awaitable[object] | object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        payload_type: type[T],
        callback: Callable[[AsyncMessage[T]], Awaitable[object] | object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        payload_type: type[T] | None = None,
        callback: Callable[[AsyncMessage[T]], Awaitable[object] | object] | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        """Open the queue `name`; nothing is sent to Redis before the first use."""
        super().__init__(name, payload_type, callback, options)
        self._executor = open_async_executor(options, self.settings)
        self._dead = AsyncDeadLetter(self._tools, self._executor)
        self._consuming: AsyncConsuming | None = None

    @twin(DelayQueue.send_delay_msg)
    async def send_delay_msg(
        self,
        payload: T,
        delay: Duration = 0,
        retries: int | None = None,
        *,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sent:
        return await self._perform(
            self._producer.send(NewMessage(payload, delay, None, retries, id, headers), replace=replace)
        )

    @twin(DelayQueue.send_schedule_msg)
    async def send_schedule_msg(
        self,
        payload: T,
        at: datetime,
        retries: int | None = None,
        *,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        replace: bool = False,
    ) -> Sent:
        return await self._perform(
            self._producer.send(NewMessage(payload, None, at, retries, id, headers), replace=replace)
        )

    @twin(DelayQueue.send_many)
    async def send_many(
        self,
        messages: Iterable[T | NewMessage[T]],
        delay: Duration = 0,
        retries: int | None = None,
        *,
        replace: bool = False,
    ) -> SentMany:
        return await self._perform(self._producer.send_many(messages, delay=delay, retries=retries, replace=replace))

    @twin(DelayQueue.cancel)
    async def cancel(self, id: str) -> CancelOutcome:
        return await self._perform(self._cancel(id))

    @twin(DelayQueue.reschedule)
    async def reschedule(
        self, id: str, delay: Duration | None = None, *, at: datetime | None = None
    ) -> RescheduleOutcome:
        return await self._perform(self._reschedule(id, delay, at))

    @twin(DelayQueue.get)
    async def get(self, id: str) -> MessageInfo | None:
        return await self._perform(self._inspector.get(id))

    @twin(DelayQueue.counts)
    async def counts(self) -> Counts:
        return await self._perform(self._inspector.counts())

    @twin(DelayQueue.stats)
    async def stats(self) -> Stats:
        return await self._perform(self._inspector.stats())

    @twin(DelayQueue.list)
    async def list(self, state: State | str, *, limit: int = 100, cursor: str | None = None) -> Page:
        return await self._perform(self._inspector.page(state, limit=limit, cursor=cursor))

    @property
    def dead(self) -> AsyncDeadLetter:
        """The dead letter of this queue."""
        return self._dead

    @twin(DelayQueue.purge)
    async def purge(self) -> int:
        return await self._perform(self._purge())

    @overload
    def lease(
        self, duration: Duration | None = None, *, n: None = None, block: Duration = 0
    ) -> AsyncLease[T, AsyncMessage[T] | None]: ...
    @overload
    def lease(
        self, duration: Duration | None = None, *, n: int, block: Duration = 0
    ) -> AsyncLease[T, list[AsyncMessage[T]]]: ...
    @twin(DelayQueue.lease)
    def lease(
        self, duration: Duration | None = None, *, n: int | None = None, block: Duration = 0
    ) -> AsyncLease[T, Any]:
        return AsyncLease(self._tools, self._executor, AsyncMessage, duration, n, block)

    @twin(DelayQueue.start_consume)
    async def start_consume(self) -> AsyncConsuming:
        return await self._start(burst=False)

    @twin(DelayQueue.stop_consume)
    async def stop_consume(self, grace: Duration | None = None) -> bool:
        consuming = self._consuming
        if consuming is None or not consuming.running:
            return True
        consuming.stop(None if grace is None else milliseconds(grace, "grace") / 1000)
        return await consuming.wait()

    @twin(DelayQueue.run)
    async def run(self, *, burst: bool = False) -> None:
        consuming = await self._start(burst=burst)
        try:
            await consuming.wait()
        finally:
            consuming.stop()
            await consuming.wait()

    @twin(DelayQueue.close)
    async def close(self) -> None:
        await self.stop_consume()
        await self._executor.close()

    async def __aenter__(self) -> Self:
        """Return the queue; leaving closes it."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the queue."""
        await self.close()

    async def _start(self, *, burst: bool) -> AsyncConsuming:
        callback = self._found_callback()
        await self._open()
        if self._consuming is None or not self._consuming.running:
            name = f"delayq-{self.name}"
            self._consuming = AsyncConsuming(self._executor, self._tools, callback, name, burst=burst)
        return self._consuming

    async def _open(self) -> None:
        if not self._opened:
            self._check(await self._executor.run(self._opening()))

    async def _perform(self, operation: Operation[Any]) -> Any:
        await self._open()
        return await self._executor.perform(operation)
