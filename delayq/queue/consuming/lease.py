"""Leases: claim messages without a callback, and settle them by hand or when the `with` block ends."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from delayq.broker.context import EngineContext
from delayq.broker.engine import Feature
from delayq.broker.replies import ClaimReply, PromoteReply
from delayq.broker.requests import ScriptCall
from delayq.broker.scripts import MAX_IDS
from delayq.broker.transport.operation import Operation, Wait
from delayq.errors import DelayqError, UndecodableError
from delayq.values.checks import check_int
from delayq.values.outcomes import Outcome, StopWorker
from delayq.values.times import Duration, monotonic, to_millis
from delayq.worker.delivery.attempt_log import log_completions, log_expired
from delayq.worker.delivery.disposition import Completion, Disposition, before_start, disposition_of, undecodable
from delayq.worker.delivery.in_flight_delivery import InFlightDelivery, deliveries_of
from delayq.worker.delivery.message import AsyncMessage, Message
from delayq.worker.drivers.wakeup import pass_on
from delayq.worker.loop.settlements import PendingSettlements
from delayq.worker.parts.breakers import ClosedScopes
from delayq.worker.parts.part import LoopPart

if TYPE_CHECKING:
    from delayq.broker.transport.executor import AsyncExecutor, Executor

T = TypeVar("T")
M = TypeVar("M")
E = TypeVar("E")

CLOSE = 0.1
"""Seconds before a due time in which to sleep instead of blocking in Redis: a blocking command may end that late."""
LEARN_WITHIN = 2.0
"""Seconds after a cancellation in which to learn what a claim under way has brought."""


class _LeaseBase(Generic[M]):
    """The operations behind a lease: claim messages, and settle them at the end."""

    _message_class: Any
    _blocked = False
    """Whether it waits in a blocking command, which may take a wake-up or, of a stream, a message."""
    _cancelled = False
    """Whether it was cancelled while it claimed: it claims no more, and gives back what it has."""

    def __init__(
        self, context: EngineContext, executor: Any, duration: Duration | None, n: int | None, *, block: Duration
    ) -> None:
        """Prepare to claim `n` messages (None: one), waiting up to `block` seconds for the first."""
        self._context = context
        self._executor = executor
        self._lease = context.settings.lease if duration is None else to_millis(duration, "lease", min=100)
        self._single = n is None
        self._limit = 1 if n is None else check_int(n, "n", 1, MAX_IDS)
        self._block = to_millis(block, "block") / 1000
        self._sent_at = 0.0
        """When the last claim was sent: its leases count from then on, however long the answer takes."""
        self.messages: list[M] = []
        """The messages claimed."""
        self._deliveries: list[InFlightDelivery] = []

    def __iter__(self) -> Iterator[M]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody has cancelled one of the messages meanwhile, as `message.extend()` has found."""
        return any(delivery.cancel_requested for delivery in self._deliveries)

    @property
    def _entered(self) -> Any:
        """What a `with` block receives: the message or None; with `n`, the list of messages."""
        if not self._single:
            return self.messages
        return self.messages[0] if self.messages else None

    def _take(self) -> Operation[None]:
        """Claim messages; while there are none, wait for wake-ups and due times until `block` is over."""
        end = monotonic() + self._block
        while True:
            promoted, claimed = yield from self._claim()
            if promoted.waiting and not claimed.messages:
                # The server knew the script of the claim, but had to load that of the promotion, which ran after it.
                promoted, claimed = yield from self._claim()
            if claimed.messages:
                try:
                    yield from self._add(claimed)
                    yield from self._take_more(claimed)
                except DelayqError:
                    if not self.messages:  # else these are returned: only the caller can settle them
                        raise
                if self.messages:
                    return
            remaining = end - monotonic()
            if remaining <= 0 or self._cancelled:
                return
            times = [at for at in (promoted.next_due, promoted.next_deadline, claimed.next_gate) if at != -1]
            ahead = min([1.0, remaining, *((at - promoted.now) / 1000 for at in times)])
            if ahead > CLOSE:
                self._blocked = True
                yield [self._context.calls.await_wake(min(ahead - CLOSE / 2, self._executor.max_block))]
                self._blocked = False
            elif ahead > 0:
                yield Wait(ahead)

    def _take_more(self, claimed: ClaimReply) -> Operation[None]:
        """Claim the rest: one call claims a limited number of bytes. It ends early rather than let leases run out."""
        end = monotonic() + self._lease / 4000
        while claimed.messages and claimed.left and len(self.messages) < self._limit and monotonic() < end:
            if self._cancelled:
                return
            self._sent_at = monotonic()
            (claimed,) = yield [self._claim_call(self._limit - len(self.messages))]
            yield from self._add(claimed)

    def _claim(self) -> Operation[tuple[PromoteReply, ClaimReply]]:
        calls = self._context.calls
        self._sent_at = monotonic()
        calls_of_claim = [calls.unack_to_retry(), calls.pending_to_ready(), self._claim_call(self._limit)]
        expired, promoted, claimed = yield calls_of_claim
        log_expired((*expired.expired, *claimed.expired), self._context.queue)
        if promoted.garbage:
            yield [calls.collect(self._context.settings)]
        return promoted, claimed

    def _claim_call(self, wanted: int) -> ScriptCall[ClaimReply]:
        return self._context.calls.ready_to_unack(wanted, lease=self._lease, consumer_id=self._executor.consumer_id)

    def _add(self, claimed: ClaimReply) -> Operation[None]:
        now, failed = monotonic(), list[Completion]()
        for delivery in deliveries_of(claimed, now, self._sent_at + self._lease / 1000):
            if delivery.claimed.attributes and (instead := before_start(delivery, now, self._context)):
                failed.append(instead)
                continue
            try:
                self.messages.append(self._message_class(delivery, self._context, self._executor, now))
                self._deliveries.append(delivery)
            except UndecodableError as error:
                policy = self._context.settings.policy
                failed += log_completions([undecodable(delivery, error, policy)], error, policy, self._context.queue)
        yield from settle_all(self._context, failed)

    def _settle(self, error: BaseException | None) -> Operation[None]:
        """Settle the messages that were not settled by hand, as if a callback had ended with `error`."""
        deliveries = [delivery for delivery in self._deliveries if not delivery.settled]
        if deliveries:
            policy = self._context.settings.policy
            ended = [Completion(deliveries, *disposition_of(deliveries, None, error, policy))]
            # An exception goes on to the caller, who has its traceback.
            completions = log_completions(ended, error, policy, self._context.queue, traced=False)
            yield from settle_all(self._context, completions)


