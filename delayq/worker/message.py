"""A delivered message as a callback or a puller sees it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from delayq.answers import Delivery
from delayq.calls import Calls
from delayq.clock import Duration, milliseconds, moment, monotonic
from delayq.config import Settings, nack_wait
from delayq.errors import ConfigurationError, UndecodableError, shown
from delayq.operation import Operation
from delayq.twins import twin
from delayq.values import Call, Failure, Receipt, Rejection

if TYPE_CHECKING:
    from delayq.executor import AsyncExecutor, Executor

T = TypeVar("T")

LONGEST_ERROR = 2048
"""Characters of an error text that are kept."""
SLOT_TTL = 86_400_000
"""Milliseconds after which a silent call slot is forgotten: a day, far beyond any deadline of a call."""
COLLECTED_AT_ONCE = 100
"""Messages collected into the dead letter in one call: they carry their payloads."""

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


def kept(text: str, name: str = "error") -> str:
    """Return an error or a reason as it is kept: cut to its longest, what cannot be encoded replaced."""
    if not isinstance(text, str):
        raise ConfigurationError(f"{name} must be text, not {shown(text)}")
    return text[:LONGEST_ERROR].encode("utf-8", "replace").decode()


class Batch(msgspec.Struct, eq=False, gc=False):
    """What one call of a callback is given: one message, or several, which name it. It begins when it is taken up."""

    started: float
    _open: list[bool]

    @classmethod
    def begun(cls, now: float) -> Batch:
        """Begin at a local time."""
        return cls(now, [True])

    def conclude(self) -> bool:
        """Answer True to the first who asks: the worker whose callback has ended, or the flow that gives it up."""
        try:
            return self._open.pop()
        except IndexError:
            return False


class Holding(msgspec.Struct, eq=False, gc=False):
    """A delivery while this process holds it; times are local and monotonic, in seconds.

    The consumer's flow reads and writes it, the worker that takes it up puts it into a batch. There may be many at a
    time, so they are no concern of the garbage collector's: nothing that they refer to refers to them.
    """

    delivery: Delivery
    claimed: float
    server_now: int
    """The server's time (ms) of the claim."""
    deadline: float
    batch: Batch | None = None
    lost: bool = False
    settled: bool = False

    @property
    def lateness(self) -> float:
        """Seconds between the due time and the claim."""
        return (self.server_now - self.delivery.due) / 1000

    @property
    def receipt(self) -> Receipt:
        """The right to settle this delivery."""
        return Receipt(self.delivery.id, self.delivery.token)


def named(holdings: Sequence[Holding]) -> tuple[str, dict[str, Any]]:
    """Return how a log calls what one call of a callback was given, and the fields that it adds."""
    if len(holdings) > 1:
        return f"batch of {len(holdings)} messages", {"ids": [holding.delivery.id for holding in holdings]}
    id, attempt = holdings[0].delivery.id, holdings[0].delivery.attempt
    return f"message {id}", {"id": id, "attempt": attempt}


class Tools:
    """What the messages of one queue need to settle themselves."""

    __slots__ = ("calls", "confirming", "decode", "settings")

    def __init__(self, calls: Calls, settings: Settings, decode: Callable[[bytes], Any]) -> None:
        """Bundle the calls, the settings and the payload decoder of a queue."""
        self.calls = calls
        self.settings = settings
        self.decode = decode
        wanted, timeout = settings.replicas, settings.replication_timeout
        self.confirming = calls.confirm(wanted, timeout=timeout) if wanted else []
        """What ends a round trip that must not be lost in a failover; nothing by default."""

    def collect(self, ids: tuple[str, ...] = ()) -> Any:
        """Return the call that moves spent messages (those named, or any) to the dead letter."""
        return self.calls.collect_garbage(
            limit=COLLECTED_AT_ONCE,
            dead_max=self.settings.dead_max,
            dead_ttl=self.settings.dead_ttl,
            slot_ttl=SLOT_TTL,
            ids=ids,
        )


