"""Receivers that take nothing for now: until when, and how often in a row that was found.

The first message that finds a receiver closed closes it for all that come later, so it is asked once, and no message is
charged for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from delayq.values.times import monotonic

TELL_EVERY = 60.0
"""Seconds between two log lines about the same receiver at least: it may open and close again many times."""
MAX_CLOSED = 1000
"""Receivers to remember; beyond that, those that may be asked again are forgotten."""


class _Closure:
    def __init__(self) -> None:
        self.reason = ""
        self.since = self.until = 0.0
        self.times = 0
        """How often in a row; 0 since it has taken something."""
        self.told, self.told_at = False, -TELL_EVERY
        """Whether this outage was told, and when one was last told."""


class Closed(NamedTuple):
    """What became of a receiver by `Closures.close`."""

    left: float
    """Seconds for which it is closed."""
    lasts: float
    """Seconds since it was first found closed."""
    is_new: bool
    """Whether somebody should be told."""


class Closures:
    """The closed receivers of one adapter, by name; all threads share them. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        """Start with none."""
        self._lock = threading.Lock()
        self._closed: dict[str, _Closure] = {}

    def find(self, name: str) -> tuple[float, str]:
        """Return for how many seconds a receiver is closed, and why; 0 if it may be asked."""
        closure = self._closed.get(name)
        return (0.0, "") if closure is None else (max(0.0, closure.until - monotonic()), closure.reason)

    def close(self, name: str, reason: str, wait: float | None, backoff: Callable[[int], float]) -> Closed:
        """Close a receiver for `wait` seconds, or without one for those that `backoff` gives for the times in a row.

        What was asked before it was closed, and is refused only now, counts as the same time.
        """
        now = monotonic()
        with self._lock:
            if len(self._closed) >= MAX_CLOSED:
                self._closed = {name: one for name, one in self._closed.items() if one.until > now}
            closure = self._closed.setdefault(name, _Closure())
            if closure.until <= now:
                closure.since = closure.since if closure.times else now
                closure.times += 1
                wait = wait or backoff(closure.times)
            closure.reason, closure.until = reason, max(closure.until, now + (wait or 0.0))
            is_new = not closure.told and now - closure.told_at >= TELL_EVERY
            if is_new:
                closure.told, closure.told_at = True, now
            return Closed(closure.until - now, now - closure.since, is_new)

    def open(self, name: str) -> bool:
        """Note that a receiver has taken something; return whether somebody should be told."""
        if name not in self._closed:
            return False
        with self._lock:
            closure = self._closed.get(name)
            if closure is None or closure.until > monotonic():  # it was asked before it was closed
                return False
            told, closure.told, closure.times = closure.told, False, 0
            return told
