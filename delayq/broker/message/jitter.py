"""Jitter spreads what is due at the same time: how much later an id is due is drawn from the id, and never changes."""

from __future__ import annotations

from hashlib import blake2b

from delayq.values.times import Duration, to_millis

MAX_JITTER = 86_400_000
"""Milliseconds by which a message may be due later."""


def draw(id: str, jitter: int) -> int:
    """Return the milliseconds by which an id is due later, from 0 to `jitter`: always the same."""
    return int.from_bytes(blake2b(id.encode(), digest_size=8).digest()) % (jitter + 1)


def check_jitter(jitter: Duration) -> int:
    """Return a jitter in milliseconds; raise `ConfigurationError` for anything else, and for more than a day."""
    return to_millis(jitter, "jitter", max=MAX_JITTER)


def later(due: str | int, id: str, jitter: int) -> str | int:
    """Return a due time (ms from now, or @ms since 1970) with the jitter of an id (ms)."""
    return due + draw(id, jitter) if isinstance(due, int) else f"@{int(due[1:]) + draw(id, jitter)}"
