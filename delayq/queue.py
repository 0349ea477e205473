"""The faces of a queue, blocking and asyncio side by side: every method is one line over a shared operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar, Unpack, overload

from delayq.clock import Duration
from delayq.config import QueueOptions
from delayq.consumer import AsyncConsumer, Consumer
from delayq.dead_letter import AsyncDeadLetter, DeadLetter
from delayq.events import AsyncEventReader, EventReader
from delayq.face import AsyncFace, BlockingFace
from delayq.group_commit import AsyncGroupCommit, GroupCommit
from delayq.inspector import Counts, Inspector, MessageInfo, Page, Stats
from delayq.message import AsyncMessage, Message
from delayq.operation import single
from delayq.producer import NewMessage, Producer, Sent, SentMany, due_text
from delayq.puller import AsyncPuller, Puller
from delayq.repair import AsyncPatient, Patient
from delayq.runs import AsyncLedger, Ledger
from delayq.states import State
from delayq.steering import CancelOutcome, RescheduleOutcome, cancel, reschedule
from delayq.twins import twin

T = TypeVar("T")


class DelayQueue(Consumer[T], Puller[T], EventReader[T], Ledger[T], Patient[T], BlockingFace[T]):
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
        super().__init__(name, payload_type, options)
        self._producer = Producer(self._tools, self._codec)
        self._sends = GroupCommit(self._producer, self._perform)
        self._inspector = Inspector(self._tools)
        self._dead = DeadLetter(self._tools, self._perform)
        if callback is not None:
            self.callback(callback)

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
        On `OutcomeUnknown` send again with the same id, which the error carries in `ids`. Sends of several threads at a
        time share round trips.
        """
        return self._sends.send(
            self._producer.outgoing(payload, due_text(delay, None), retries, id, headers), replace=replace
        )

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
        return self._sends.send(
            self._producer.outgoing(payload, due_text(None, at), retries, id, headers), replace=replace
        )

    def send_many(
        self,
        messages: Iterable[T | NewMessage[T]],
        delay: Duration = 0,
        retries: int | None = None,
        *,
        replace: bool = False,
        run: str | None = None,
    ) -> SentMany:
        """Send many messages in few round trips; says which ids were new.

        Takes payloads, and `NewMessage`s for those with a time, retries or id of their own. All are checked and
        encoded before the first is sent; then they go in slices, each stored as a whole or not at all. What became of
        them is added up under the name of a `run`, if one is given (see `runs`).
        """
        return self._perform(self._producer.send_many(messages, delay=delay, retries=retries, replace=replace, run=run))

    def cancel(self, id: str) -> CancelOutcome:
        """Withdraw a message that nobody is processing. `cancelled` is a promise: it is never delivered again."""
        return self._perform(cancel(self._tools, id))

    def reschedule(self, id: str, delay: Duration | None = None, *, at: datetime | None = None) -> RescheduleOutcome:
        """Give a message that nobody is processing a new due time; its attempts and retries stay as they are."""
        return self._perform(reschedule(self._tools, id, delay, at))

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
        """Delete every message, running ones included, but neither the dead letter nor a schedule; returns how many."""
        return self._perform(single(self._tools.calls.purge()))


class AsyncDelayQueue(
    AsyncConsumer[T], AsyncPuller[T], AsyncEventReader[T], AsyncLedger[T], AsyncPatient[T], AsyncFace[T]
):
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
        super().__init__(name, payload_type, options)
        self._producer = Producer(self._tools, self._codec)
        self._sends = AsyncGroupCommit(self._producer, self._perform)
        self._inspector = Inspector(self._tools)
        self._dead = AsyncDeadLetter(self._tools, self._perform)
        if callback is not None:
            self.callback(callback)

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
        return await self._sends.send(
            self._producer.outgoing(payload, due_text(delay, None), retries, id, headers), replace=replace
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
        return await self._sends.send(
            self._producer.outgoing(payload, due_text(None, at), retries, id, headers), replace=replace
        )

    @twin(DelayQueue.send_many)
    async def send_many(
        self,
        messages: Iterable[T | NewMessage[T]],
        delay: Duration = 0,
        retries: int | None = None,
        *,
        replace: bool = False,
        run: str | None = None,
    ) -> SentMany:
        return await self._perform(
            self._producer.send_many(messages, delay=delay, retries=retries, replace=replace, run=run)
        )

    @twin(DelayQueue.cancel)
    async def cancel(self, id: str) -> CancelOutcome:
        return await self._perform(cancel(self._tools, id))

    @twin(DelayQueue.reschedule)
    async def reschedule(
        self, id: str, delay: Duration | None = None, *, at: datetime | None = None
    ) -> RescheduleOutcome:
        return await self._perform(reschedule(self._tools, id, delay, at))

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
        return await self._perform(single(self._tools.calls.purge()))
