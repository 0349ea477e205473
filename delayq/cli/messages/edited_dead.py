"""Reads dead messages that were edited, as lines of JSON, for `delayq dead redrive --edit`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from delayq.cli.messages.message_json import payload_of
from delayq.cli.messages.send import lines_of
from delayq.errors import ConfigurationError
from delayq.privacy.ciphertext import is_encrypted
from delayq.privacy.redaction import HIDDEN, has_hidden
from delayq.queue.inspecting.deaths import check_entry
from delayq.queue.inspecting.decoded_payload import decode_payload, stored_payload
from delayq.queue.inspecting.inspector import MAX_ROWS

if TYPE_CHECKING:
    from delayq.queue.inspecting.message_info import MessageInfo


def read_edited(stream: IO[bytes]) -> dict[str, bytes]:
    """Return the new payloads, as they are stored, by entry or id.

    Raises a usage error with the number of the first line that is wrong. A line is an object with an `entry` or `id`
    and a `payload`, or a page of `dead list --json`, which has several of them.
    """
    payloads: dict[str, bytes] = {}
    for where, row in _rows(stream):
        which, payload = _read(row, where)
        if which in payloads:
            raise click.UsageError(f"{where}: {which} is there twice")
        payloads[which] = payload
    if not payloads:
        raise click.UsageError("there is no line with a message")
    return payloads


def check_nothing_hidden(payloads: dict[str, bytes]) -> None:
    """Raise a usage error for a payload that has what stands for a hidden value: it would be stored in its place."""
    for which, payload in payloads.items():
        if has_hidden(payload):
            raise click.UsageError(f"{which} has {HIDDEN} in place of a value: list it with --reveal")


class Edited(NamedTuple):
    """The payloads of a file as they are to be stored, by entry or id, and how many differ from the stored ones."""

    payloads: dict[str, bytes]
    changed: int
    unchanged: int


def sealed(payloads: dict[str, bytes], queue: Any, app: str | None) -> Edited:
    """Return payloads as the codec of the queue stores them, encrypted where it encrypts.

    `app` is MODULE:QUEUE, which has the keys. Without it, raises a usage error if the dead messages are encrypted.
    What is encrypted in the file was not edited; what is not there is neither changed nor unchanged.
    """
    plain = {which: None for which, payload in payloads.items() if not is_encrypted(payload)}
    if app is not None:
        from delayq.cli.support.app_loader import find_queue
        from delayq.queue.sweeps.rekeying import seal

        owner = find_queue(app)
        if owner.name != queue.name:
            raise click.UsageError(f"{app} is queue {owner.name}, not {queue.name}")
        fresh = {which: seal(owner, payloads[which]) for which in plain}
        return Edited(payloads | fresh, len(plain), len(payloads) - len(plain))
    same = dict.fromkeys((which for which in payloads if which not in plain), True)
    older = set()
    for which in plain if hasattr(queue, "get") else ():
        found = queue.get(which) or queue.get(which.rpartition(":")[0] or which)
        if ":" in which and (found is None or found.entry != which):
            older.add(which)
        elif found is not None:
            same[which] = _is_same(found, payloads[which], which)
    cursor: str | None = None
    while older:  # entries of ids that have died again or live: only the pages of the dead letter have them
        page = queue.list("dead", limit=MAX_ROWS, cursor=cursor)
        for row in page.messages:
            if row.entry in older:
                same[row.entry] = _is_same(row, payloads[row.entry], row.entry)
        cursor = page.cursor
        if cursor is None:
            break
    unchanged = sum(same.values())
    return Edited(payloads, len(same) - unchanged, unchanged)


def _is_same(found: MessageInfo, payload: bytes, which: str) -> bool:
    """Return whether a dead message has this payload; raise a usage error if it is encrypted."""
    stored = payload_of(found)
    if is_encrypted(stored):
        raise click.UsageError(f"{which} is encrypted: give --app MODULE:QUEUE, which has the keys")
    old, encoding, is_cut = decode_payload(stored, found.size)
    return not is_cut and stored_payload(old, encoding) == payload


def _rows(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    for number, line in lines_of(stream):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise click.UsageError(f"line {number} is not JSON ({error})") from error
        page = found.get("messages") if isinstance(found, dict) else None
        if isinstance(page, list):
            yield from ((f"line {number}, message {n}", row) for n, row in enumerate(page, 1))
        else:
            yield f"line {number}", found


def _read(row: Any, where: str) -> tuple[str, bytes]:
    """Return the entry or id of a line, and its payload as it is stored."""
    if not isinstance(row, dict) or "payload" not in row or not (row.get("entry") or row.get("id")):
        raise click.UsageError(f'{where} must be an object with "id" or "entry", and "payload"')
    if row.get("truncated"):
        raise click.UsageError(f'{where}: the payload is only the beginning; give all of it, and leave out "truncated"')
    try:
        return check_entry(row.get("entry") or row["id"]), stored_payload(row["payload"], row.get("encoding", "json"))
    except ConfigurationError as error:
        raise click.UsageError(f"{where}: {error}") from error
