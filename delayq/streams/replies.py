"""Parses the replies of the scripts that read streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from delayq.broker.foreign import time_text
from delayq.broker.replies import pairs
from delayq.broker.requests import UNSTARTED
from delayq.values.codec import decode_headers


class _NoPayload(bytes):
    """Bytes that are told from those of every entry, also from an empty payload."""


NO_PAYLOAD = _NoPayload()
"""The payload of an entry that another client has added without one."""
KNOWN_FIELDS = frozenset((b"id", b"payload", b"retries", b"due", b"headers", b"attributes", b"unique"))
MAX_NUMBER = 15
"""Most digits of a number in a field, which another client may have written."""


class StreamRow(NamedTuple):
    """One entry of a stream; `retry_at` is the time of its next delivery (ms), if that is stored."""

    entry: str
    consumer: str
    idle: int
    deliveries: int
    retry_at: int | None
    error: str
    size: int
    fields: dict[bytes, bytes]
    """The fields that a message has, with the payload cut to a preview."""


class StreamPageReply(NamedTuple):
    """A page of entries, read at `now` (ms). The next page begins after the entry `after`, '' on the last page."""

    now: int
    after: str
    rows: list[StreamRow]
    inspected: int
    """Entries that it has read: fewer than asked for if they are large."""


def read_page(reply: Sequence[Any]) -> StreamPageReply:
    """Parse the reply of `page`."""
    now, after, rows, inspected = reply
    return StreamPageReply(now, after.decode(), [*map(_row, rows)], inspected)


def read_get(now: int, state: bytes = b"", row: Sequence[Any] | None = None) -> tuple[int, str, StreamRow | None]:
    """Parse the reply of `get`: the time (ms), then state and row of the entry, or '' and None if there is none."""
    return now, state.decode(), None if row is None else _row(row)


def read_number(fields: Mapping[bytes, bytes], name: bytes, default: int) -> int:
    """Return a number from the fields of an entry, or the default if it is missing or not a number."""
    value = fields.get(name, b"")
    return int(value) if value.isdigit() and len(value) <= MAX_NUMBER else default


def read_text(fields: Mapping[bytes, bytes], name: bytes) -> str:
    """Return a text from the fields of an entry, '' if it is missing."""
    return fields.get(name, b"").decode("utf-8", "replace")


def payload_decoder(decode: Callable[[bytes], Any], *, encrypted: bool) -> Callable[[bytes], Any]:
    """Return the decoder of a stream's payloads: an entry without one has the payload None.

    If payloads are `encrypted`, the decoder refuses it as well: anybody could have added it.
    """
    return decode if encrypted else lambda data: None if data is NO_PAYLOAD else decode(data)


def headers_of(fields: Mapping[bytes, bytes]) -> bytes:
    """Return the encoded headers of an entry; of one without payload they include the fields that are not ours.

    Another client may have put there what it has to say.
    """
    known = fields.get(b"headers", b"")
    if b"payload" in fields or fields.keys() <= KNOWN_FIELDS:
        return known
    others = {read_text({name: name}, name): read_text(fields, name) for name in fields.keys() - KNOWN_FIELDS}
    try:
        return msgspec.json.encode(others | (decode_headers(known) if known else {}))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return known  # the callback learns that they are invalid


def read_headers(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the headers from the fields of an entry; none if they are missing or invalid."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return decode_headers(fields.get(b"headers", b"{}"))
    return {}


def read_groups(reply: Iterable[Any] | Exception) -> list[str]:
    """Parse the reply of XINFO GROUPS, an error if there is no stream: the names of the groups, sorted."""
    if isinstance(reply, Exception):
        return []
    return sorted(pairs(group)[b"name"].decode("utf-8", "replace") for group in reply)


def _row(reply: Sequence[Any]) -> StreamRow:
    entry, consumer, idle, deliveries, retry_at, error, size, *fields = reply
    consumer, error = consumer.decode("utf-8", "replace").removesuffix(UNSTARTED), error.decode("utf-8", "replace")
    stored = time_text(retry_at)
    retry = int(stored) if stored else None
    return StreamRow(entry.decode(), consumer, idle, deliveries, retry, error, size, pairs(fields))
