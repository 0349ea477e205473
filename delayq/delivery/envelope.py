"""A message in the form that adapters pass on: one JSON document, or a text with fields, such as `{user.name}`.

A payload is whatever the queue's codec returns, or bytes if the codec is not known. Bytes that are valid JSON count as
JSON; their numbers are passed on digit by digit. Payloads are data: fields are looked up by name in dictionaries, and
their values are never called, formatted or used as templates.
"""

from __future__ import annotations

import base64
import re
import string
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from delayq.errors import ConfigurationError, short_repr
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


_FIELD = re.compile(r"[\w-]+(?:\.[\w-]+)*")


class Template:
    """A text with fields; `{{` and `}}` stand for braces."""

    def __init__(self, text: str, name: str) -> None:
        """Parse a template; raises `ConfigurationError` for anything but plain fields."""
        if not isinstance(text, str):
            raise ConfigurationError(f"{name} must be a str, not {short_repr(text)}")
        try:
            parts = list(string.Formatter().parse(text))
        except ValueError as error:
            raise ConfigurationError(f"{name} is not a valid template: {error}") from None
        for _, field, spec, conversion in parts:
            if field is not None and (spec or conversion or not _FIELD.fullmatch(field)):
                raise ConfigurationError(
                    f"{name} takes fields such as {{summary}} or {{user.name}}, not {short_repr(field)}"
                )
        self._parts = [(literal, field and field.split(".")) for literal, field, *_ in parts]

    @property
    def has_fields(self) -> bool:
        """Whether the text depends on a payload."""
        return any(path for _, path in self._parts)

    @property
    def prefix(self) -> str:
        """The text before the first field."""
        literals = []
        for literal, path in self._parts:
            literals.append(literal)
            if path:
                break
        return "".join(literals)

    def fill(self, fields: Mapping[str, Any], encode: Callable[[str], str] = str) -> str:
        """Return the text with the fields filled in, each value encoded; raises `Reject` if the payload lacks one."""
        return "".join(literal + (encode(_look_up(path, fields)) if path else "") for literal, path in self._parts)


def _look_up(path: list[str], fields: Mapping[str, Any]) -> str:
    found: Any = fields
    for name in path:
        if not isinstance(found, Mapping) or name not in found:
            raise Reject(f"the payload has no field {'.'.join(path)!r}")
        found = found[name]
    if found is None:
        return ""
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()
