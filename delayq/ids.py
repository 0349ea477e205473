"""Message ids: UUIDv7 (RFC 9562) in 22 base62 characters, which sort as text in the order they were made."""

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


def new_id() -> str:
    """Return a new id. Ids made by one process rise; those of several are ordered to the millisecond."""
    # Eleven base-3844 digits, the lower six split off first so that the rest is done in machine-size integers.
    pairs, base = _PAIRS, _BASE
    high, low = divmod(uuid7().int, _HALF)
    low, j = divmod(low, base)
    low, i = divmod(low, base)
    low, h = divmod(low, base)
    low, g = divmod(low, base)
    e, f = divmod(low, base)
    high, d = divmod(high, base)
    high, c = divmod(high, base)
    high, b = divmod(high, base)
    first, a = divmod(high, base)
    return (
        f"{pairs[first]}{pairs[a]}{pairs[b]}{pairs[c]}{pairs[d]}"
        f"{pairs[e]}{pairs[f]}{pairs[g]}{pairs[h]}{pairs[i]}{pairs[j]}"
    )
