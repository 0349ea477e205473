"""Sends with a PRODUCER span each, whose context the messages carry; of a batch, one span, or one for each message."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from types import TracebackType
from typing import Self

from opentelemetry import trace
from opentelemetry.trace import SpanContext, SpanKind

from delayq.broker.requests import Outgoing
from delayq.queue.sending.producer import Sent
from delayq.telemetry.creation_context import carrier_of, with_carrier
from delayq.telemetry.recorder import MAX_LINKS, QueueRecorder


class TracedSends:
    """Makes the spans of the sends of one queue; an observer of `observed_sends`."""

    def __init__(self, recorder: QueueRecorder, queue: str, *, create_spans: bool) -> None:
        """Trace the sends to `queue`; with `create_spans`, each message of a batch has a span of its own."""
        self._recorder, self._queue, self._create_spans = recorder, queue, create_spans

    def __call__(self, messages: list[Outgoing], batch: bool) -> SendSpan | None:  # noqa: FBT001 - of the protocol
        """Return the span of a send; None if there is no SDK."""
        if not self._recorder.is_on():
            return None
        return SendSpan(self._recorder, self._queue, messages, batch=batch, creates=batch and self._create_spans)


class SendSpan:
    """One send: of a message, or of a batch with `creates` if each message of it gets a span of its own."""

    sent: Sequence[Sent]

    def __init__(
        self, recorder: QueueRecorder, queue: str, messages: list[Outgoing], *, batch: bool, creates: bool
    ) -> None:
        self._recorder, self._queue, self._batch, self._creates = recorder, queue, batch, creates
        self.messages = messages

    def __enter__(self) -> Self:
        self._began = perf_counter()
        self._created: list[SpanContext] = []
        more = {} if self._batch else {"messaging.message.id": self.messages[0].id}
        kind = SpanKind.CLIENT if self._creates else SpanKind.PRODUCER
        self._span = self._recorder.start("send", self._queue, kind, more)
        self._carrier = {} if self._creates else self._carried(self._span)
        self.messages = [self._carry(one) for one in self.messages]
        return self

    def _carried(self, span: trace.Span | None) -> dict[str, str]:
        try:
            return carrier_of(span)
        except Exception:  # noqa: BLE001 - whatever a propagator raises
            self._recorder.log_failure()
            return {}

    def _carry(self, outgoing: Outgoing) -> Outgoing:
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        if isinstance(error, GeneratorExit):  # the queue could not be opened, or the task was cancelled
            return
        messages = len(self.messages)
        try:
            self._recorder.link(self._span, self._created)
        except Exception:  # noqa: BLE001 - whatever a span of another SDK raises
            self._recorder.log_failure()
        more = {"messaging.batch.message_count": messages} if self._batch else {}
        self._recorder.end(self._span, more, error)
        seconds = perf_counter() - self._began
        self._recorder.measure("messaging.client.operation.duration", "send", seconds, error)
        self._recorder.count("messaging.client.sent.messages", "send", messages, error)
