"""Emails that a server accepted for some of several recipients: a new message for the others, and for nobody else.

A new message names its recipients in a header. Its id is derived from that of the first message, so it is stored once.
It is stored before the first message is acknowledged; a worker that dies in between leaves it to be found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from delayq.broker.engine import Feature
from delayq.broker.requests import OWN_ID, Outgoing
from delayq.broker.transport.operation import Operation
from delayq.errors import DelayqError
from delayq.safe_log import SafeLog
from delayq.values.codec import encode_headers
from delayq.values.outcomes import Reject
from delayq.values.times import to_millis
from delayq.worker.delivery.message import Message

HEADER = "delayq-smtp"

log = SafeLog("delayq.deliver")

_KINDS = ("later", "refused")
"""For whom a new message is: for those whom the server deferred, or for those whom it refused for good."""
_MAX_ID = 64
"""Characters of the first message's id that a derived id begins with."""


class Part(msgspec.Struct, frozen=True):
    """The header's contents: what the first message was, and for whom the new one is."""

    id: str
    due: int
    """In milliseconds since 1970."""
    attempts: int
    """Deliveries before this message."""
    parts: int
    """How often recipients were left over, this time included."""
    to: list[str]


def part_of(message: Message[Any]) -> Part | None:
    """Return for whom a message is; None for all. Raises `Reject` for a header that nobody could have stored."""
    header = message.headers.get(HEADER)
    if header is None:
        return None
    try:
        return msgspec.json.decode(header, type=Part)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Reject(f"the header {HEADER} is invalid: {error}") from error


def was_split(message: Message[Any]) -> bool:
    """Return whether an earlier delivery of this message has stored new ones, and died before it was acknowledged.

    A delay queue alone can tell.
    """
    if message.attempt == 1 or not isinstance(message, Message):
        return False
    calls: Any = message.context.calls
    if not calls.capabilities.has(Feature.DELAYS):
        return False
    _, ids = _next(message, part_of(message))
    found: Any = []
    with suppress(DelayqError):
        found = message.executor.perform(_send([calls.get(id) for id in ids.values()]))
    return any(one is not None for one in found)


def split(message: Message[Any], left: Mapping[str, Sequence[str]], delay: float) -> bool:
    """Store a message for the recipients of each kind, `later` after a delay in seconds; return whether that succeeded.

    Each has a retry less than this one, and one attempt at least. The messages of an asyncio queue cannot be split.
    """
    if not isinstance(message, Message):
        return False
    context, executor, claimed = message.context, message.executor, message.delivery.claimed
    part, ids = _next(message, part_of(message))
    delays = context.calls.capabilities.has(Feature.DELAYS)
    outgoing = []
    for kind, to in left.items():
        if to:
            json = msgspec.json.encode(msgspec.structs.replace(part, to=list(to))).decode()
            headers = encode_headers(message.headers | {HEADER: json})
            due = OWN_ID if not delays else to_millis(delay, "delay") if kind == "later" else 0
            retries = max(claimed.retries_left - 1, 0)
            outgoing.append(Outgoing(ids[kind], due, retries, claimed.payload, headers, claimed.attributes))
    try:
        call = context.calls.send(outgoing, max_length=context.settings.max_length)
        executor.perform(_send([call, *context.confirming]), writes=True)
    except DelayqError as error:
        text = "message %s: cannot store a message for the recipients that are left: %s"
        log.error(text, message.id, error, extra={"id": message.id})  # noqa: TRY400 - a traceback says no more
        return False
    return True


def _send(calls: list[Any]) -> Operation[Any]:
    return (yield calls)


def _next(message: Message[Any], part: Part | None) -> tuple[Part, dict[str, str]]:
    """Return what the new messages are parts of, and their ids by kind."""
    due = round(message.due.timestamp() * 1000)
    before = Part(message.id, due, 0, 0, []) if part is None else part
    now = Part(before.id, before.due, before.attempts + message.attempt, before.parts + 1, [])
    digest = hashlib.sha256(f"{message.id}\n{due}\n{now.parts}".encode()).hexdigest()[:16]
    return now, {kind: f"{before.id[:_MAX_ID]}:{kind}:{digest}" for kind in _KINDS}
