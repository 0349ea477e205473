"""Groups, as the tables have them: messages that gather payloads, and successors that do."""

from __future__ import annotations

from typing import NamedTuple

from tests.support.scripts import NOW, After, T, World

ROOM = 30
"""How many bytes a batch of these groups may have."""
SPECIAL = {"schema": 6, "priority_step": 60_000}
"""What `meta` notes of a queue with groups."""


class Group(NamedTuple):
    """What the attributes of a group say; times in milliseconds from `NOW`."""

    entries: int = 1
    due: int = 5000
    last: int | None = None
    """How many are in the last batch; by default all."""
    size: int | None = None
    """Of the last batch; by default that of entries of two bytes."""
    since: int = 0
    most: int = 3
    first: int = 0
    began: int = 0
    """When its series began."""
    more: str = ""

    def text(self) -> str:
        last = self.entries if self.last is None else self.last
        size = 1 + 2 * last if self.size is None else self.size
        times = f"{NOW + self.since}:{NOW + self.due}:{ROOM}"
        series = T + 1000 * self.began
        return f"{self.more}collect={self.most} gathers={series}:{self.first}:{self.entries}:{last}:{size}:{times}"

    def gathered(self, id: str = "a") -> dict[str, str]:
        began = f" {self.began}" if self.began else ""
        return {f"{id} {number}{began}": f",{number}" for number in range(self.first, self.first + self.entries)}


def gathering(group: Group, due: int | None = None, id: str = "a") -> World:
    """Return a message that gathers, and is due at a time."""
    return World(
        pending={id: group.due if due is None else due},
        retries={id: 3},
        messages={id: ""},
        attributes={id: group.text()},
        gathered=group.gathered(id),
        meta=SPECIAL,
    )


def following(group: Group, due: int | None = None, id: str = "a") -> World:
    """Return a successor that gathers."""
    after = After(group.due if due is None else due, 3, "", "", group.text())
    return World(successors={id: after}, gathered=group.gathered(id), meta=SPECIAL)
