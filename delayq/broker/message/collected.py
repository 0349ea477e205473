"""Collected payloads: those of the sends to one group, in the payload of one message.

Encoded in JSON they are a list in JSON, which is read wherever payloads are. All others are netstrings, one after the
other: `5:hello,`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from delayq.broker.message.attributes import Attributes
from delayq.errors import UndecodableError
from delayq.values.checks import check_int

MAX_COLLECT = 1000
"""Payloads that one message carries at most."""
_split_json = msgspec.json.Decoder(list[msgspec.Raw]).decode


def check_collect(collect: Any) -> int:
    """Return how many payloads a message may carry, 0 for None; raise `ConfigurationError` for anything else."""
    return 0 if collect is None else check_int(collect, "collect", 1, MAX_COLLECT)


def gathered_by(attributes: Attributes) -> tuple[int, int] | None:
    """Return how many payloads a message has gathered, and how many it may; None if it does not gather."""
    numbers = attributes.gathers.split(":")
    return (int(numbers[2]), attributes.collect) if len(numbers) > 2 and numbers[2].isdecimal() else None  # noqa: PLR2004


def entry_of(encoded: bytes, *, is_json: bool) -> bytes:
    """Return an encoded payload as its script takes it: a comma and JSON, else a netstring."""
    return b"," + encoded if is_json else b"%d:%s," % (len(encoded), encoded)


def entries_in(stored: bytes) -> list[bytes]:
    """Return the encoded payloads of a message; raise `UndecodableError` for a text that delayq has not written."""
    if stored.startswith(b"["):
        try:
            return [bytes(one) for one in _split_json(stored)]
        except (msgspec.MsgspecError, RecursionError) as error:
            raise UndecodableError(f"undecodable: a collected payload is no list in JSON: {error}") from None
    found, at = [], 0
    while at < len(stored):
        colon = stored.find(b":", at, at + 12)
        size = stored[at:colon] if colon > 0 else b""
        end = colon + 1 + int(size) if size.isdigit() else len(stored)
        if stored[end : end + 1] != b",":
            raise UndecodableError("undecodable: a collected payload is cut, or was not sent with collect")
        found.append(stored[colon + 1 : end])
        at = end + 1
    return found


def joined(entries: list[bytes], *, is_json: bool) -> bytes:
    """Return encoded payloads as that of one message."""
    if is_json:
        return b"[%s]" % b",".join(entries)
    return b"".join(entry_of(entry, is_json=False) for entry in entries)


def decode_collected(stored: bytes, decode: Callable[[bytes], Any]) -> list[Any]:
    """Return the payloads of a message, each decoded as that of a message of its own would be."""
    return [decode(one) for one in entries_in(stored)]
