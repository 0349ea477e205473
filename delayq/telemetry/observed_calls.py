"""The calls of a queue that claim and settle messages, each with a CLIENT span from its making to its reply.

A claim that brings nothing has none, nor has a call that fails: a consumer tries it again until Redis replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter, time_ns
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind

from delayq.broker.replies import ClaimReply, TurnReply
from delayq.broker.requests import UNSTARTED
from delayq.telemetry.creation_context import created_in
from delayq.telemetry.recorder import MAX_LINKS, QueueRecorder

_CLAIMS = ("ready_to_unack", "pending_to_unack")
_NAMES = {"discarded": "discard", "missed": "drop"}
"""Acks with these outcomes."""


class _Start:
    """When a call was made, as the time of day (ns) and by the clock that durations are taken from (s)."""

    __slots__ = ("at", "clock")

    def __init__(self) -> None:
        self.at, self.clock = time_ns(), perf_counter()


class CallSpans:
    """Records the claims and settlements of one queue; see `broker.context.CallObserver`."""

    operations = (*_CLAIMS, "turn", "ack", "nack", "reject", "release", "complete")

    def __init__(self, recorder: QueueRecorder, queue: str) -> None:
        self._recorder, self._queue = recorder, queue

    def __call__(
        self, operation: str, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Callable[[Any], object] | None:
        """Return what records the call when it has its reply."""
        if not self._recorder.is_on():
            return None
        if operation == "turn":
            return partial(self._turned, _Start(), options)
        if operation in _CLAIMS:
            return partial(self._claimed, _Start(), options["consumer_id"].endswith(UNSTARTED))
        return partial(self._settled, _Start(), _NAMES.get(options.get("outcome", ""), operation), args[0])

    def _turned(self, start: _Start, options: Mapping[str, Any], reply: TurnReply) -> None:
        if reply.claimed is not None:
            if receipts := options["receipts"]:
                self._settled(start, "ack", receipts, reply)
            self._claimed(start, options["consumer_id"].endswith(UNSTARTED), reply.claimed)

    def _claimed(self, start: _Start, of_loop: bool, claimed: ClaimReply) -> None:  # noqa: FBT001
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

    def _settled(self, start: _Start, operation: str, items: Sequence[Any], _: object) -> None:
        self._end(operation, self._started(operation, start, [one[0] for one in items]), start)

    def _started(self, operation: str, start: _Start, ids: list[str]) -> Any:
        more = {"messaging.message.id": ids[0]} if len(ids) == 1 else {"messaging.batch.message_count": len(ids)}
        return self._recorder.start(operation, self._queue, SpanKind.CLIENT, more, start_time=start.at)

    def _end(self, operation: str, span: Any, start: _Start) -> None:
        self._recorder.end(span, {}, None)
        seconds = perf_counter() - start.clock
        self._recorder.measure("messaging.client.operation.duration", operation, seconds)


def _leave_starter() -> None:
    """Let a consumer loop be in no span: it may have been started in one, which has nothing to do with its messages."""
    if trace.get_current_span().get_span_context().is_valid:
        contexts.attach(Context())
