"""A CONSUMER span around each callback: the root of a trace, linked to where its message was created and failed before.

A message may be due hours after it was sent. As a child, its span would join a trace that is long stored and sampled.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import isawaitable
from time import perf_counter
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TraceFlags

from delayq.telemetry.creation_context import context_of
from delayq.telemetry.recorder import MAX_LINKS, Attributes, QueueRecorder
from delayq.values.outcomes import Discard, Outcome, Reject, Retry, Snooze, StopWorker
from delayq.worker.drivers.callbacks import is_blocking
from delayq.worker.drivers.work_buffer import Callback
from delayq.worker.parts.meter import LATE
from delayq.worker.parts.presence import BY_HAND

_TEXT = re.compile(r"([0-9a-f]{32})([0-9a-f]{16})")


def text_of(span: Span) -> str:
    """Return what is stored of a span: the trace's id and its own, in hexadecimal; '' if it is not sampled."""
    context = span.get_span_context()
    if not (context.is_valid and context.trace_flags.sampled):
        return ""
    return f"{context.trace_id:032x}{context.span_id:016x}"


def links_to(text: str) -> list[Link]:
    """Return the link to the span that is stored as a text; none if it is none."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return []
    trace_id, span_id = (int(part, 16) for part in found.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return [Link(context)] if context.is_valid else []


_OUTCOMES: tuple[tuple[type[Outcome], str], ...] = (
    (Retry, "retried"),
    (Snooze, "snoozed"),
    (Reject, "rejected"),
    (Discard, "discarded"),
    (StopWorker, "stopped"),
)


class ProcessSpans:
    """Wraps the callback of one queue."""

    def __init__(self, recorder: QueueRecorder, queue: str, *, awaits: bool) -> None:
        """Measure the callbacks of `queue`, which may be coroutine functions if it `awaits` them."""
        self._recorder, self._queue, self._awaits = recorder, queue, awaits

    def around(self, callback: Callback) -> Callback:
        """Return a callback that does the same within spans."""
        return callback.wrapped(self._wrapped)

    def _wrapped(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return partial(self._call if is_blocking(function) else self._call_async, function)

    def _call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        if not self._recorder.on:
            return function(argument)
        running = _Running(self._recorder, self._queue, argument)
        try:
            result = function(argument)
        except BaseException as error:
            running.end(None, error)
            raise
        if self._awaits and isawaitable(result):  # a function that returns a coroutine
            return self._finish(running, result)
        running.end(result, None)
        return result

    async def _call_async(self, function: Callable[[Any], Awaitable[Any]], argument: Any) -> Any:
        if not self._recorder.on:
            return await function(argument)
        running = _Running(self._recorder, self._queue, argument)
        try:
            result = await function(argument)
        except BaseException as error:
            running.end(None, error)
            raise
        running.end(result, None)
        return result

    async def _finish(self, running: _Running, awaited: Awaitable[Any]) -> Any:
        running.enter()
        try:
            result = await awaited
        except BaseException as error:
            running.end(None, error)
            raise
        running.end(result, None)
        return result


class _Running:
    """A callback that runs."""

    __slots__ = ("_began", "_context", "_messages", "_recorder", "_span", "_token")

    def __init__(self, recorder: QueueRecorder, queue: str, argument: Any) -> None:
        self._recorder = recorder
        self._messages: Sequence[Any] = argument if isinstance(argument, list) else (argument,)
        self._span: trace.Span | None = None
        self._token: Any = None
        for message in self._messages:
            if message.attempt == 1:
                recorder.measure("messaging.delayq.lateness", "process", message.lateness)
        try:
            context, links = self._created()
            self._context = context
            more = self._attributes(batch=isinstance(argument, list))
            self._span = recorder.start("process", queue, SpanKind.CONSUMER, more, context=context, links=links)
            if self._span is not None:
                self._token = contexts.attach(trace.set_span_in_context(self._span, context))
                stored = text_of(self._span)
                for message in self._messages:
                    message.delivery.span = stored
        except Exception:  # noqa: BLE001 - whatever a propagator raises
            recorder.log_failure()
        self._began = perf_counter()

    def _created(self) -> tuple[Context, list[trace.Link]]:
        """Return the context of the span, and the links to where its messages were created and failed before."""
        context, links = Context(), []
        for message in self._messages[:MAX_LINKS]:
            context, created = context_of(message.headers)
            links += [] if created is None else [trace.Link(created)]
            links += links_to(message.delivery.attributes.span)
        return context if len(self._messages) == 1 else Context(), links[:MAX_LINKS]

    def _attributes(self, *, batch: bool) -> Attributes:
        if batch:
            return {"messaging.batch.message_count": len(self._messages)}
        message = self._messages[0]
        more = {"messaging.message.id": message.id, "messaging.delayq.attempt": message.attempt}
        if name := message.name:
            more["messaging.delayq.name"] = name
        return more

    def enter(self) -> None:
        """Make its span the current one of this task: the one that called the function runs in a thread."""
        if self._span is not None:
            self._token = contexts.attach(trace.set_span_in_context(self._span, self._context))

    def end(self, result: object, error: BaseException | None) -> None:
        """End it by what the callback returned or raised."""
        seconds = perf_counter() - self._began
        failure = None if isinstance(error, Outcome) else error
        try:
            if self._token is not None:
                contexts.detach(self._token)
            more = {"messaging.delayq.outcome": outcome_of(self._messages, result, error)}
        except Exception:  # noqa: BLE001 - whatever a user's outcome raises
            self._recorder.log_failure()
            more = {}
        self._recorder.end(self._span, more, failure)
        self._recorder.measure("messaging.process.duration", "process", seconds, failure)


def outcome_of(messages: Sequence[Any], result: object, error: BaseException | None) -> str:
    """Return what a callback has decided: of a batch, `mixed` if it is not the same for all messages."""
    if error is None and isinstance(result, list) and len(result) == len(messages) > 1:
        outcomes = {_outcome_of([message], one) for message, one in zip(messages, result, strict=True)}
        return outcomes.pop() if len(outcomes) == 1 else "mixed"
    return _outcome_of(messages, result if error is None else error)


def _outcome_of(messages: Sequence[Any], outcome: object) -> str:
    deliveries = [message.delivery for message in messages]
    by_hand = {delivery.by_hand for delivery in deliveries}
    if "" not in by_hand:
        return BY_HAND[by_hand.pop()] if len(by_hand) == 1 else "mixed"
    decided = _decision_of(outcome)
    late = decided not in ("acked", "discarded") and any(delivery.timed_out for delivery in deliveries)
    return LATE if late else decided


def _decision_of(outcome: object) -> str:
    for kind, name in _OUTCOMES:
        if isinstance(outcome, kind):
            return "released" if isinstance(outcome, Snooze) and not outcome.counted else name
    if isinstance(outcome, Exception):
        return "failed"
    if isinstance(outcome, BaseException):
        return "interrupted"
    return "nacked" if outcome is False else "acked"