def settle_all(context: EngineContext, completions: list[Completion]) -> Operation[None]:
    """Settle deliveries that were claimed without a consumer loop."""
    calls = context.calls
    scopes = ClosedScopes(calls) if calls.capabilities.has(Feature.LIMITS) else None
    settlements = PendingSettlements(calls, context.settings, scopes)
    settlements.add(completions)
    parts: list[LoopPart] = [settlements] if scopes is None else [scopes, settlements]
    while any(part.pending() for part in parts):  # one call settles a limited number of messages
        plan = [call for part in parts for call in part.plan(0.0)]
        replies = yield [call for call, _ in plan]
        for (_, read), reply in zip(plan, replies, strict=True):
            read(reply)
        if any("2" in reply for reply in replies):
            yield [calls.collect(context.settings)]


class Lease(_LeaseBase[Message[T]], Generic[T, E]):
    """Messages claimed by `DelayQueue.lease`: iterable, and a context manager that settles them."""

    _message_class = Message

    def __init__(
        self, context: EngineContext, executor: Executor, duration: Duration | None, n: int | None, *, block: Duration
    ) -> None:
        super().__init__(context, executor, duration, n, block=block)
        executor.perform(self._take(), writes=True)

    def __enter__(self) -> E:
        """Return the message (None if there is none), or with `n` the list of messages."""
        return self._entered  # type: ignore[no-any-return]  # E is what `n` makes of it, see DelayQueue.lease

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        """Ack the messages that were not settled by hand; nack them after an exception, or apply a raised outcome.

        `StopWorker` is raised on: there is no consumer to stop.
        """
        self._executor.perform(self._settle(error))
        return isinstance(error, Outcome) and not isinstance(error, StopWorker)


class AsyncLease(_LeaseBase[AsyncMessage[T]], Generic[T, E]):
    """Messages claimed by `AsyncDelayQueue.lease`: use `async with`, or await it; see `Lease`.

    If it is cancelled before it is there, what it has claimed is released, uncharged.
    """

    _executor: AsyncExecutor
    _message_class = AsyncMessage
    _claimed = False

    def __await__(self) -> Generator[Any, Any, AsyncLease[T, E]]:
        """Claim the messages and return the lease."""
        return self._claim_once().__await__()

    async def _claim_once(self) -> AsyncLease[T, E]:
        if not self._claimed:  # `async with` on an awaited lease claims nothing more
            self._claimed = True
            try:
                async with asyncio.timeout(None) as self._learning:
                    await self._executor.perform(self._take(), writes=True, on_cancel=self._on_cancel)
            except asyncio.CancelledError:
                await self._give_back()
                raise
            except DelayqError:
                if not self._cancelled:
                    raise
            if self._cancelled:
                await self._give_back()
                raise asyncio.CancelledError
        return self

    def _on_cancel(self) -> None:
        """End a wait at once, but learn what a claim has brought; give up the second time."""
        if self._blocked or self._cancelled:
            raise asyncio.CancelledError
        self._cancelled = True
        self._learning.reschedule(asyncio.get_running_loop().time() + LEARN_WITHIN)

    async def _give_back(self) -> None:
        """Pass on what a wait may have taken, and release what was claimed; tries once."""
        if self._blocked:
            await pass_on(self._executor, lambda: [self._context.calls.wake()])
        if self._deliveries:
            released = settle_all(self._context, [Completion(self._deliveries, Disposition.RELEASE)])
            with suppress(DelayqError):
                await self._executor.perform(released, should_retry=lambda _: False)

    async def __aenter__(self) -> E:
        """Claim and return the message (None if there is none), or with `n` the list of messages."""
        await self._claim_once()
        return self._entered  # type: ignore[no-any-return]  # E is what `n` makes of it, see AsyncDelayQueue.lease

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        """Ack the messages that were not settled by hand; nack them after an exception, or apply a raised outcome.

        `StopWorker` is raised on: there is no consumer to stop.
        """
        await self._executor.perform(self._settle(error))
        return isinstance(error, Outcome) and not isinstance(error, StopWorker)
