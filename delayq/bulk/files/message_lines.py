"""The lines of exported messages: one JSON object a message, written and read without loss.

A payload is JSON if that gives back the same bytes, else text, else base64; `encoding` says which.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from delayq.broker.context import QueueContext
from delayq.broker.engine import Feature
from delayq.broker.keys import check_id
from delayq.broker.message.attributes import Attributes
from delayq.broker.message.joining import Joining
from delayq.broker.requests import OutgoingTable
from delayq.errors import ConfigurationError, PayloadTooLargeError, short_repr
from delayq.privacy.redaction import RedactedPayload
from delayq.queue.inspecting.decoded_payload import stored_payload
from delayq.queue.sending.message_options import STORED, attributes_of
from delayq.queue.sweeps.stored_messages import StoredTable
from delayq.values.checks import check_int, check_retries
from delayq.values.codec import decode_headers, encode_headers, inert, without_values
from delayq.values.states import MESSAGE_STATES, State
from delayq.values.text import iso_millis
from delayq.values.times import timestamp

ENDED = (State.DEAD, State.GARBAGE)
"""The states of messages that no consumer will start any more."""
MAX_SNOOZES = 1 << 53
MANY_LEVELS = 500
"""Payloads with more brackets may be nested so deeply that they are read only where the stack is not deep."""
MARGIN = 100
"""Frames by which the stack may be deeper when a line is read than when it is written."""
_Time = Annotated[datetime, msgspec.Meta(tz=True)]
_Encoding = Literal["json", "text", "base64", "redacted"]
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines


class MessageLine(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message as an export writes it; all but `id` and `payload` may be left out. Durations are in seconds.

    An import takes `attempts`, `error`, `reason` and `died` of dead messages only: a new one does not have them.
    """

    id: str
    state: State = State.PENDING
    due: _Time | None = None
    """At once if it is left out."""
    retries: int | None = None
    attempts: int = 0
    payload: Any
    encoding: _Encoding = "json"
    headers: dict[str, str] | None = None
    name: str | None = None
    key: str | None = None
    priority: int = 0
    expires: _Time | None = None
    expires_after: float | None = None
    """In place of a time: how long after it is due."""
    missed: Literal["dead", "drop"] = "dead"
    hours: str | None = None
    tz: str | None = None
    after_outage: Any = None
    """Only in the lines of a version before; ignored."""
    timeout: float | None = None
    collect: int | None = None
    joins: str | None = None
    """The group that it joins once it is due, as `Joining` has it."""
    retention: float | None = None
    unique_for: float | None = None
    unique_after: float | None = None
    snoozes: int = 0
    error: str = ""
    reason: str = ""
    died: _Time | None = None


FIELDS = tuple(name for name in MessageLine.__struct_fields__ if name != "after_outage")
"""The fields of a line that is written, in their order."""
_WrittenLine: Any = msgspec.defstruct("_WrittenLine", [(name, Any, msgspec.UNSET) for name in FIELDS])
"""The fields of a line as they are written; a field that is not set is left out."""
_attributes_in = attrgetter(*STORED, "expires_after", "snoozes", "joins")
"""Returns the fields of a line that are stored as attributes; `missed` says what becomes of one that expires."""
_NO_ATTRIBUTES = _attributes_in(MessageLine(id="", payload=None))
_decode_line = msgspec.json.Decoder(MessageLine).decode


def is_parquet(path: Path) -> bool:
    """Return whether a file has the fields as columns of Parquet; any other has lines."""
    return path.suffix.lower() == ".parquet"


def lines_of(messages: StoredTable) -> bytes:
    """Return the lines of stored messages, each with the fields that it has.

    They are without control characters that a terminal would interpret.
    """
    if not messages.ids:
        return b""
    payloads, encodings = zip(*map(_readable, messages.payloads), strict=True)
    dues = map(iso_millis, messages.dues)
    columns = (messages.ids, messages.states, dues, messages.retries, messages.attempts, payloads, encodings)
    lines = list(map(_WrittenLine, *columns))
    rest = zip(messages.headers, messages.attributes, messages.errors, messages.reasons, messages.died, strict=True)
    for line, cells in zip(lines, rest, strict=True):
        if any(cells):
            for name, value in _more_of(*cells).items():
                setattr(line, name, value)
    return inert(_encode_lines(lines)).encode()


def _more_of(headers: bytes, attributes: bytes, error: str, reason: str, died: int | None) -> dict[str, Any]:
    """Return the fields that only some messages have."""
    more = {
        "headers": decode_headers(headers) if headers else None,
        **(_attribute_fields(attributes) if attributes else {}),
        "error": error,
        "reason": reason,
        "died": None if died is None else iso_millis(died),
    }
    return {name: value for name, value in more.items() if value}


