"""What a send returns: the id of each message, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, overload

from delayq.broker.replies.send_replies import Holder, Placing
from delayq.broker.requests import OWN_ID
from delayq.values.times import from_millis


class SendStatus(StrEnum):
    """What a send did with a message."""

    NEW = "new"
    EXISTS = "exists"
    """The queue has a message with this id, which was not changed."""
    REPLACED = "replaced"
    """A waiting message with this id got the new payload and due time; its attempts start anew."""
    RUNNING = "running"
    """A message with this id is being processed, so it was not replaced."""
    AFTER = "after"
    """A message with this id is being processed; this one waits and takes its place when it ends."""
    SETTLED = "settled"
    """A message with this id has ended within the `dedupe_window`, or the id is held: it was not sent again."""


STATUS_OF = {
    "1": SendStatus.NEW,
    "0": SendStatus.EXISTS,
    "2": SendStatus.REPLACED,
    "3": SendStatus.RUNNING,
    "6": SendStatus.AFTER,
    "5": SendStatus.SETTLED,
}
"""The statuses as the scripts return them."""
STORED = ("1", "2", "6")
"""The statuses of messages that a send has stored."""


class Sent(NamedTuple):
    """The result of one send: the message's id, and whether this call stored it."""

    id: str
    status: SendStatus
    due: datetime | None = None
    """When the message is due, in UTC, by the server's clock; None if this call did not store it."""
    holder: Holder | None = None
    """Who holds the id, if the status is `exists`, `running` or `settled`."""

    @classmethod
    def of(cls, id: str, status: str, due: str | int, at: Placing) -> Sent:
        """Return the result of a send with this due time (see `due_text`), from which `at` the delays count."""
        if isinstance(at, str):
            return cls(id, STATUS_OF[status], None, Holder.of(at))
        due_at = from_millis(_due_millis(due, at)) if at and status in STORED else None
        return cls(id, STATUS_OF[status], due_at)

    @property
    def new(self) -> bool:
        """Whether this call stored the message under a new id."""
        return self.status is SendStatus.NEW


class SentMany(Sequence[Sent]):
    """The results of `send_many`, one for each message, in order."""

    __slots__ = ("_dues", "_statuses", "_times", "ids")

    def __init__(self, ids: list[str], statuses: str, dues: list[str | int], times: list[Placing]) -> None:
        self.ids = ids
        self._statuses = statuses
        self._dues = dues
        self._times = times
        """For each message, the server's time (microseconds) from which its delay counts, or who holds its id."""

    @property
    def new(self) -> list[str]:
        """The ids of the messages that this call stored under new ids."""
        return [id for id, status in zip(self.ids, self._statuses, strict=True) if status == "1"]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> Sent: ...
    @overload
    def __getitem__(self, at: slice) -> SentMany: ...
    def __getitem__(self, at: int | slice) -> Sent | SentMany:
        """Return the result of one message, or of a slice."""
        if isinstance(at, slice):
            return SentMany(self.ids[at], self._statuses[at], self._dues[at], self._times[at])
        return Sent.of(self.ids[at], self._statuses[at], self._dues[at], self._times[at])

    def __repr__(self) -> str:
        """Show how many were sent and how many were new."""
        return f"<SentMany {len(self)} messages, {self._statuses.count('1')} new>"


def _due_millis(due: str | int, at: int) -> int:
    """Return the due time (ms) that a script gave a message, from its clock `at` (microseconds)."""
    if due in (0, OWN_ID):  # at once
        return at // 1000
    return -(-at // 1000) + due if isinstance(due, int) else int(due[1:])
