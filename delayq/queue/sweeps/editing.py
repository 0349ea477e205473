"""Edits a message that waits: payload, headers, name, priority and expiry, in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple, TypedDict

from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.foreign import record_fields, shown_id, stored_id
from delayq.broker.keys import check_stored_id
from delayq.broker.message.attributes import check_message_name
from delayq.broker.message.expiry import check_expiry
from delayq.broker.replies import GetReply, statuses
from delayq.broker.requests import ScriptCall
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, NotReplicatedError, short_repr
from delayq.queue.inspecting.inspector import Inspector
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.queue.sending.message_options import check_priority
from delayq.queue.sending.withdrawal import withdraw
from delayq.values.checks import check_options
from delayq.values.codec import encode_headers, encode_payload
from delayq.values.times import Duration, timestamp

MAX_READS = 5
"""How often a message is read before it counts as changed, or as running: it moves meanwhile."""


class EditOutcome(StrEnum):
    """What `edit` did, or why it did nothing."""

    EDITED = "edited"
    RUNNING = "running"
    DEAD = "dead"
    CHANGED = "changed"
    """It is not what was read any more: it was delivered, edited, rescheduled or sent again meanwhile."""
    GONE = "gone"


_OUTCOMES = dict(zip("12340", EditOutcome, strict=True))
content_of = attrgetter(
    "payload", "size", "headers", "attempts", "due", "name", "expires", "priority", "snoozes", "sent"
)
"""What of a message must be what the caller has read."""


class EditOptions(TypedDict, total=False):
    """What an edit may change beside the payload; None is as if it were left out."""

    headers: Mapping[str, str] | None
    """All its headers from now on; `{}` for none."""
    name: str | None
    """What is to be done: it chooses the function that processes the message."""
    priority: int | None
    """What comes first of what is due, from -100 to 100, larger first."""
    expires: Duration | datetime | None
    """When it goes to the dead letter, if it has not started: so long after its due time, or at a time."""


class Edit(NamedTuple):
    """What is to change, checked and encoded; None stays."""

    payload: bytes | None
    headers: bytes | None
    name: str | None
    priority: int | None
    expires: Duration | datetime | None

    def attributes(self, due: datetime | None) -> dict[str, str]:
        """Return the attributes as they are stored, of a message with this due time; '' for one that is removed.

        Raises `InvalidValueError` if it would expire before it is due.
        """
        found: dict[str, str] = {}
        if self.name is not None:
            found["name"] = self.name
        if self.priority is not None:
            found["priority"] = str(self.priority or "")
        if self.expires is not None:
            found["expires"] = check_expiry(self.expires, "dead", 0 if due is None else f"@{timestamp(due)}")[0]
        return found


def check_edit(
    payload: Sequence[Any], options: Mapping[str, Any], encode: Callable[[Any], bytes], max_payload: int
) -> Edit:
    """Return an edit; `payload` has the new one, or nothing. Raises `ConfigurationError` or `PayloadError`."""
    check_options(options, EditOptions.__annotations__)
    headers, name, priority, expires = map(options.get, ("headers", "name", "priority", "expires"))
    if not payload and headers is name is priority is expires is None:
        raise ConfigurationError("say what to change: give a payload, headers, a name, a priority or expires")
    check_expiry(expires, "dead", 0)
    return Edit(
        encode_payload(payload[0], encode, max_payload) if payload else None,
        None if headers is None else encode_headers(headers),
        None if name is None else check_message_name(name),
        None if priority is None else check_priority(priority),
        expires,
    )


def edit(context: QueueContext, id: str, change: Edit, if_unchanged: MessageInfo | None) -> Operation[EditOutcome]:
    """Read a message and change it, if it is still what was read; one that is claimed is taken back first."""
    id = stored_id(check_stored_id(id))
    if if_unchanged is not None and not isinstance(if_unchanged, MessageInfo):
        raise ConfigurationError(
            f"if_unchanged must be a message that get has returned, not {short_repr(if_unchanged)}"
        )
    outcome = EditOutcome.CHANGED
    for _ in range(MAX_READS):
        (found,) = yield [context.calls.get(id)]
        if found is None or found.dead or found.result:
            return EditOutcome.DEAD if found is not None and found.entry else EditOutcome.GONE
        if found.record and record_fields(found.record)[0] == "leased":
            if id not in (yield from withdraw(context, [id])):
                return EditOutcome.RUNNING
            continue
        info = Inspector(context).found(shown_id(id), found)
        if if_unchanged is not None and (info is None or content_of(info) != content_of(if_unchanged)):
            return EditOutcome.CHANGED
        call = _call(context, id, change, found, None if info is None else info.due, compares=if_unchanged is not None)
        try:
            status, *_ = yield [call, *context.confirming]
        except NotReplicatedError as error:
            error.ids = (id,)
            raise
        outcome = _OUTCOMES[status]
        if outcome not in (EditOutcome.CHANGED, EditOutcome.RUNNING):
            break
    return outcome


def _call(
    context: QueueContext, id: str, change: Edit, found: GetReply, due: datetime | None, *, compares: bool
) -> ScriptCall[str]:
    parts = [part.partition("=") for part in found.attributes.decode("utf-8", "surrogateescape").split(" ")]
    before = {name: value for name, _, value in parts}
    if change.payload is not None and "collect" in before:
        text = "is collected from several sends: cancel it, or send one more payload to it"
        raise ConfigurationError(f"the payload of {short_repr(id)} {text}")
    given = change.attributes(due)
    if all(before.get(name, "") == value for name, value in given.items()):
        attributes = found.attributes
    else:  # a group ends in what it gathers, so what is new comes first
        fresh = [f"{name}={value}" for name, value in given.items() if value]
        kept = ["".join(part) for part in parts if part[0] not in given]
        attributes = " ".join(filter(None, [*fresh, *kept])).encode("utf-8", "surrogateescape")
    reranks = 0
    if "priority" in given and before.get("priority", "") != given["priority"]:
        reranks = 2
    elif "name" in given and before.get("name", "") != given["name"]:
        reranks = 1
    return edit_call(context.calls, id, change, found, attributes, reranks=reranks, compares=compares)


def edit_call(
    calls: Calls, id: str, change: Edit, found: GetReply, attributes: bytes, *, reranks: int = 0, compares: bool = False
) -> ScriptCall[str]:
    """Change a message; its attributes must be those that were found, and all else if it `compares`.

    A status: 1 edited, 2 running, 3 dead, 4 changed, 0 gone.
    """
    payload, headers = change.payload, change.headers
    parts = f"{'p' * (payload is not None)}{'h' * (headers is not None)}{'c' * compares}"
    seen = (record_fields(found.record)[2], found.payload, found.headers) if compares else ("", b"", b"")
    if compares and b"gathers=" in found.attributes:
        seen = (seen[0], b"", seen[2])  # the entries are elsewhere
    new = (found.attributes, attributes, payload or b"", headers or b"")
    return calls.script("edit", [calls.now, id, parts, reranks, *new, *seen], statuses)
