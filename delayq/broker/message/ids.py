"""Ids of messages, which sort by time, of consumers, which say where they run, and of calls: slots and numbers."""

from __future__ import annotations

import os
import re
import secrets
import sys
import threading
from datetime import UTC, datetime
from itertools import count
from typing import Literal

from delayq.errors import ConfigurationError, short_repr
from delayq.values.times import from_millis

if sys.version_info >= (3, 14):
    from uuid import uuid7
else:
    from uuid_utils import uuid7

MAX_HOST = 40
"""Characters of a host's name in the id of a consumer: every delivery record has one."""
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [a + b for a in _DIGITS for b in _DIGITS]
_BASE = 62**2
_HALF = _BASE**6
_last = (-1, "")
"""The upper half of an id made last and its ten characters: within a millisecond it hardly changes."""
_UUID = re.compile(r"[0-9A-Za-z]{22}")
_FIRST_MADE = 1_577_836_800_000
"""The start of 2020 in milliseconds since 1970: no id of delayq is older."""
_MAX_SKEW = 86_400_000
"""Milliseconds by which the clock of an id's maker may be ahead: an id with a later time is not ours."""


def new_id() -> str:
    """Return a new id: a UUIDv7 (RFC 9562) in 22 base62 characters, which sort as text in the order they were made.

    Ids made by one process rise; those of several are ordered to the millisecond.
    """
    return _id_text(uuid7().int)


def new_ids(n: int) -> list[str]:
    """Return so many new ids, which rise as well.

    Many differ in their last two characters alone: these stand for bits that are random in a UUIDv7 (RFC 9562, 6.2),
    far below those that it counts in.
    """
    ids: list[str] = []
    while len(ids) < n:
        number = uuid7().int
        shared, last = _id_text(number)[:-2], number % _BASE
        ids += [shared + pair for pair in _PAIRS[last : last + n - len(ids)]]
    return ids


def new_consumer_id() -> str:
    """Return an id for people to read, `host:pid:start`; the end of `start` is random, so ids are unique."""
    host = re.sub(r"[^A-Za-z0-9._-]+", "-", os.uname().nodename)[:MAX_HOST] or "localhost"
    return f"{host}:{os.getpid()}:{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def _id_text(number: int) -> str:
    global _last  # noqa: PLW0603 - one tuple, so that threads see a half and its text together
    # Eleven base-3844 digits, in two halves that are each done in machine-size integers.
    high, low = divmod(number, _HALF)
    pairs, base = _PAIRS, _BASE
    known, text = _last
    if high != known:
        rest, e = divmod(high, base)
        rest, d = divmod(rest, base)
        rest, c = divmod(rest, base)
        a, b = divmod(rest, base)
        text = f"{pairs[a]}{pairs[b]}{pairs[c]}{pairs[d]}{pairs[e]}"
        _last = (high, text)
    low, f = divmod(low, base)
    low, e = divmod(low, base)
    low, d = divmod(low, base)
    low, c = divmod(low, base)
    a, b = divmod(low, base)
    return f"{text}{pairs[a]}{pairs[b]}{pairs[c]}{pairs[d]}{pairs[e]}{pairs[f]}"


def time_of(id: str, *, now: int) -> datetime | None:
    """Return when delayq made an id, in UTC by its maker's clock; None for any other id.

    An id counts as made by delayq if it has the bits of a UUIDv7 and a time from 2020 up to a day after `now`
    (milliseconds since 1970). Other ids hardly ever do.
    """
    if not _UUID.fullmatch(id):
        return None
    number = 0
    for character in id:
        number = number * 62 + _DIGITS.index(character)
    made, version, variant = number >> 80, number >> 76 & 15, number >> 62 & 3
    made_here = (version, variant) == (7, 2) and _FIRST_MADE <= made < now + _MAX_SKEW
    return from_millis(made) if made_here else None


Unique = Literal["payload"]
"""What makes the id of a message: its name and its payload."""


def check_unique(unique: Unique) -> None:
    """Raise `ConfigurationError` for anything but what can make an id."""
    if unique != "payload":
        raise ConfigurationError(f"unique must be 'payload', not {short_repr(unique)}")


def digest_id(unique: Unique, id: str | None, name: str | None, payload: bytes) -> str:
    """Return the id of a message made from its name and its encoded payload; the same for the same two."""
    from hashlib import blake2b  # loads OpenSSL, and few programs use it

    check_unique(unique)
    if id is not None:
        raise ConfigurationError("give id or unique, but not both: unique makes the id")
    return blake2b(f"{name or ''}\n".encode() + payload, digest_size=16).hexdigest()


CallSlot = tuple[str, int]
"""A slot of this process, and the sequence number of a call in it."""


class CallSlots:
    """The slots of one client in one process; a forked process needs new ones."""

    def __init__(self) -> None:
        """Start without slots; they are drawn as calls need them, and used again."""
        self.client_name = secrets.token_hex(6)
        """A name unique to this start of this process: the prefix of all its slots."""
        self.consumer_id = new_consumer_id()
        """The id under which this process holds messages."""
        self.pid = os.getpid()
        """The process that they belong to, or that it was forked from."""
        self._names = map(f"{self.client_name}.%d".__mod__, count(1))
        self._drawing = threading.RLock()  # a signal handler may send while its own thread draws a name
        self._free: list[CallSlot] = []
        """The free slots, each with the sequence number of its last call."""

    def take(self) -> CallSlot:
        """Return a slot and the sequence number of its next call."""
        try:
            slot, sequence = self._free.pop()
        except IndexError:
            with self._drawing:  # without the GIL, two threads could draw the same name
                return next(self._names), 1
        return slot, sequence + 1

    def give_back(self, slots: list[CallSlot]) -> None:
        """Make slots free again, also those of calls without a reply.

        If such a call still reaches Redis after a later call of its slot, Redis does not execute it.
        """
        self._free.extend(slots)
