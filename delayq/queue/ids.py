"""Makes the ids of messages that are sent without one."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from uuid import uuid7
else:
    from uuid_utils import uuid7

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [a + b for a in _DIGITS for b in _DIGITS]
_BASE = 62**2
_HALF = _BASE**6
_last = (-1, "")
"""The upper half of an id made last and its ten characters: within a millisecond it hardly changes."""


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


def _id_text(number: int) -> str:
    global _last  # noqa: PLW0603 - one tuple, so that threads see a half and its text together
    # Eleven base-3844 digits, in two halves that are each done in machine-size integers.
    high, low = divmod(number, _HALF)
    known, text = _last
    if high != known:
        text = "".join(_PAIRS[high // _BASE**power % _BASE] for power in (4, 3, 2, 1, 0))
        _last = (high, text)
    pairs, base = _PAIRS, _BASE
    low, f = divmod(low, base)
    low, e = divmod(low, base)
    low, d = divmod(low, base)
    low, c = divmod(low, base)
    a, b = divmod(low, base)
    return f"{text}{pairs[a]}{pairs[b]}{pairs[c]}{pairs[d]}{pairs[e]}{pairs[f]}"
