"""Schedules whose payload is a `NewMessage`, such as that of a task: their messages have its name and options."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from delayq.broker.context import QueueContext
from delayq.errors import ConfigurationError
from delayq.queue.message_attributes import attributes_of
from delayq.queue.producer import NewMessage

_TIMED = ("delay", "at", "id", "unique", "unique_for", "unique_after", "jitter", "after_outage")
"""What the schedule decides for each of its messages."""


def message_options(context: QueueContext, payload: Any) -> tuple[dict[str, Any], bytes | None]:
    """Return what a payload says of a schedule's options, and of the attributes of its messages, None for nothing.

    Raises `ConfigurationError` for a `NewMessage` with options that a message of a schedule cannot have.
    """
    if not isinstance(payload, NewMessage):
        return {"payload": payload}, None
    plain = {field.name: field.default for field in dataclasses.fields(NewMessage)}
    refused = [name for name in _TIMED if getattr(payload, name) != plain[name]]
    if refused:
        raise ConfigurationError(f"the message of a schedule has no {refused[0]}: its schedule decides that")
    if isinstance(payload.expires, datetime):
        raise ConfigurationError("the message of a schedule expires so long after its due time: give a duration")
    named: Any = {one: getattr(payload, one) for one in ("name", "expires", "missed", "priority")}
    attributes = attributes_of(context, 0, **named, retention=payload.retention, timeout=payload.timeout)
    own = {name: value for name in ("retries", "headers") if (value := getattr(payload, name)) is not None}
    return {"payload": payload.payload, **own}, attributes
