"""What a migration did, or would do: messages found, moved and left, with the reasons."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

MAX_LISTED = 1000
"""Messages listed for each reason they were left; all are counted."""


class Why(StrEnum):
    """Why a message was left in the Go queue."""

    NO_PAYLOAD = "no payload"
    """Its payload has expired."""
    FAILED = "failed for good"
    """It has no retries left; the Go library deletes it."""
    BAD_ID = "no valid id"
    """The id is invalid in delayq; the Go library does not generate such ids."""
    FOREIGN_ID = "id of another message"
    """The target has a message with this id and another payload. Or it has settled one, whose payload is unknown, and
    the id is not a UUID."""
    BAD_TIME = "no valid time"
    """Its due time is beyond the range of delayq."""
    LEASED = "leased"
    """A Go worker may be processing it, or it waits for a retry."""


SPENT = frozenset({Why.NO_PAYLOAD, Why.FAILED})
"""Reasons of messages that Go would not deliver either."""


class Left(NamedTuple):
    """A message that was left in the Go queue."""

    place: str
    id: str
    why: Why


@dataclass(slots=True)
class Migration:
    """What a migration did, or would do: numbers of ids by structure of the Go queue."""

    name: str
    queue: str
    dry_run: bool
    found: Counter[str] = field(default_factory=Counter)
    """Ids in the Go queue at the start."""
    moved: Counter[str] = field(default_factory=Counter)
    left: Counter[tuple[str, Why]] = field(default_factory=Counter)
    listed: list[Left] = field(default_factory=list)
    """The first 1,000 messages left for each reason."""
    came: int = 0
    """Messages in the Go queue at the end that are not in `left`: Go is still sending."""

    @property
    def reasons(self) -> Counter[Why]:
        """Number of messages left, by reason."""
        total: Counter[Why] = Counter()
        for (_, why), number in self.left.items():
            total[why] += number
        return total

    @property
    def complete(self) -> bool:
        """Whether no message is left that Go would still deliver."""
        return not self.came and self.reasons.keys() <= SPENT

    def leave(self, place: str, id: bytes, why: Why) -> None:
        """Record a message that is left."""
        if self.reasons[why] < MAX_LISTED:
            self.listed.append(Left(place, id.decode("utf-8", "backslashreplace"), why))
        self.left[place, why] += 1

    def end(self, rest: Migration) -> None:
        """Update what is left from a final dry run, since Go may have taken or added messages.

        A dry run does not detect foreign ids, so those are kept.
        """
        foreign = Counter({key: number for key, number in self.left.items() if key[1] is Why.FOREIGN_ID})
        self.came = max(0, rest.moved.total() - foreign.total())
        self.left = foreign + rest.left
        self.listed = [one for one in self.listed if one.why is Why.FOREIGN_ID] + rest.listed
