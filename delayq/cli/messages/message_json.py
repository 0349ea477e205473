"""Messages and items as JSON; payloads are decoded as far as possible, since Redis does not store a queue's codec."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from delayq.cli.support.output import json_fields
from delayq.queue.inspecting.decoded_payload import decode_payload
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.values.states import State

if TYPE_CHECKING:
    from delayq.workqueue import ItemInfo


def payload_of(message: MessageInfo | ItemInfo) -> bytes:
    """Return the stored payload of a message or item, as far as it was read."""
    return (message.payload or b"") if isinstance(message, MessageInfo) else message.data


def message_json(message: MessageInfo | ItemInfo) -> dict[str, Any]:
    """Return the fields of a message or item for JSON."""
    payload, encoding, truncated = decode_payload(payload_of(message), message.size)
    id = message.id.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    first = {"id": id, "state": message.state, "payload": payload, "encoding": encoding, "truncated": truncated}
    fields = json_fields(message)
    if isinstance(message, MessageInfo):
        fields |= {name: value_of(getattr(message, name)) for name in ("result", "progress")}
        if message.state == State.COMPLETED:
            first |= {"payload": None, "encoding": ""}
    return first | {name: value for name, value in fields.items() if name not in {*first, "data"}}


def value_of(stored: bytes | None) -> Any:
    """Return a stored result or progress, decoded as far as possible; None for none."""
    return None if stored is None else decode_payload(stored, len(stored))[0]


def json_names(kind: type[MessageInfo | ItemInfo]) -> list[str]:
    """Return the names of these fields, in their order."""
    first = ["id", "state", "payload", "encoding", "truncated"]
    return first + [field.name for field in dataclasses.fields(kind) if field.name not in {*first, "data"}]
