"""What the index of `after_outage` says, in plain Python: which messages of an id prefix a later one supersedes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

DAY = 86_400_000


class Member(NamedTuple):
    """A message that is due at a time, or without an id a mark: one that was due then has started."""

    prefix: str
    due: int
    id: str = ""

    @property
    def text(self) -> str:
        """The member as it is stored."""
        return f"{self.prefix} {self.due:015}{self.id and ' '}{self.id}"

    @classmethod
    def of(cls, id: str, due: int) -> Member:
        """Return the member of a message."""
        return cls(prefix_of(id), due, id)


def prefix_of(id: str) -> str:
    return "".join(id.rpartition(":")[:2])


class Index:
    """The members of a queue; `due_of` returns when a message is due, None if there is none."""

    def __init__(self, due_of: Callable[[str], int | None]) -> None:
        self.members: set[Member] = set()
        self._due_of = due_of

    def add(self, id: str, due: int, attributes: bytes) -> None:
        """Add a message if its attributes say so."""
        if b" latest=1" in b" " + attributes:
            self.members.add(Member.of(id, due))

    def superseded(self, now: int, messages: Iterable[tuple[str, int]]) -> str:
        """Return a status for each message (id, due time), and remember which have started."""
        ended: set[Member] = set()
        marks: set[Member] = set()
        replies = ""
        for id, due in messages:
            members = self._of(prefix_of(id))
            latest = -1
            for member in reversed([one for one in members if one.due <= now]):
                if not self._has_ended(member):
                    latest = member.due
                    break
                ended.add(member)
            replies += "1" if latest > due else "0"
            mark = Member(prefix_of(id), due)
            if latest <= due and mark not in self.members | marks:
                marks.add(mark)
                older = [one for one in members if one.due < due][:100]
                ended.update(one for one in older if not one.id or self._has_ended(one))
        self.members = self.members - ended | marks
        return replies

    def forget(self, now: int) -> None:
        """Forget what is older than a day: what has ended, and marks before which nothing stands."""
        assert len(self.members) < 100, "more than one page"
        old = [one for one in self.members if one.due < now - DAY]
        firsts = {prefix: self._of(prefix)[0] for prefix in {one.prefix for one in old}}
        self.members -= {one for one in old if (self._has_ended(one) if one.id else firsts[one.prefix] == one)}

    def _of(self, prefix: str) -> list[Member]:
        return sorted(one for one in self.members if one.prefix == prefix)

    def _has_ended(self, member: Member) -> bool:
        return bool(member.id) and self._due_of(member.id) != member.due
