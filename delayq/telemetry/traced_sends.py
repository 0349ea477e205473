"""Sends with a PRODUCER span each, whose context the messages carry; of a batch, one span, or one for each message."""

from __future__ import annotations

from time import perf_counter
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.trace import SpanContext, SpanKind

from delayq.broker.message.ids import new_ids
from delayq.broker.requests import Outgoing, Replace
from delayq.broker.transport.operation import Operation
from delayq.queue.sending.producer import Producer
from delayq.queue.sending.sent import Sent, SentMany
from delayq.telemetry.creation_context import carrier_of, with_carrier
from delayq.telemetry.recorder import MAX_LINKS, QueueRecorder

T = TypeVar("T")


class SendSpan:
    """One send: of a message, or of a batch with `creates` if each message of it gets a span of its own."""

    def __init__(self, recorder: QueueRecorder, queue: str, id: str | None, *, creates: bool = False) -> None:
        """Begin; the number of messages of a batch, which has no `id`, is told at its end."""
        self._recorder, self._queue, self._creates = recorder, queue, creates
        self._began = perf_counter()
        self._created: list[SpanContext] = []
        more = {} if id is None else {"messaging.message.id": id}
        kind = SpanKind.CLIENT if creates else SpanKind.PRODUCER
        self._span = recorder.start("send", queue, kind, more)
        self._carrier = {} if creates else self._carried(self._span)

    def _carried(self, span: trace.Span | None) -> dict[str, str]:
        try:
            return carrier_of(span)
        except Exception:  # noqa: BLE001 - whatever a propagator raises
            self._recorder.log_failure()
            return {}

    def carry(self, outgoing: Outgoing) -> Outgoing:
        """Return the message with the context of the span in which it is created."""
        if not self._creates:
            return with_carrier(outgoing, self._carrier)
        context = None if self._span is None else trace.set_span_in_context(self._span)
        more = {"messaging.message.id": outgoing.id}
        span = self._recorder.start("create", self._queue, SpanKind.PRODUCER, more, context=context)
        if span is not None and len(self._created) < MAX_LINKS:
            self._created.append(span.get_span_context())
        carried = with_carrier(outgoing, self._carried(span))
        self._recorder.end(span, {}, None)
        return carried

    def end(self, messages: int, error: BaseException | None, *, batch: bool = False) -> None:
        """End it: the messages were sent, or the send has failed."""
        try:
            self._recorder.link(self._span, self._created)
        except Exception:  # noqa: BLE001 - whatever a span of another SDK raises
            self._recorder.log_failure()
        self._recorder.end(self._span, {"messaging.batch.message_count": messages} if batch else {}, error)
        seconds = perf_counter() - self._began
        self._recorder.measure("messaging.client.operation.duration", "send", seconds, error)
        self._recorder.count("messaging.client.sent.messages", "send", messages, error)


def traced_sends(sends: Any, recorder: QueueRecorder, queue: str, *, awaits: bool) -> Any:
    """Return what sends the single messages of a queue, with a span each."""
    return (_AsyncTracedSends if awaits else _TracedSends)(sends, recorder, queue)


class _TracedSends:
    """In place of a `GroupCommit`."""

    def __init__(self, sends: Any, recorder: QueueRecorder, queue: str) -> None:
        self._sends, self._recorder, self._queue = sends, recorder, queue

    def send(self, outgoing: Outgoing, *, replace: Replace) -> Sent:
        """Send a message."""
        if not self._recorder.is_on():
            return self._sends.send(outgoing, replace=replace)  # type: ignore[no-any-return]
        span = SendSpan(self._recorder, self._queue, outgoing.id)
        try:
            sent: Sent = self._sends.send(span.carry(outgoing), replace=replace)
        except BaseException as error:
            span.end(1, error)
            raise
        span.end(1, None)
        return sent


class _AsyncTracedSends(_TracedSends):
    """In place of an `AsyncGroupCommit`."""

    async def send(self, outgoing: Outgoing, *, replace: Replace) -> Sent:  # type: ignore[override]
        """Send a message."""
        if not self._recorder.is_on():
            return await self._sends.send(outgoing, replace=replace)  # type: ignore[no-any-return]
        span = SendSpan(self._recorder, self._queue, outgoing.id)
        try:
            sent: Sent = await self._sends.send(span.carry(outgoing), replace=replace)
        except BaseException as error:
            span.end(1, error)
            raise
        span.end(1, None)
        return sent


class TracedProducer(Producer):
    """A producer whose sends have spans: the single sends of streams and of schedules, and all batches."""

    def trace(self, recorder: QueueRecorder, queue: str, *, create_spans: bool) -> TracedProducer:
        """Trace the sends to `queue`; `create_spans` is for batches."""
        self._recorder, self._queue, self._create_spans = recorder, queue, create_spans
        return self

    def send(self, messages: list[Outgoing], *, replace: Replace = False) -> Operation[list[Sent]]:
        """Send messages in one call."""
        if not self._recorder.is_on():
            return (yield from super().send(messages, replace=replace))
        single = messages[0].id if len(messages) == 1 else None
        span = SendSpan(self._recorder, self._queue, single)
        try:
            sent = yield from super().send([span.carry(one) for one in messages], replace=replace)
        except GeneratorExit:  # the queue could not be opened, or the task was cancelled
            raise
        except BaseException as error:
            span.end(len(messages), error, batch=single is None)
            raise
        span.end(len(messages), None, batch=single is None)
        return sent

    def send_many(self, messages: Any, **options: Any) -> Operation[SentMany]:
        """Send a batch."""
        if not self._recorder.is_on():
            return (yield from super().send_many(messages, **options))
        span = SendSpan(self._recorder, self._queue, None, creates=self._create_spans)
        batch = _TracedBatch(self._context, self, span)
        try:
            sent = yield from batch.send_many(messages, **options)
        except GeneratorExit:
            raise
        except BaseException as error:
            span.end(batch.messages, error, batch=True)
            raise
        span.end(batch.messages, None, batch=True)
        return sent


class _TracedBatch(Producer):
    """The producer of one batch."""

    def __init__(self, context: Any, producer: Producer, span: SendSpan) -> None:
        encoder: Any = producer  # of a codec, it takes what encodes alone
        super().__init__(context, encoder, producer.in_one_form)
        self._span = span
        self.messages = 0
        """How many messages the batch has, once they are encoded."""

    def _ready(self, messages: list[Any], due: int, retries: int | None, *, replace: Replace) -> list[Outgoing]:
        ready: list[Any] = super()._ready(messages, due, retries, replace=replace)
        self.messages = len(ready)
        if ready and isinstance(ready[0], bytes):
            ids, own = new_ids(len(ready)), (b"", self._attributes)
            number = self._context.settings.default_retries if retries is None else retries
            ready = [Outgoing(id, due, number, payload, *own) for id, payload in zip(ids, ready, strict=True)]
        return [self._span.carry(one) for one in ready]
