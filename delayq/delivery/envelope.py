"""A message in the form that adapters pass on: one JSON document, or single fields for templates.

A payload is whatever the queue's codec returns, or bytes if the codec is not known. Bytes that are valid JSON count as
JSON; their numbers are passed on digit by digit.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

import msgspec

from delayq.values.outcomes import Reject
from delayq.worker.delivery.message import Message

_encode = msgspec.json.Encoder().encode


def as_json(payload: object) -> bytes | None:
    """Return a payload as JSON on one line, None for bytes that are not JSON; raises `Reject` for anything else."""
    if isinstance(payload, bytes | bytearray | memoryview):
        data = bytes(payload)
        try:
            data.decode()  # `format` does not check the encoding
            return msgspec.json.format(data, indent=-1)
        except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
            return None
    try:
        return _encode(payload)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise Reject(f"a payload of type {type(payload).__name__} cannot be encoded as JSON") from error


def due_text(message: Message[Any]) -> str:
    """Return the due time in ISO 8601, in UTC with milliseconds."""
    return time_text(message.due)


def time_text(at: datetime) -> str:
    """Return a time in UTC in ISO 8601, with milliseconds."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def envelope(message: Message[Any]) -> bytes:
    """Return {id, attempt, due, payload, headers} as JSON on one line.

    A payload that is not JSON is given as `payload_base64` instead.
    """
    json = as_json(message.payload)
    payload: dict[str, Any]
    if json is None:
        payload = {"payload_base64": base64.b64encode(message.payload).decode()}
    else:
        payload = {"payload": msgspec.Raw(json)}
    base = {"id": message.id, "attempt": message.attempt, "due": due_text(message)}
    return _encode({**base, **payload, "headers": message.headers})


def fields(message: Message[Any], **own: Any) -> dict[str, Any]:
    """Return the fields for templates: those of the payload, plus id, attempt, due and payload, or `own` for these."""
    json = as_json(message.payload)
    value = _text(bytes(message.payload)) if json is None else msgspec.json.decode(json)
    base = {"id": message.id, "attempt": message.attempt, "due": due_text(message), "payload": value, **own}
    return {**base, **value} if isinstance(value, dict) else base


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Reject("the payload is neither JSON nor UTF-8 text") from error
