"""What is to be done so that a queue holds the reminders of a new plan in place of the last one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from delayq.clock import moment
from delayq.reminders.event import beginning
from delayq.reminders.keeping import Kept
from delayq.reminders.planning import Plan, Reminder


@dataclass(frozen=True, slots=True)
class Changes:
    """What an import changes, or has changed."""

    new: list[Reminder] = field(default_factory=list)
    moved: list[Reminder] = field(default_factory=list)
    """Those that are due at another time, as they are now."""
    changed: list[Reminder] = field(default_factory=list)
    """Those that say something else, and are due when they were."""
    cancelled: list[str] = field(default_factory=list)
    """Ids of those that are gone: their event is, or has moved so that their time has passed. When it is done: of those
    that still waited."""
    refused: list[str] = field(default_factory=list)
    """Ids that the queue did not take: being processed just now, or settled within its dedupe window."""
    unchanged: int = 0
    past: int = 0
    """Reminders that are not sent, since their time has passed."""
    spared: int = 0
    """Reminders that are left as they are, since it could not be read whether their event has changed."""
    kept: dict[str, Reminder] = field(default_factory=dict, repr=False)
    """All that the plan consists of then."""

    @property
    def sent(self) -> list[Reminder]:
        """All that are sent, or sent anew."""
        return [*self.new, *self.moved, *self.changed]

    def without(self, refused: list[str]) -> Changes:
        """Return the changes without those that the queue refused."""
        gone = set(refused)
        new, moved, changed = (
            [one for one in kind if one.id not in gone] for kind in (self.new, self.moved, self.changed)
        )
        then = {id: one for id, one in self.kept.items() if id not in gone}
        return replace(self, new=new, moved=moved, changed=changed, refused=refused, kept=then)

    def __len__(self) -> int:
        """Return how many messages are sent or cancelled."""
        return len(self.new) + len(self.moved) + len(self.changed) + len(self.cancelled)

    def __bool__(self) -> bool:
        """Tell whether there is anything to do."""
        return len(self) > 0


@dataclass(frozen=True, slots=True)
class Unread:
    """What of a calendar could not be read, and may therefore not be taken for removed."""

    uids: Collection[str] = ()
    anything: bool = False
    """Whether something could not be read of which not even the uid is known."""

    def __contains__(self, reminder: Reminder) -> bool:
        """Tell whether a reminder may be of it."""
        return self.anything or reminder.event.uid in self.uids


NOTHING = Unread()


def difference(kept: Kept, plan: Plan, *, now: int, grace: int = 0, unread: Unread = NOTHING) -> Changes:
    """Return what leads from what is kept to a plan; times in milliseconds.

    A reminder that is kept and unchanged is not sent again, be it delivered or not. One that is new or moved is sent if
    its time has not passed for longer than the `grace`. What belongs to an event that has begun is let alone.
    """
    comparison = _Comparison(kept, plan, now, now - grace, unread)
    for reminder in plan.reminders.values():
        comparison.planned(reminder)
    for id, reminder in kept.reminders.items():
        if id not in plan.reminders:
            comparison.missing(reminder)
    return comparison.changes()


class _Comparison:
    """Takes the reminders of a plan, and those that it has no more."""

    def __init__(self, kept: Kept, plan: Plan, now: int, earliest: int, unread: Unread) -> None:
        self._kept, self._plan, self._now, self._earliest, self._unread = kept, plan, now, earliest, unread
        self._new: list[Reminder] = []
        self._moved: list[Reminder] = []
        self._changed: list[Reminder] = []
        # What an import that was cut off was to cancel is in neither of the two.
        self._cancelled = sorted(kept.doubtful - kept.reminders.keys() - plan.reminders.keys())
        self._then: dict[str, Reminder] = {}
        self._unchanged = self._past = self._spared = 0

    def planned(self, reminder: Reminder) -> None:
        before, certain = self._kept.reminders.get(reminder.id), reminder.id not in self._kept.doubtful
        if before is not None and certain and before.same_as(reminder):
            self._then[reminder.id] = reminder
            self._unchanged += 1
        elif reminder.due < self._earliest:
            self._past += 1
            if not certain or (before is not None and before.due != reminder.due):
                self._cancelled.append(reminder.id)
            elif before is not None:  # it says something else now, but was due when it is
                self._then[reminder.id] = reminder
        else:
            self._then[reminder.id] = reminder
            moved = before is not None and before.due != reminder.due
            (self._new if before is None else self._moved if moved else self._changed).append(reminder)

    def missing(self, reminder: Reminder) -> None:
        certain = reminder.id not in self._kept.doubtful
        if reminder in self._unread:
            self._then[reminder.id] = reminder
            self._spared += 1
            if not certain and reminder.due >= self._earliest:
                self._changed.append(reminder)
        elif not certain or not self._has_begun(reminder):
            self._cancelled.append(reminder.id)

    def changes(self) -> Changes:
        sent = self._new, self._moved, self._changed
        return Changes(*sent, self._cancelled, [], self._unchanged, self._past, self._spared, self._then)

    def _has_begun(self, reminder: Reminder) -> bool:
        return beginning(reminder.event, self._plan.rules.tz).latest <= moment(self._now)
