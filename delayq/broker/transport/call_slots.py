"""Call slots: each mutating call in flight has one, so that Redis executes it once, however often it is sent."""

from __future__ import annotations

import os
import secrets
import threading
from itertools import count

from delayq.broker.message.ids import new_consumer_id

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
        self._pid = os.getpid()
        self._names = map(f"{self.client_name}.%d".__mod__, count(1))
        self._drawing = threading.RLock()  # a signal handler may send while its own thread draws a name
        self._free: list[CallSlot] = []
        """The free slots, each with the sequence number of its last call."""

    @property
    def forked(self) -> bool:
        """Whether they belong to the process from which this one was forked."""
        return self._pid != os.getpid()

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
