"""The calls of a queue that claim and settle messages, each with a CLIENT span from its making to its reply.

A claim that brings nothing has none, nor has a call that fails: a consumer tries it again until Redis replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import partial
from time import perf_counter, time_ns
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind

from delayq.broker.requests import UNSTARTED
from delayq.telemetry.creation_context import created_in
from delayq.telemetry.recorder import MAX_LINKS, QueueRecorder

_NAMES = {"acked": "ack", "discarded": "discard", "missed": "drop"}


class _Start:
    """When a call was made, as the time of day (ns) and by the clock that durations are taken from (s)."""

    __slots__ = ("at", "clock")

    def __init__(self) -> None:
        self.at, self.clock = time_ns(), perf_counter()


class CallObserver:
    """Records the claims and settlements of one queue."""

    def __init__(self, recorder: QueueRecorder, queue: str) -> None:
        self._recorder, self._queue = recorder, queue

    def claim(self, call: Any, consumer_id: str) -> Any:
        """Return a claim that is recorded if it brings messages; None for None."""
        if call is not None and self._recorder.is_on():
            of_loop = consumer_id.endswith(UNSTARTED)
            call.parse = partial(self._read_claim, call.parse, _Start(), of_loop)
        return call

    def settlement(self, call: Any, operation: str, items: Sequence[Any]) -> Any:
        """Return a call that settles `items`, whose first fields are ids, and is recorded."""
        if self._recorder.is_on():
            call.parse = partial(self._read_settled, call.parse, _Start(), operation, items)
        return call

    def _read_claim(self, parse: Callable[[Any], Any], start: _Start, of_loop: bool, reply: Any) -> Any:  # noqa: FBT001
        claimed = parse(reply)
        messages = claimed.messages
        if messages:
            try:
                if of_loop:
                    _leave_starter()
                span = self._started("receive", start, [one.id for one in messages])
                if span is not None and span.is_recording():
                    self._recorder.link(span, created_in(messages[:MAX_LINKS]))
            except Exception:  # noqa: BLE001 - whatever a propagator or a header raises
                span = None
                self._recorder.log_failure()
            self._end("receive", span, start)
            self._recorder.count("messaging.client.consumed.messages", "receive", len(messages))
        return claimed

    def _read_settled(
        self, parse: Callable[[Any], Any], start: _Start, operation: str, items: Sequence[Any], reply: Any
    ) -> Any:
        settled = parse(reply)
        self._end(operation, self._started(operation, start, [one[0] for one in items]), start)
        return settled

    def _started(self, operation: str, start: _Start, ids: list[str]) -> Any:
        more = {"messaging.message.id": ids[0]} if len(ids) == 1 else {"messaging.batch.message_count": len(ids)}
        return self._recorder.start(operation, self._queue, SpanKind.CLIENT, more, start_time=start.at)

    def _end(self, operation: str, span: Any, start: _Start) -> None:
        self._recorder.end(span, {}, None)
        seconds = perf_counter() - start.clock
        self._recorder.measure("messaging.client.operation.duration", operation, seconds)


class ObservedCalls:
    """What the calls of an observed queue do besides; the other base class makes them."""

    observer: CallObserver

    def ready_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> Any:
        """Claim messages."""
        call = super().ready_to_unack(wanted, lease=lease, consumer_id=consumer_id)  # type: ignore[misc]
        return self.observer.claim(call, consumer_id)

    def pending_to_unack(self, wanted: int, *, lease: int, consumer_id: str) -> Any:
        """Claim messages that were not promoted."""
        call = super().pending_to_unack(wanted, lease=lease, consumer_id=consumer_id)  # type: ignore[misc]
        return self.observer.claim(call, consumer_id)

    def ack(self, receipts: Iterable[Any], **options: Any) -> Any:
        """Settle messages as done, or by `outcome` as discarded or missed."""
        items = list(receipts)
        call = super().ack(items, **options)  # type: ignore[misc]
        return self.observer.settlement(call, _NAMES[options.get("outcome", "acked")], items)

    def nack(self, failures: Iterable[Any]) -> Any:
        """Retry messages."""
        items = list(failures)
        return self.observer.settlement(super().nack(items), "nack", items)  # type: ignore[misc]

    def reject(self, rejections: Iterable[Any]) -> Any:
        """Move messages to the dead letter."""
        items = list(rejections)
        return self.observer.settlement(super().reject(items), "reject", items)  # type: ignore[misc]

    def release(self, releases: Iterable[Any]) -> Any:
        """Return messages."""
        items = list(releases)
        return self.observer.settlement(super().release(items), "release", items)  # type: ignore[misc]

    def complete(self, completions: Iterable[Any]) -> Any:
        """Settle messages as done, and keep their results."""
        items = list(completions)
        return self.observer.settlement(super().complete(items), "complete", items)  # type: ignore[misc]


def observed(calls: Any, observer: CallObserver) -> Any:
    """Return the same calls, observed: of a class of their own, so that a copy with another clock is observed, too."""
    kind = type(calls)
    made = type(f"Observed{kind.__name__}", (ObservedCalls, kind), {"observer": observer})
    return made(**{field.name: getattr(calls, field.name) for field in fields(calls)})


def _leave_starter() -> None:
    """Let a consumer loop be in no span: it may have been started in one, which has nothing to do with its messages."""
    if trace.get_current_span().get_span_context().is_valid:
        contexts.attach(Context())
