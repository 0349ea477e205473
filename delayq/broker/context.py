"""What the operations of one queue share: its calls and who observes them, its settings and its payload decoder.

`EngineCalls` are those calls that consumers, leases and messages need from a queue of any engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial, wraps
from typing import Any, ClassVar, Protocol, Self, TypeVar

from delayq.broker.calls import Calls, SendStatuses
from delayq.broker.engine import EngineCapabilities
from delayq.broker.replies import ClaimReply, CollectReply, ExpireReply, PromoteReply, TurnReply
from delayq.broker.requests import Failure, Messages, Receipt, RedisCommand, Rejection, Release, ScriptCall
from delayq.broker.results import Completed, ResultCodec
from delayq.options import Settings
from delayq.values.codec import JsonCodec

T = TypeVar("T")


class EngineCalls(Protocol):
    """The calls that consumers, leases and messages make to the engine of their queue.

    Each returns a call as a value. A string of statuses has one digit for each message of the call.
    """

    capabilities: ClassVar[EngineCapabilities]
    waiting_takes: ClassVar[bool]
    """Whether a wait for a wake-up may take a message, which is then to be claimed or given back."""

    def send(self, messages: Messages, *, max_length: int | None) -> ScriptCall[SendStatuses]:
        """Store messages. Status: 1 new, 0 exists; an engine may have more."""

    def pending_to_ready(self) -> ScriptCall[PromoteReply]:
        """Promote what is due, and read when more will be."""

    def is_empty(self) -> RedisCommand[bool] | None:
        """Read whether a promotion would find nothing at all; None if this costs as much as a promotion."""

    def ready_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[ClaimReply]:
        """Claim up to `wanted` messages under a lease (ms)."""

    def pending_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> ScriptCall[ClaimReply] | None:
        """Claim up to `wanted` due messages that were not promoted; None if the engine has no promotion."""

    def turn(
        self, wanted: int, *, ahead: int, lease: int, consumer_id: str, receipts: Iterable[Receipt] = ()
    ) -> ScriptCall[TurnReply]:
        """Settle messages as done and claim in one call, for plain queues of engines with `DELAYS`."""

    def unack_to_retry(self) -> ScriptCall[ExpireReply] | RedisCommand[ExpireReply]:
        """Take back messages whose lease or backoff has expired."""

    def ack(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Settle messages as done. Status: 1 settled by this call, 0 not."""

    def complete(self, completions: Iterable[Completed]) -> ScriptCall[str]:
        """Settle messages that have retention, for engines with `RESULTS`. Status as of `ack`."""

    def report(self, receipt: Receipt, progress: str) -> ScriptCall[str]:
        """Store the progress (base64) of a message, for engines with `RESULTS`. Status: 1 stored, 0 not in flight."""

    def close(self, name: str | None, delay: int, *, pause: int | None = None) -> ScriptCall[str]:
        """Close a name or the queue for so long (ms), or change its breaker, for engines with `LIMITS`; 0 not done."""

    def discard(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Settle messages as discarded. Status as of `ack`."""

    def drop(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Discard messages that are missed, for engines with `EXPIRY`. Status as of `ack`."""

    def nack(self, failures: Iterable[Failure]) -> ScriptCall[str]:
        """Retry messages after a delay. Status: 1 will be retried, 2 to be collected, 0 not in flight."""

    def release(self, releases: Iterable[Release]) -> ScriptCall[str]:
        """Give messages back, at once or after a delay, without charging an attempt. Status: 0 not given back."""

    def extend(self, receipts: Iterable[Receipt], *, lease: int) -> ScriptCall[str]:
        """Renew leases (ms from now). Status: 1 renewed, 2 renewed and asked to stop, 0 not in flight."""

    def start(self, receipts: Iterable[Receipt]) -> ScriptCall[str]:
        """Note that callbacks have started, for engines with `START_REPORTS`. Status: 0 not in flight."""

    def withdraw(self, ids: Iterable[str]) -> ScriptCall[str]:
        """Ask consumers to return what they have not started, for engines with `START_REPORTS`.

        Status: 1 asked, 2 not in flight, 0 started.
        """

    def is_withdrawn(self, ids: Iterable[str]) -> RedisCommand[bool]:
        """Read whether a consumer was asked to return any of its messages, for engines with `START_REPORTS`."""

    def is_stopping(self, ids: Iterable[str]) -> RedisCommand[list[int]]:
        """Read the tokens of messages that are asked to stop, 0 for others, for engines with `CANCEL`."""

    def reject(self, rejections: Iterable[Rejection]) -> ScriptCall[str]:
        """Move messages to the dead letter."""

    def collect(self, settings: Settings, *, ids: Iterable[str] = ()) -> ScriptCall[CollectReply]:
        """Move spent messages (`ids`, or any) to the dead letter, trim it, and forget unused call slots."""

    def await_wake(self, timeout: float) -> RedisCommand[bool]:
        """Wait up to `timeout` seconds until there may be a message."""

    def wake(self) -> ScriptCall[Any]:
        """Pass on a wake-up that this consumer cannot follow."""

    def confirm(self, replicas: int, *, timeout: int) -> list[RedisCommand[Any]]:
        """Wait up to `timeout` ms until so many replicas have what stands before it in the same round trip."""


class CallObserver(Protocol):
    """Sees calls of a queue as they are made, and their replies. An unobserved queue has its plain calls."""

    @property
    def operations(self) -> Collection[str]:
        """The methods of an engine's calls that it sees, also where one of them uses another."""

    def __call__(
        self, operation: str, args: Sequence[Any], options: Mapping[str, Any], /
    ) -> Callable[[Any], object] | None:
        """Look at a call that is about to be sent; return what is called with its reply, None to leave it alone.

        The messages of the call are the list that is its first argument. Errors are not told: the call raises them.
        """


def observed(calls: T, observer: CallObserver) -> T:
    """Return the same calls, observed: of a class of their own, so that a copy with another clock is observed, too."""
    kind: Any = type(calls)
    seen = {name: _seen(name, getattr(kind, name), observer) for name in observer.operations if hasattr(kind, name)}
    made: Any = type(f"Observed{kind.__name__}", (kind,), {"__slots__": (), **seen})
    return made(**{field.name: getattr(calls, field.name) for field in fields(kind)})  # type: ignore[no-any-return]


def _seen(operation: str, make: Callable[..., Any], observer: CallObserver) -> Callable[..., Any]:
    @wraps(make)
    def seen(calls: Any, *args: Any, **options: Any) -> Any:
        if args and not isinstance(args[0], list | tuple | str | int | None):  # both would read it
            args = (list(args[0]), *args[1:])
        call = make(calls, *args, **options)
        told = None if call is None else observer(operation, args, options)
        if told is not None:
            call.parse = partial(_tell, call.parse, told)
        return call

    return seen


def _tell(parse: Callable[[Any], T], told: Callable[[T], object], reply: Any) -> T:
    value = parse(reply)
    told(value)
    return value


class EngineContext:
    """The calls, settings and payload decoder of one queue of any engine."""

    __slots__ = ("calls", "confirming", "decode", "hides", "lifespan", "queue", "results", "settings")

    calls: EngineCalls

    def __init__(
        self,
        calls: Any,
        settings: Settings,
        decode: Callable[[bytes], Any],
        queue: str,
        results: ResultCodec | None = None,
        *,
        hides: bool = False,
    ) -> None:
        self.queue = queue
        """The name of the queue."""
        self.calls = calls
        self.settings = settings
        self.decode = decode
        self.hides = hides
        """Whether `decode` hides what the queue redacts: then nothing is shown or searched without it."""
        self.lifespan: Any = None
        """Holds the `value` that callbacks find at `message.resources`; None for none."""
        self.results = results or ResultCodec(JsonCodec(), settings.max_result)
        """Encodes and decodes results and progress."""
        replicas, timeout = settings.replicas, settings.replication_timeout
        self.confirming = calls.confirm(replicas, timeout=timeout) if replicas else []
        """Requests that end a round trip which a failover must not lose; none by default."""

    def observe(self, observer: CallObserver) -> None:
        """Let an observer see the calls that are made from now on, besides those that see them already."""
        self.calls = observed(self.calls, observer)

    def with_settings(self, settings: Settings) -> Self:
        """Return the same context with other settings."""
        made = type(self)(self.calls, settings, self.decode, self.queue, self.results, hides=self.hides)
        made.lifespan = self.lifespan
        return made

    def with_lifespan(self, lifespan: Any) -> Self:
        """Return the same context for a run with a lifespan."""
        made = self.with_settings(self.settings)
        made.lifespan = lifespan
        return made


class QueueContext(EngineContext):
    """The calls, settings and payload decoder of a delay queue."""

    __slots__ = ()

    calls: Calls
