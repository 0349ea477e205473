"""The call slots of a process, under which Redis remembers the last answer of each: so a call executes once.

A slot holds one call at a time, and each call of it has the next sequence number.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count


@dataclass(slots=True)
class Slots:
    """The call slots of this process: one call in flight each, taken and given back around every call."""

    client: str = ""
    """A name unique to this start of this process, which all its slots begin with."""
    pid: int = 0
    free: list[tuple[str, int]] = field(default_factory=list)
    names: Iterator[str] = field(default_factory=lambda: iter(()))

    def take(self) -> tuple[str, int]:
        """Return a slot and the sequence number of its next call, to be put into `free` when that is answered."""
        if self.pid != os.getpid():  # a fork must not answer in its parent's name
            client = secrets.token_hex(6)
            # Threads that come here together each make names of their own: two calls must never share a slot.
            self.client, self.free, self.names = client, [], map(f"{client}.%d".__mod__, count(1))
            self.pid = os.getpid()
        try:
            slot, sequence = self.free.pop()
        except IndexError:
            return next(self.names), 1
        return slot, sequence + 1
