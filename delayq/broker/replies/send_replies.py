"""The reply of a send: a status for each message, and who holds the ids that it left as they were."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from delayq.values.states import State
from delayq.values.times import from_millis

HELD = "035"
"""The statuses of ids that the send left as they were: exists, running, settled."""
_RECORDED = {"leased": State.ACTIVE, "ranked": State.READY}
"""The states of records that have another name."""
Placing = int | str
"""The server's time from which a delay counts (microseconds, 0 if unknown), or who holds the id: its state and time."""


class SendStatuses(str):
    """The statuses of a send, with the server's time from which its delays count (microseconds, 0 if unknown)."""

    __slots__ = ("_holders", "at")
    at: int
    _holders: list[str]

    @classmethod
    def read(cls, reply: bytes) -> SendStatuses:
        """Parse the reply of `send`."""
        texts, _, rest = reply.decode().partition(" ")
        read = cls(texts)
        at, *read._holders = rest.split(" ")
        read.at = int(at or 0)
        return read

    @property
    def placings(self) -> list[Placing]:
        """For each message, the time from which its delay counts, or who holds its id."""
        if not self._holders:
            return [self.at] * len(self)
        pairs = iter(zip(self._holders[::2], self._holders[1::2], strict=True))
        return [" ".join(next(pairs)) if status in HELD else self.at for status in self]


class Holder(NamedTuple):
    """Who holds the id of a message that was not stored, at the time of the send."""

    state: str
    """The state of the message with this id, see `State`, or `settled` if it has ended and the id is held."""
    due: datetime | None
    """When that message is due, or when an id that is settled can be sent again.

    None for one that was sent earlier in the same batch.
    """

    @classmethod
    def of(cls, placing: str) -> Holder:
        """Return the holder of an id as the reply of a send tells it."""
        state, _, due = placing.partition(" ")
        return cls(_RECORDED.get(state, state), from_millis(int(due)) if due != "-" else None)


class Debounced(NamedTuple):
    """The reply of a debounced send."""

    status: str
    due: str | int
    """When the message is due, as `@` and milliseconds since 1970; 0 for one that was not stored."""
    placing: Placing
    unstarted: bool
    """Whether it follows a message that a consumer has claimed and not started."""

    @classmethod
    def read(cls, reply: bytes) -> Debounced:
        """Parse the reply of `debounce`."""
        status, _, rest = reply.decode().partition(" ")
        if status in HELD:
            return cls(status, 0, rest, unstarted=False)
        due, _, mark = rest.partition(" ")
        return cls(status, f"@{due}" if due else 0, 1, unstarted=mark != "")
