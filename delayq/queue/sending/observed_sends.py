"""The seam of sending: what is done around the sends of a queue, such as spans, or the hooks of a program.

A queue without observers has its plain `GroupCommit` and `Producer`, and asks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol, Self

from delayq.broker.message.ids import new_ids
from delayq.broker.requests import Outgoing, Replace
from delayq.broker.transport.operation import Operation
from delayq.queue.sending.producer import Producer, Sent, SentMany


class SendUnderWay(Protocol):
    """One send, as an observer accompanies it: entered before, and left after it, with its exception if it failed.

    A `GeneratorExit` means that nothing was sent: the queue could not be opened, or the task was cancelled.
    """

    messages: list[Outgoing]
    """What is sent: as it was given, or with other headers."""
    sent: Sequence[Sent]
    """What became of the messages, set when the send has succeeded."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...


SendObserver = Callable[[list[Outgoing], bool], SendUnderWay | None]
"""Called with the messages, and whether they are a batch; returns None to leave this send alone."""


def observe_sends(queue: Any, observer: SendObserver) -> None:
    """Let an observer accompany all sends of a queue from now on, within those that do so already."""
    if isinstance(queue.producer, ObservedProducer):
        queue.producer.observers.append(observer)
        return
    queue.producer = ObservedProducer(queue.producer, [observer])
    if hasattr(queue, "sends"):  # of delay queues, which share round trips
        sends = AsyncObservedSends if queue.awaits else ObservedSends
        queue.sends = sends(queue.sends, queue.producer.observers)


class _Observed(ExitStack):
    """A send within all its observers."""

    def __init__(self, observers: Sequence[SendObserver], messages: list[Outgoing], *, batch: bool) -> None:
        super().__init__()
        self._observers, self._batch = observers, batch
        self.messages = messages
        self._under_way: list[SendUnderWay] = []

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            for observer in self._observers:
                if (under_way := observer(self.messages, self._batch)) is not None:
                    self._under_way.append(entered.enter_context(under_way))
                    self.messages = under_way.messages
            self.push(entered.pop_all().__exit__)
        return self

    def succeed(self, sent: Sequence[Sent]) -> None:
        """Tell what became of the messages."""
        for under_way in self._under_way:
            under_way.sent = sent


class ObservedSends:
    """In place of a `GroupCommit`."""

    def __init__(self, sends: Any, observers: list[SendObserver]) -> None:
        self._sends, self._observers = sends, observers

    def send(self, outgoing: Outgoing, *, replace: Replace) -> Sent:
        """Send a message."""
        with _Observed(self._observers, [outgoing], batch=False) as observed:
            sent: Sent = self._sends.send(observed.messages[0], replace=replace)
            observed.succeed([sent])
        return sent


class AsyncObservedSends(ObservedSends):
    """In place of an `AsyncGroupCommit`."""

    async def send(self, outgoing: Outgoing, *, replace: Replace) -> Sent:  # type: ignore[override]
        """Send a message."""
        with _Observed(self._observers, [outgoing], batch=False) as observed:
            sent: Sent = await self._sends.send(observed.messages[0], replace=replace)
            observed.succeed([sent])
        return sent


class ObservedProducer(Producer):
    """A producer whose sends are observed: the single sends of streams and of schedules, and all batches."""

    def __init__(self, producer: Producer, observers: list[SendObserver]) -> None:
        """Take over all that a producer has."""
        vars(self).update(vars(producer))
        self.observers = observers

    def send(self, messages: list[Outgoing], *, replace: Replace = False) -> Operation[list[Sent]]:
        """Send messages in one call."""
        with _Observed(self.observers, messages, batch=len(messages) != 1) as observed:
            sent = yield from super().send(observed.messages, replace=replace)
            observed.succeed(sent)
        return sent

    def send_many(self, messages: Any, **options: Any) -> Operation[SentMany]:
        """Send a batch."""
        return (yield from _ObservedBatch(self).send_many(messages, **options))


class _ObservedBatch(Producer):
    """The producer of one batch."""

    def __init__(self, producer: ObservedProducer) -> None:
        vars(self).update(vars(producer))
        self._observers = producer.observers
        self._observed: _Observed | None = None

    def send_many(self, messages: Any, **options: Any) -> Operation[SentMany]:
        with ExitStack() as self._stack:
            sent = yield from super().send_many(messages, **options)
            if self._observed is not None:
                self._observed.succeed(sent)
        return sent

    def _ready(self, messages: list[Any], due: int, retries: int | None, *, replace: Replace) -> list[Outgoing]:
        ready: list[Any] = super()._ready(messages, due, retries, replace=replace)
        if ready and isinstance(ready[0], bytes):
            ids, own = new_ids(len(ready)), (b"", self._attributes)
            number = self._context.settings.default_retries if retries is None else retries
            ready = [Outgoing(id, due, number, payload, *own) for id, payload in zip(ids, ready, strict=True)]
        self._observed = self._stack.enter_context(_Observed(self._observers, ready, batch=True))
        return self._observed.messages
