"""The context in which a message was created: how it travels in the headers of the message, and comes out again.

The propagator that the program has configured writes and reads it: by default `traceparent`, `tracestate`, `baggage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, SpanContext

from delayq.broker.requests import Outgoing
from delayq.errors import ConfigurationError
from delayq.values.codec import decode_headers, encode_headers

_EMPTY = Context()


def carrier_of(span: trace.Span | None) -> dict[str, str]:
    """Return the headers that carry the context of a span; without one, those of the current span."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, None if span is None else trace.set_span_in_context(span))
    return carrier


def with_carrier(outgoing: Outgoing, carrier: Mapping[str, str]) -> Outgoing:
    """Return a message with these headers as well; its own ones win. Without them, if they are too long together."""
    if not carrier:
        return outgoing
    own = decode_headers(outgoing.headers) if outgoing.headers else {}
    try:
        return outgoing._replace(headers=encode_headers({**carrier, **own}))
    except ConfigurationError:
        return outgoing


def context_of(headers: Mapping[str, str]) -> tuple[Context, SpanContext | None]:
    """Return the context for processing a message, and that of its creation to link to; None if it has none.

    The first has the baggage of the sender but no span: a trace begins where it is used.
    """
    if not headers:
        return _EMPTY, None
    found = propagate.extract(headers, _EMPTY)
    created = trace.get_current_span(found).get_span_context()
    if not created.is_valid:
        return found, None
    return trace.set_span_in_context(INVALID_SPAN, found), created


def created_in(stored: list[Any]) -> list[SpanContext]:
    """Return the contexts in which claimed messages were created, of those that have one."""
    contexts = (context_of(decode_headers(one.headers))[1] for one in stored if one.headers)
    return [context for context in contexts if context is not None]
