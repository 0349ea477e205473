"""The span of an attempt that failed, as an attribute of its message carries it: the next attempt is linked to it."""

from __future__ import annotations

import re

from opentelemetry.trace import Link, Span, SpanContext, TraceFlags

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
