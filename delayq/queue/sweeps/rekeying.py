"""Encrypts what a queue has stored with its first key, beside running workers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from delayq.broker.calls import Calls
from delayq.broker.context import QueueContext
from delayq.broker.message.collected import entries_in, joined
from delayq.broker.replies import CountsReply, statuses
from delayq.broker.requests import ScriptCall, flat
from delayq.broker.transport.operation import Operation
from delayq.errors import ConfigurationError, UndecodableError
from delayq.privacy.ciphertext import read_key_id
from delayq.privacy.encrypted import QueueCipher
from delayq.queue.base import QueueBase
from delayq.queue.inspecting.deaths import read_death
from delayq.queue.sweeps.whole_calls import every_status

PAGE = 250
"""Texts that one call reads, at most."""
MAX_NAMED = 100
"""Unreadable payloads whose ids are returned."""
PARTS = ("schedule_specs", "gathered", "successors", "messages", "dead_messages")
"""In the order in which payloads move: schedules fire, groups gather, successors follow, messages die.

Only a redrive moves back.
"""
_SUCCESSOR = re.compile(rb"[0-9]+ [0-9]+ ([0-9]+) ([0-9]+)\n")


@dataclass(frozen=True, slots=True)
class Rekeyed:
    """What a `rekey` has done, in payloads: of messages that wait or are dead, of successors, of schedules."""

    rekeyed: int
    """Encrypted with the first key now."""
    already: int
    """Encrypted with it before; while the queue grows or shrinks, one may be counted twice."""
    left: int
    """Changed, settled or being processed meanwhile: left as they are; or redriven, and so perhaps missed."""
    unreadable: int
    """Cut, changed, of another queue, not encrypted, or encrypted with a key that is not there: left as they are."""
    missing: tuple[str, ...]
    """The ids of the keys that are not there."""
    unreadable_ids: tuple[str, ...] = ()
    """Where the first 100 unreadable payloads are: ids, entries of the dead letter, names of schedules."""


def rekey(context: QueueContext, codec: Any) -> Operation[Rekeyed]:
    """Read all stored payloads, page by page, and replace those that have another key.

    What moves meanwhile is in a part that is read later, or counted as left. So when nothing is rekeyed, left or
    unreadable, every payload has the first key.
    """
    if not isinstance(codec, QueueCipher):
        raise ConfigurationError("rekey needs a queue that encrypts: codec=Encrypted(keys)")
    counts = dict.fromkeys(("rekeyed", "already", "left", "unreadable"), 0)
    missing: dict[str, None] = {}
    unreadable: list[str] = []
    (begun,) = yield [context.calls.counts()]
    for part in PARTS:
        cursor = "0"
        while True:
            (page,) = yield [rekey_page_call(context.calls, part, cursor=cursor, limit=PAGE, head=codec.head)]
            counts["already"] += page.already
            rows = []
            for id, text in page.rows:
                start, payload = _split(part, text)
                try:
                    fresh = _rekeyed(codec, payload, stable=part == "schedule_specs")
                except UndecodableError:
                    counts["unreadable"] += 1
                    unreadable += [id] if len(unreadable) < MAX_NAMED else []
                    key = read_key_id(payload)
                    if key is not None and not codec.has_key(key):
                        missing[key] = None
                    continue
                if fresh is None:
                    counts["already"] += 1
                else:
                    rows.append((id, text, start + fresh))
            statuses = yield from every_status(context, partial(_call, context, part), rows)
            counts["rekeyed"] += statuses.count("1")
            counts["left"] += len(statuses) - statuses.count("1")
            cursor = page.cursor
            if cursor == "0":
                break
    (ended,) = yield [context.calls.counts()]
    counts["left"] += abs(_redriven(ended) - _redriven(begun))
    return Rekeyed(**counts, missing=tuple(missing), unreadable_ids=tuple(unreadable))


def _redriven(counted: CountsReply) -> int:
    """Return how many messages have ever been redriven."""
    return int(counted.meta.get("redriven", 0))


def _call(context: QueueContext, part: str, rows: Sequence[tuple[str, bytes, bytes]], _: str) -> ScriptCall[str]:
    return rekey_call(context.calls, part, rows)


def _rekeyed(codec: QueueCipher, payload: bytes, *, stable: bool) -> bytes | None:
    """Return a payload, or those that were collected, with the first key; None if all have it, or none is there yet."""
    try:
        entries = entries_in(payload) if payload[:1].isdigit() or not payload else [payload]
    except UndecodableError:
        entries = [payload]
    fresh = [codec.rekeyed(entry, stable=stable) for entry in entries]
    if not any(fresh) or entries == [payload]:
        return fresh[0] if fresh else None
    return joined([new or entry for new, entry in zip(fresh, entries, strict=True)], is_json=False)


def _split(part: str, text: bytes) -> tuple[bytes, bytes]:
    """Return what is stored before a payload, and the payload; the whole text for what another program has written."""
    size = 0
    if part == "schedule_specs":
        size = text.find(b"\n") + 1
    elif part == "successors":
        if found := _SUCCESSOR.match(text):
            size = found.end() + int(found[1]) + int(found[2])
    elif part == "dead_messages" and (death := read_death(text)):
        size = len(text) - len(death.payload)
    return text[:size], text[size:]


def seal(queue: QueueBase[Any, Any], encoded: bytes) -> bytes:
    """Return an encoded payload as the queue stores it: encrypted if its codec encrypts."""
    codec = queue.codec
    return codec.seal(encoded) if isinstance(codec, QueueCipher) else encoded


class RekeyPage(NamedTuple):
    """A page of stored texts."""

    cursor: str
    """Of the next page; 0 at the end."""
    already: int
    """Messages of the page that need no change; they are left out."""
    rows: list[tuple[str, bytes]]
    """Id, entry or schedule, and text."""


def rekey_page_call(calls: Calls, part: str, *, cursor: str, limit: int, head: bytes) -> ScriptCall[RekeyPage]:
    """Read a page of the texts of a part, without the messages whose payload begins with `head`."""
    return calls.script("rekey_page", [part, cursor, limit, head], _read_page)


def rekey_call(calls: Calls, part: str, rows: Iterable[tuple[str, bytes, bytes]]) -> ScriptCall[str]:
    """Replace texts of a part (id, before, after): the first ones, if they are large.

    A status each: 1 replaced, 2 being processed, 0 changed or gone.
    """
    return calls.script("rekey", [calls.now, part, *flat(rows)], statuses)


def _read_page(reply: list[bytes]) -> RekeyPage:
    cursor, already, *cells = reply
    ids = [id.decode("utf-8", "surrogateescape") for id in cells[::2]]
    return RekeyPage(cursor.decode(), int(already), list(zip(ids, cells[1::2], strict=True)))
