"""`delayq edit`: changes a message that waits, by options or in an editor."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from delayq.broker.engine import Feature
from delayq.cli.messages.actions import MessageOutcome
from delayq.cli.messages.dead import check_nothing_hidden, owner_of
from delayq.cli.messages.message_formats import payload_of
from delayq.cli.messages.send import payload_parser
from delayq.cli.support.exit_codes import Exit
from delayq.cli.support.options import (
    DURATION,
    STORED_ID,
    codec_option,
    header_option,
    json_option,
    queue_with,
    reveal_option,
)
from delayq.cli.support.output import print_note, print_result
from delayq.privacy.ciphertext import is_encrypted
from delayq.privacy.encrypted import QueueCipher
from delayq.queue.inspecting.decoded_payload import decode_payload, payload_text, stored_payload
from delayq.queue.sweeps.rekeying import seal
from delayq.values.codec import find_codec
from delayq.values.states import State

if TYPE_CHECKING:
    from delayq.cli.support.session import Session
    from delayq.queue.inspecting.message_info import MessageInfo


@click.command(short_help="Change a message that waits.")
@queue_with(Feature.EDIT)
@click.argument("id", type=STORED_ID)
@click.argument("payload", required=False)
@codec_option
@click.option("--text", is_flag=True, help="Take PAYLOAD as text; short for --codec text.")
@header_option
@click.option("--no-headers", is_flag=True, help="Remove its headers.")
@click.option("--name", metavar="NAME", help="The name of what is to be done, such as invoice.paid.")
@click.option("--priority", type=int, metavar="N", help="Let it come before others that are due: -100 to 100.")
@click.option("--expires", type=DURATION, help="Do not start it later than so long after its due time.")
@click.option("--app", metavar="MODULE:QUEUE", help="Read and encrypt the payload with the keys of this queue.")
@reveal_option
@json_option
@click.pass_obj
def edit(
    session: Session,
    /,
    queue: str,
    id: str,
    payload: str | None,
    *,
    codec: str,
    text: bool,
    header: dict[str, str],
    no_headers: bool,
    name: str | None,
    priority: int | None,
    expires: timedelta | None,
    app: str | None,
    reveal: bool,
    as_json: bool,
) -> Exit:
    """Change the message ID of QUEUE where it waits: PAYLOAD (JSON), or what the options give; all else stays.

    Without both, opens its payload in $EDITOR, and stores it unless the message has changed meanwhile.
    It keeps its due time, attempts, retries and place. The headers given replace all that it has. A message that is
    running or dead stays: `dead redrive --edit` sends a dead one again with another payload.

    With --app, the payload is encrypted with the keys of that queue. Give --reveal to edit what the queue redacts.

    Exit code 1 if the message is running, dead or was changed meanwhile, 3 if it is gone.

    JSON: {"queue", "id", "outcome"}; the outcome is edited, running, dead, changed or gone.
    """
    if header and no_headers:
        raise click.UsageError("give either --header or --no-headers, not both")
    headers = {} if no_headers else header or None
    changes: dict[str, Any] = {"headers": headers, "name": name, "priority": priority, "expires": expires}
    hidden = session.check_queue_exists(queue)
    owner = None if app is None else owner_of(app, queue)
    by_hand = payload is None and all(value is None for value in changes.values())
    if by_hand and hidden and not reveal:
        raise click.UsageError(f"{queue} redacts values: give --reveal to edit a payload with them")
    opened: Any = session.existing_queue(queue, reveal=True)
    if payload is not None:
        codec = "text" if text else codec
        encoded = find_codec(codec, None).encode(payload_parser(codec)(os.fsencode(payload), "PAYLOAD"))
        if hidden:
            check_nothing_hidden({id: encoded})
        found = opened.get(id)
        if owner is None and found is not None and found.state != State.COMPLETED:
            _check_plain(found)
        changes["payload"] = encoded if owner is None else seal(owner, encoded)
    outcome = _edit_by_hand(opened, id, owner) if by_hand else opened.edit(id, **changes)
    report = MessageOutcome(id, str(outcome))
    print_result({"queue": queue, "id": id, "outcome": report.outcome}, f"{id}  {outcome}", as_json=as_json)
    if outcome == "dead" and not as_json:
        print_note(f"delayq dead redrive {queue} --edit FILE sends a dead message again with another payload")
    return report.exit_code


def _check_plain(found: MessageInfo) -> None:
    if is_encrypted(payload_of(found)):
        raise click.UsageError(f"{found.id} is encrypted: give --app MODULE:QUEUE, which has the keys")


def _edit_by_hand(queue: Any, id: str, owner: Any) -> str:
    """Open the payload in an editor; store it, unless the message has changed meanwhile. Returns the outcome."""
    found = queue.get(id)
    if found is None or found.state in (State.DEAD, State.COMPLETED):
        return "dead" if found is not None and found.state == State.DEAD else "gone"
    if found.state in (State.ACTIVE, State.GARBAGE):
        return "running" if found.state == State.ACTIVE else "dead"
    codec = owner.codec if owner is not None and isinstance(owner.codec, QueueCipher) else None
    if codec is None:
        _check_plain(found)
    stored = payload_of(found)
    plain = codec.unseal(stored) if codec is not None and is_encrypted(stored) else stored
    value, encoding, _ = decode_payload(plain, len(plain))
    if not (sys.stdin.isatty() or os.environ.get("VISUAL") or os.environ.get("EDITOR")):
        raise click.UsageError("say what to change: give PAYLOAD or options, or set EDITOR")
    before = payload_text(value, encoding)
    after = click.edit(before, extension=".json" if encoding == "json" else ".txt")
    if after is None or after.rstrip("\n") == before.rstrip("\n"):
        raise click.Abort
    if encoding == "json":
        value = payload_parser("json")(after.encode(), "the edited payload")
    else:
        value = after if before.endswith("\n") else after.removesuffix("\n")  # which editors add
    fresh = stored_payload(value, encoding)
    return str(queue.edit(id, payload=fresh if codec is None else codec.seal(fresh), if_unchanged=found))
