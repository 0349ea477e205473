"""A message as others are told of it: as one JSON document, or field by field.

Payloads may be anything that a codec makes, and bytes where the queue's is not known. Bytes that are JSON count as what
they say; numbers in them are passed on digit by digit.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from delayq.message import Message
from delayq.outcomes import Reject

_encode = msgspec.json.Encoder().encode


def as_json(payload: object) -> bytes | None:
    """Return a payload as JSON on one line, None for bytes that are no JSON; raises `Reject` for what is neither."""
    if isinstance(payload, bytes | bytearray | memoryview):
        data = bytes(payload)
        try:
            data.decode()  # which `format` does not look after
            return msgspec.json.format(data, indent=-1)
        except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
            return None
    try:
        return _encode(payload)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise Reject(f"a payload of type {type(payload).__name__} cannot be told as JSON") from error


def due_text(message: Message[Any]) -> str:
    """Return the due time in ISO 8601, in UTC with milliseconds."""
    return message.due.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def envelope(message: Message[Any]) -> bytes:
    """Return {id, attempt, due, payload, headers} as JSON on one line.

    A payload that is no JSON is there as `payload_base64` instead.
    """
    json = as_json(message.payload)
    payload: dict[str, Any]
    if json is None:
        payload = {"payload_base64": base64.b64encode(message.payload).decode()}
    else:
        payload = {"payload": msgspec.Raw(json)}
    facts = {"id": message.id, "attempt": message.attempt, "due": due_text(message)}
    return _encode({**facts, **payload, "headers": message.headers})


def fields(message: Message[Any]) -> dict[str, Any]:
    """Return what a template can name: the fields of the payload, and beside them id, attempt, due and payload."""
    json = as_json(message.payload)
    value = _text(bytes(message.payload)) if json is None else msgspec.json.decode(json)
    facts = {"id": message.id, "attempt": message.attempt, "due": due_text(message), "payload": value}
    return {**facts, **value} if isinstance(value, dict) else facts


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Reject("the payload is neither JSON nor text") from error
