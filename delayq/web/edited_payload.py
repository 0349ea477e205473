"""The form that edits a message: what it shows of one, and what is stored of what somebody wrote."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from delayq.errors import ConfigurationError
from delayq.queue.inspecting.decoded_payload import stored_payload
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.queue.sweeps.editing import content_of
from delayq.values.codec import without_values

if TYPE_CHECKING:
    from delayq.queue.delay_queue import DelayQueue

EDITABLE = ("json", "text")
MAX_EDITED = 20_000
"""Characters of a payload that a form shows."""


class EditForm(NamedTuple):
    """What the form of a message contains before somebody changes it."""

    payload: str
    encoding: str
    """`json` or `text`; '' for a payload that cannot be edited here."""
    seen: str
    """Stands for the message as the page shows it."""


def edit_form(message: MessageInfo, text: str, encoding: str, *, is_cut: bool) -> EditForm:
    """Return the form of a message that waits, by its payload as the page shows it."""
    whole = encoding in EDITABLE and not is_cut and len(text) <= MAX_EDITED
    return EditForm(text if whole else "", encoding if whole else "", seen(message))


def seen(message: MessageInfo) -> str:
    """Return what stands for a message as it is: another one if it is sent, delivered or edited meanwhile."""
    return hashlib.sha256(repr(content_of(message)).encode()).hexdigest()[:16]


def edit_by_form(queue: DelayQueue[Any], fields: dict[str, str]) -> str:
    """Edit a message as a form says, unless it is not what the form showed; returns the outcome."""
    found = queue.get(fields["id"])
    if found is None or seen(found) != fields["seen"]:
        return "gone" if found is None else "changed"
    changes: dict[str, Any] = {}
    if fields.get("encoding") in EDITABLE:
        payload = _stored(fields["payload"], fields["encoding"])
        changes = {} if payload == found.payload else {"payload": payload}
    if fields.get("name", found.name) != found.name:
        changes["name"] = fields["name"]
    priority = fields.get("priority") or "0"
    if priority.removeprefix("-").isdecimal() and len(priority) < 6:  # noqa: PLR2004 - of any use
        changes |= {} if int(priority) == found.priority else {"priority": int(priority)}
    else:
        raise ConfigurationError(f"priority must be a number from -100 to 100, not {priority!r:.60}")
    if not changes:
        return "as it was"
    return str(queue.edit(fields["id"], if_unchanged=found, **changes))


def _stored(text: str, encoding: str) -> bytes:
    if encoding == "text":
        return text.replace("\r\n", "\n").encode()
    try:
        return stored_payload(msgspec.json.decode(text), "json")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConfigurationError(f"payload must be JSON: {without_values(error)}") from None
