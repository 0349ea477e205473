"""`delayq show`: one message in full."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.messages.message_formats import unhandled_text
from delayq.cli.messages.message_json import message_json, payload_of
from delayq.cli.support.engines import ENGINES
from delayq.cli.support.exit_codes import CommandError, Exit
from delayq.cli.support.options import STORED_ID, group_option, json_option, lease_option, queue_with, reveal_option
from delayq.cli.support.output import print_details, print_json
from delayq.cli.support.session import Session
from delayq.cli.support.zones import exact_time
from delayq.privacy.ciphertext import describe_encrypted
from delayq.privacy.redaction import preview
from delayq.queue.inspecting.decoded_payload import decode_payload, payload_text
from delayq.queue.inspecting.message_info import MessageInfo
from delayq.values.states import State
from delayq.values.text import clean, format_duration, pluralize

if TYPE_CHECKING:
    from delayq.workqueue import ItemInfo


@click.command("show")
@queue_with(Feature.GET)
@click.argument("id", type=STORED_ID)
@group_option
@lease_option
@reveal_option
@json_option
@click.pass_obj
def show_(session: Session, /, queue: str, id: str, *, engine: str, reveal: bool, as_json: bool, **groups: Any) -> None:
    """Show the message ID of QUEUE, alive or dead.

    ID may also be an entry of the dead letter (id:token), the last of its id. What has happened to a message is in the
    event log, if that is on: `delayq events QUEUE --id ID`. A message that is done is gone, unless its result is kept.

    For a stream, ID may be an entry from `delayq list`, which is found at once. An id is searched among the first
    10,000 entries and the last 10,000 dead ones.

    JSON: like one message of `delayq list --json`.
    """
    commands = ENGINES[engine].commands(session, **groups)
    opened = commands.open_to_read(queue, reveal=reveal)
    found = opened.get(id) or _last_death(opened, id)
    if found is None:
        raise CommandError(
            f"no {commands.message} {id!r} in {queue}{commands.absence_note(opened, id)}", Exit.NOT_FOUND
        )
    if as_json:
        print_json(message_json(found))
        return
    if found.state == State.COMPLETED:
        print_details(_details(found, session.now))
        return
    payload, encoding, _ = decode_payload(payload_of(found), found.size)
    if encoding == "encrypted":
        print_details(_details(found, session.now) | {"payload": describe_encrypted(found.size)})
        return
    print_details(_details(found, session.now) | {"payload": f"{encoding}, {pluralize(found.size, 'byte')}"})
    click.echo()
    click.echo(clean(payload_text(payload, encoding), lines=True))


def _last_death(opened: Any, entry: str) -> MessageInfo | None:
    """Return the message of an entry, such as `dead groups` and notices name; None unless its id died there last."""
    id, _, token = entry.rpartition(":")
    found = opened.get(id) if id and token.isdecimal() else None
    return found if found is not None and getattr(found, "entry", None) == entry else None


def _details(message: MessageInfo | ItemInfo, now: datetime) -> dict[str, str]:
    details = {"id": message.id, "state": str(message.state)}
    if not isinstance(message, MessageInfo):
        expired = "" if message.state == "queued" else "expired: a clean requeues it"
        return details | {"lease ends": exact_time(message.deadline, now) or expired, "holder": message.holder or ""}
    retries = f"{message.retries_left:,} {'retry' if message.retries_left == 1 else 'retries'}"
    return details | {
        "name": message.name,
        "due": exact_time(message.due, now),
        "next try" if message.state == State.BACKOFF else "lease ends": exact_time(message.deadline, now),
        "attempts": f"{message.attempts}, {retries} left",
        "expires": exact_time(message.expires, now),
        "priority": f"{message.priority:+d}" if message.priority else "",
        "timeout": format_duration(message.timeout) if message.timeout else "",
        "snoozes": f"{message.snoozes:,}" if message.snoozes else "",
        "unhandled": unhandled_text(message),
        "holder": message.holder or "",
        "cancel": "requested" if message.cancel_requested else "",
        "token": str(message.token or ""),
        "progress": _text(message.progress),
        "retention": format_duration(message.retention.total_seconds()) if message.retention else "",
        "completed": exact_time(message.completed, now),
        "kept until": exact_time(message.kept_until, now),
        "result": _text(message.result),
        "died": exact_time(message.died, now),
        "reason": message.reason,
        "error": message.error,
        "entry": message.entry or "",
        **{f"header {name}": value for name, value in message.headers.items()},
    }


def _text(stored: bytes | None) -> str:
    """Return a result or progress as one line; '' for none."""
    return "" if stored is None else preview(stored, len(stored))