class _Delivered(Generic[T]):
    """What both kinds of message have in common: the facts, and the operations behind the methods."""

    __slots__ = ("_executor", "_handed", "_holding", "_tools", "payload")

    payload: T
    """The payload, decoded."""

    def __init__(self, holding: Holding, tools: Tools, executor: Any, handed: float) -> None:
        """Wrap a held delivery, handed over at a local time; raises `UndecodableError` if its payload is none."""
        try:
            self.payload = tools.decode(holding.delivery.payload)
        except UndecodableError:
            raise
        except Exception as error:
            raise UndecodableError(f"undecodable: {shown(error)}") from error
        self._holding = holding
        self._tools = tools
        self._executor = executor
        self._handed = handed

    def __repr__(self) -> str:
        """Show the delivery without its payload, which may be private."""
        return f"<{type(self).__name__} {self.id} attempt={self.attempt} retries_left={self.retries_left}>"

    @property
    def id(self) -> str:
        """The message's id: the same over its attempts."""
        return self._holding.delivery.id

    @property
    def attempt(self) -> int:
        """Which delivery this is, from 1; released ones are not counted."""
        return self._holding.delivery.attempt

    @property
    def retries_left(self) -> int:
        """How often the message will be delivered again if this attempt fails, and so on."""
        return self._holding.delivery.retries_left

    @property
    def due(self) -> datetime:
        """When the message was due, in UTC."""
        return moment(self._holding.delivery.due)

    @property
    def lateness(self) -> float:
        """Seconds between the due time and the hand-over to this process and its callback."""
        return self._holding.lateness + self._handed - self._holding.claimed

    @property
    def headers(self) -> dict[str, str]:
        """The headers it was sent with."""
        stored = self._holding.delivery.headers
        return _decode_headers(stored) if stored else {}

    @property
    def token(self) -> int:
        """The fencing token of this delivery: higher than that of any delivery of this queue before it."""
        return self._holding.delivery.token

    @property
    def lease_lost(self) -> bool:
        """Whether the lease has run out or was taken over: somebody else may be at work on the message."""
        return self._holding.lost or monotonic() > self._holding.deadline

    def _settle(self, call: Call[str]) -> Operation[str]:
        """Settle by hand. Where the call fails, it is left to what the callback returns."""
        self._holding.settled = True
        try:
            (answer,) = yield [call]
        except BaseException:
            self._holding.settled = False
            raise
        return str(answer)

    def _ack(self) -> Operation[bool]:
        answer = yield from self._settle(self._tools.calls.ack([self._holding.receipt]))
        return answer == "1"

    def _nack(self, delay: Duration | None, error: str) -> Operation[bool]:
        wait = self._tools.settings.backoff.delay(self.attempt) if delay is None else nack_wait(delay)
        text = kept(error)
        failure = Failure(*self._holding.receipt, nack_wait(wait / 1000), text)
        answer = yield from self._settle(self._tools.calls.nack([failure]))
        if answer == "2":
            yield [self._tools.collect((self.id,))]
        return answer != "0"

    def _extend(self, duration: Duration | None) -> Operation[bool]:
        lease = self._tools.settings.lease if duration is None else milliseconds(duration, "lease", least=100)
        before = monotonic()
        (answer,) = yield [self._tools.calls.extend([self._holding.receipt], lease=lease)]
        if answer == "1":
            self._holding.deadline = before + lease / 1000
        else:
            self._holding.lost = True
        return bool(answer == "1")

    def _release(self) -> Operation[bool]:
        answer = yield from self._settle(self._tools.calls.release([self._holding.receipt]))
        return answer == "1"

    def _reject(self, reason: str) -> Operation[bool]:
        text = kept(reason, "reason")
        rejection = Rejection(*self._holding.receipt, text, "")
        answer = yield from self._settle(self._tools.calls.reject([rejection]))
        return answer == "1"


class Message(_Delivered[T]):
    """A delivered message. Settling it by hand takes precedence over what the callback returns."""

    __slots__ = ()
    _executor: Executor

    def ack(self) -> bool:
        """Settle the message as done. True for exactly one receipt of its life, whoever comes first, late or not."""
        return self._executor.perform(self._ack())

    def nack(self, *, delay: Duration | None = None, error: str = "") -> bool:
        """Have the message delivered again after `delay`, or the queue's `nack_delay`; takes one retry.

        False, and nothing is changed, if the lease was lost before.
        """
        return self._executor.perform(self._nack(delay, error))

    def extend(self, duration: Duration | None = None) -> bool:
        """Renew the lease, counted from now; by default for the queue's `lease`. False if it was lost before."""
        return self._executor.perform(self._extend(duration))

    def release(self) -> bool:
        """Give the message back to the head of the queue as if it had not been delivered; no retry is charged.

        False, and nothing is changed, if the lease was lost before.
        """
        return self._executor.perform(self._release())

    def reject(self, reason: str) -> bool:
        """Move the message to the dead letter at once. False, and nothing is changed, if the lease was lost before."""
        return self._executor.perform(self._reject(reason))


class AsyncMessage(_Delivered[T]):
    """A delivered message of an `AsyncDelayQueue`; see `Message`."""

    __slots__ = ()
    _executor: AsyncExecutor

    @twin(Message.ack)
    async def ack(self) -> bool:
        return await self._executor.perform(self._ack())

    @twin(Message.nack)
    async def nack(self, *, delay: Duration | None = None, error: str = "") -> bool:
        return await self._executor.perform(self._nack(delay, error))

    @twin(Message.extend)
    async def extend(self, duration: Duration | None = None) -> bool:
        return await self._executor.perform(self._extend(duration))

    @twin(Message.release)
    async def release(self) -> bool:
        return await self._executor.perform(self._release())

    @twin(Message.reject)
    async def reject(self, reason: str) -> bool:
        return await self._executor.perform(self._reject(reason))
