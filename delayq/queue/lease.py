"""Pulling without a callback: claim some messages, work on them, settle them by hand or by leaving a `with` block."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from delayq.answers import Claimed, Promoted
from delayq.clock import Duration, milliseconds, monotonic
from delayq.config import whole
from delayq.errors import UndecodableError
from delayq.face import AsyncFace, BlockingFace
from delayq.flows.owed import Owed
from delayq.message import AsyncMessage, Holding, Message, Tools, kept
from delayq.operation import Operation, Pause
from delayq.outcomes import Outcome
from delayq.script import MOST_IDS
from delayq.twins import twin
from delayq.values import Rejection
from delayq.verdict import Completion, judge

if TYPE_CHECKING:
    from delayq.executor import AsyncExecutor, Executor

T = TypeVar("T")
M = TypeVar("M")
E = TypeVar("E")

CLOSE = 0.1
"""Seconds before a due time within which it is slept for: a blocking command may end that late."""


class _Claim(Generic[M]):
    """The operations behind a lease: claim, and settle on the way out."""

    def __init__(
        self, tools: Tools, executor: Any, kind: Any, *, duration: Duration | None, n: int | None, block: Duration
    ) -> None:
        """Prepare to claim `n` messages (None: one) as `kind`, waiting up to `block` for the first."""
        self._tools = tools
        self._executor = executor
        self._kind = kind
        self._lease = tools.settings.lease if duration is None else milliseconds(duration, "lease", least=100)
        self._single = n is None
        self._wanted = 1 if n is None else whole(n, "n", 1, MOST_IDS)
        self._block = milliseconds(block, "block") / 1000
        self.messages: list[M] = []
        self._holdings: list[Holding] = []

    def __iter__(self) -> Iterator[M]:
        """Iterate over the messages claimed."""
        return iter(self.messages)

    def __len__(self) -> int:
        """Return how many messages were claimed."""
        return len(self.messages)

    @property
    def _entered(self) -> Any:
        if not self._single:
            return self.messages
        return self.messages[0] if self.messages else None

    def _take(self) -> Operation[None]:
        """Claim; while there is nothing, block on wake-ups and due times until time is up."""
        end = monotonic() + self._block
        while True:
            promoted, claimed = yield from self._look()
            if promoted.waiting and not claimed.deliveries:
                # The server knew the claim but not the promotion, which was loaded and run after it.
                promoted, claimed = yield from self._look()
            if claimed.deliveries:
                yield from self._hold(claimed)
                if self.messages:
                    return
            remaining = end - monotonic()
            if remaining <= 0:
                return
            times = [at for at in (promoted.next_due, promoted.next_deadline) if at != -1]
            ahead = min([1.0, remaining, *((at - promoted.now) / 1000 for at in times)])
            if ahead > CLOSE:
                yield [self._tools.calls.await_wake(min(ahead - CLOSE / 2, self._executor.longest_block))]
            elif ahead > 0:
                yield Pause(ahead)

    def _look(self) -> Operation[tuple[Promoted, Claimed]]:
        calls = self._tools.calls
        claim = calls.ready_to_unack(self._wanted, lease=self._lease, holder=self._executor.client_name)
        _, promoted, claimed = yield [calls.unack_to_retry(), calls.pending_to_ready(), claim]
        if promoted.garbage:
            yield [self._tools.collect()]
        return promoted, claimed

    def _hold(self, claimed: Claimed) -> Operation[None]:
        now = monotonic()
        for delivery in claimed.deliveries:
            holding = Holding(delivery, now, claimed.now, now + self._lease / 1000)
            try:
                self.messages.append(self._kind(holding, self._tools, self._executor, now))
                self._holdings.append(holding)
            except UndecodableError as error:
                yield [self._tools.calls.reject([Rejection(*holding.receipt, kept(str(error)), "")])]

    def _settle(self, error: BaseException | None) -> Operation[None]:
        """Settle what was not settled by hand, as a callback that ended so would."""
        owed = Owed(self._tools.calls, self._tools.settings, lambda _: None)
        holdings = [holding for holding in self._holdings if not holding.settled]
        if holdings:
            owed.add([Completion(holdings, *judge(holdings, None, error, quiet=True))])
        while owed:  # a call settles only so many
            plan = list(owed.settle())
            answers = yield [call for call, _ in plan]
            for (_, read), answer in zip(plan, answers, strict=True):
                read(answer)
            if any("2" in answer for answer in answers):
                yield [self._tools.collect()]


class Lease(_Claim[Message[T]], Generic[T, E]):
    """Messages claimed by `DelayQueue.lease`: a context manager that settles them, and an iterable of them."""

    _executor: Executor

    def __enter__(self) -> E:
        """Return the message (None if there was none), or the list of them if `n` was given."""
        return self._entered  # type: ignore[no-any-return]  # E is what `n` makes of it, see DelayQueue.lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Ack what was not settled by hand; on an exception nack it, and on an outcome do as it says."""
        self._executor.perform(self._settle(error))
        return isinstance(error, Outcome)


class AsyncLease(_Claim[AsyncMessage[T]], Generic[T, E]):
    """Messages claimed by `AsyncDelayQueue.lease`: `async with` it, or await it for the messages; see `Lease`."""

    _executor: AsyncExecutor

    def __init__(self, opening: Callable[[], Awaitable[None]], *claim: Any, **options: Any) -> None:
        """Prepare to claim, once the queue has been opened."""
        super().__init__(*claim, **options)
        self._open = opening
        self._claimed = False

    def __await__(self) -> Generator[Any, Any, AsyncLease[T, E]]:
        """Claim, and return the lease itself."""
        return self._claim().__await__()

    async def _claim(self) -> AsyncLease[T, E]:
        if not self._claimed:  # `async with` an awaited lease settles what was claimed, and claims no more
            self._claimed = True
            await self._open()
            await self._executor.perform(self._take())
        return self

    async def __aenter__(self) -> E:
        """Claim; return the message (None if there was none), or the list of them if `n` was given."""
        await self._claim()
        return self._entered  # type: ignore[no-any-return]  # E is what `n` makes of it, see AsyncDelayQueue.lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Ack what was not settled by hand; on an exception nack it, and on an outcome do as it says."""
        await self._executor.perform(self._settle(error))
        return isinstance(error, Outcome)


class Puller(BlockingFace[T]):
    """Claiming without a callback."""

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
        lease: Lease[T, Any] = Lease(self._tools, self._executor, Message, duration=duration, n=n, block=block)
        self.open()
        self._executor.perform(lease._take())  # noqa: SLF001 - the two halves of one thing
        return lease


class AsyncPuller(AsyncFace[T]):
    """Claiming without a callback; see `Puller`."""

    @overload
    def lease(
        self, duration: Duration | None = None, *, n: None = None, block: Duration = 0
    ) -> AsyncLease[T, AsyncMessage[T] | None]: ...
    @overload
    def lease(
        self, duration: Duration | None = None, *, n: int, block: Duration = 0
    ) -> AsyncLease[T, list[AsyncMessage[T]]]: ...
    @twin(Puller.lease)
    def lease(
        self, duration: Duration | None = None, *, n: int | None = None, block: Duration = 0
    ) -> AsyncLease[T, Any]:
        return AsyncLease(self.open, self._tools, self._executor, AsyncMessage, duration=duration, n=n, block=block)
