"""Compares a new plan with the stored one: which reminders to send, replace and cancel."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from delayq.reminders.event import start_of
from delayq.reminders.plan_store import StoredPlan
from delayq.reminders.planner import Plan, Reminder
from delayq.times import from_millis


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes an import makes or has made."""

    new: list[Reminder] = field(default_factory=list)
    moved: list[Reminder] = field(default_factory=list)
    """Reminders with a new due time, in their new state."""
    changed: list[Reminder] = field(default_factory=list)
    """Reminders with the same due time but other content."""
    cancelled: list[str] = field(default_factory=list)
    """Ids of reminders without an event, or whose new time has passed. After an import: of those that still waited."""
    refused: list[str] = field(default_factory=list)
    """Ids the queue refused: being processed, or settled within its dedupe window."""
    unchanged: int = 0
    past: int = 0
    """Reminders not sent because their time has passed."""
    spared: int = 0
    """Reminders left unchanged because their event could not be read."""
    kept: dict[str, Reminder] = field(default_factory=dict, repr=False)
    """All reminders of the plan after the import."""

    @property
    def sent(self) -> list[Reminder]:
        """All reminders that are sent or replaced."""
        return [*self.new, *self.moved, *self.changed]

    def without(self, refused: list[str]) -> Changes:
        """Return the changes without the refused ones."""
        gone, sent = set(refused), (self.new, self.moved, self.changed)
        new, moved, changed = ([one for one in kind if one.id not in gone] for kind in sent)
        kept = {id: one for id, one in self.kept.items() if id not in gone}
        return replace(self, new=new, moved=moved, changed=changed, refused=refused, kept=kept)

    def __len__(self) -> int:
        """Return how many messages are sent or cancelled."""
        return len(self.new) + len(self.moved) + len(self.changed) + len(self.cancelled)


def compare_plans(stored: StoredPlan, plan: Plan, *, now: int, grace: int = 0, unread: Collection[str] = ()) -> Changes:
    """Return the changes from the stored plan to a new one; times in milliseconds.

    An unchanged reminder is not sent again, whether or not it was delivered. A new or moved one is sent unless its time
    has passed by more than `grace`. Reminders of events that have started are left alone, and those of events that
    could not be read: `unread` has their uids, with '' if one is unknown.
    """
    # Cancellations of an interrupted import are in neither of the two plans.
    changes = Changes(cancelled=sorted(stored.unconfirmed - stored.reminders.keys() - plan.reminders.keys()))
    unchanged, past = _add_planned(changes, stored, plan, now - grace)
    spared = 0
    for id, reminder in stored.reminders.items():
        if id in plan.reminders:
            continue
        certain = id not in stored.unconfirmed
        if "" in unread or reminder.event.uid in unread:
            changes.kept[id] = reminder
            spared += 1
            if not certain and reminder.due >= now - grace:
                changes.changed.append(reminder)
        elif not certain or start_of(reminder.event, plan.rules.tz).latest > from_millis(now):
            changes.cancelled.append(id)
    return replace(changes, unchanged=unchanged, past=past, spared=spared)


def _add_planned(changes: Changes, stored: StoredPlan, plan: Plan, earliest: int) -> tuple[int, int]:
    """Add the reminders of the new plan; return how many are unchanged, and how many are past."""
    unchanged = past = 0
    for id, reminder in plan.reminders.items():
        before, certain = stored.reminders.get(id), id not in stored.unconfirmed
        moved = before is not None and before.due != reminder.due
        if before is not None and certain and before.same_as(reminder):
            unchanged += 1
        elif reminder.due >= earliest:
            (changes.new if before is None else changes.moved if moved else changes.changed).append(reminder)
        else:
            past += 1
            if moved or not certain:
                changes.cancelled.append(id)
            if moved or not certain or before is None:
                continue
        changes.kept[id] = reminder  # also a past one with other content but the same due time
    return unchanged, past
