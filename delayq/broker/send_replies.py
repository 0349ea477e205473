"""The reply of a send: a status for each message, and who holds the ids that it left as they were."""

from __future__ import annotations

HELD = "035"
"""The statuses of ids that the send left as they were: exists, running, settled."""
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