def _attribute_fields(stored: bytes) -> dict[str, Any]:
    attributes = Attributes.of(stored)
    expires = attributes.expires
    return {
        "name": attributes.name,
        "key": attributes.key,
        "priority": attributes.priority,
        "expires": iso_millis(int(expires)) if expires.isdecimal() else None,
        "expires_after": _seconds(expires.removeprefix("+")) if expires.startswith("+") else None,
        "missed": attributes.missed if expires else None,
        "hours": attributes.hours.replace("_", " "),
        "tz": attributes.tz,
        "timeout": _seconds(attributes.timeout),
        "collect": attributes.collect,
        "joins": attributes.joins,
        "retention": _seconds(attributes.retention),
        "unique_for": _seconds(attributes.unique_for),
        "unique_after": _seconds(attributes.unique_after),
        "snoozes": attributes.snoozes,
    }


def decode_line(line: bytes) -> MessageLine:
    """Return a line of an export; raise `ConfigurationError` for any other, without quoting the payload."""
    try:
        return _decode_line(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise not_a_message(error) from None


def not_a_message(error: Exception) -> ConfigurationError:
    """Return the error of a line that is no message, without quoting it."""
    return ConfigurationError(f"not an exported message: {without_values(error)}")


def payload_bytes(line: MessageLine) -> bytes:
    """Return the payload as it is stored; raise `ConfigurationError` if it is not of its encoding, or redacted."""
    if isinstance(line.payload, bytes) and line.encoding != "redacted":  # of a table, whose payloads are bytes
        return line.payload
    return stored_payload(line.payload, line.encoding)


def outgoing_of(lines: Sequence[MessageLine], context: QueueContext, max_payload: int) -> OutgoingTable:
    """Return the messages to send for lines; raise `ConfigurationError` for values that they cannot have.

    Raises `PayloadTooLargeError` for a payload of more than `max_payload` bytes.

    One that has ended begins anew, as with a redrive: it is due at once, and what was counted or has
    expired in its life before is left out.
    """
    for line in lines:
        if line.state not in MESSAGE_STATES:
            raise ConfigurationError(f"state must be one of {', '.join(MESSAGE_STATES)}, not {line.state}")
    retries = context.settings.default_retries
    return OutgoingTable(
        ids=[check_id(line.id) for line in lines],
        dues=[_due(line) for line in lines],
        retries=[retries if line.retries is None else check_retries(line.retries) for line in lines],
        payloads=[_bounded(payload_bytes(line), max_payload) for line in lines],
        headers=[encode_headers(line.headers) if line.headers else b"" for line in lines],
        attributes=[_attributes(line, context) for line in lines],
    )


def _bounded(payload: bytes, max_payload: int) -> bytes:
    if len(payload) > max_payload:
        raise PayloadTooLargeError(f"payload is {len(payload)} bytes, and at most {max_payload} are allowed")
    return payload


def _due(line: MessageLine) -> str | int:
    return 0 if line.due is None or line.state in ENDED else f"@{timestamp(line.due, 'due')}"


def _attributes(line: MessageLine, context: QueueContext) -> bytes:
    if _attributes_in(line) == _NO_ATTRIBUTES and not context.settings.retention:
        return b""
    again = line.state in ENDED
    expires = None if again else line.expires or line.expires_after
    missed = "dead" if expires is None else line.missed
    options = {name: getattr(line, name) for name in STORED} | {"expires": expires, "missed": missed, "tz": line.tz}
    stored = attributes_of(context, 0, options, line.id)  # one that was rescheduled may be due after it expires
    snoozes = 0 if again else check_int(line.snoozes, "snoozes", 0, MAX_SNOOZES)
    joins = line.joins or ""
    if joins and Joining.of(joins) is None:
        raise ConfigurationError(f"joins is not a group as an export writes it: {short_repr(joins)}")
    if not snoozes and not joins:
        return stored
    if joins:
        context.calls.capabilities.require(Feature.COLLECT)
    return Attributes.of(stored)._replace(snoozes=snoozes, joins=joins).encode()


def _readable(stored: bytes) -> tuple[Any, _Encoding]:
    if isinstance(stored, RedactedPayload):
        return msgspec.json.decode(stored), "redacted"
    is_deep = len(stored) > MANY_LEVELS and stored.count(b"[") + stored.count(b"{") > MANY_LEVELS
    try:
        value = _decode_below(stored, MARGIN) if is_deep else msgspec.json.decode(stored)
        if _encode(value) == stored:
            return value, "json"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return stored.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(stored).decode(), "base64"


def _decode_below(stored: bytes, frames: int) -> Any:
    """Return a decoded payload; raise `RecursionError` if so many frames more on the stack were too many."""
    return _decode_below(stored, frames - 1) if frames else msgspec.json.decode(stored)


def _seconds(milliseconds: str | int) -> float | None:
    """Return a stored duration in seconds; None for none, and for what is no duration."""
    if not milliseconds:
        return None
    text = str(milliseconds)
    if not text.isdecimal() or text == "0":
        return None
    whole, rest = divmod(int(text), 1000)
    return whole + rest / 1000 if rest else whole
