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
    """Ids of those that are gone: their event is, or has moved so that their time has passed."""
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
    new: list[Reminder] = []
    moved: list[Reminder] = []
    changed: list[Reminder] = []
    cancelled = sorted(kept.doubtful - kept.reminders.keys() - plan.reminders.keys())
    then: dict[str, Reminder] = {}
    unchanged = past = spared = 0
    for id, reminder in plan.reminders.items():
        before, certain = kept.reminders.get(id), id not in kept.doubtful
        if before is not None and certain and before.same_as(reminder):
            then[id] = reminder
            unchanged += 1
        elif reminder.due < now - grace:
            past += 1
            if not certain or (before is not None and before.due > now):
                cancelled.append(id)
        else:
            then[id] = reminder
            kind = new if before is None else moved if before.due != reminder.due else changed
            kind.append(reminder)
    for id, reminder in kept.reminders.items():
        if id in plan.reminders:
            continue
        if reminder in unread:
            then[id] = reminder
            spared += 1
            if id in kept.doubtful and reminder.due >= now - grace:
                changed.append(reminder)
        elif id in kept.doubtful or not _has_begun(reminder, plan, now):
            cancelled.append(id)
    return Changes(new, moved, changed, cancelled, [], unchanged, past, spared, then)


def _has_begun(reminder: Reminder, plan: Plan, now: int) -> bool:
    return beginning(reminder.event, plan.rules.tz).latest <= moment(now)
