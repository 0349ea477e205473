"""Compares a new plan with the stored one: which reminders to send, replace and cancel."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Literal

from delayq.reminders.event import Event, start_of
from delayq.reminders.plan_store import StoredPlan
from delayq.reminders.planner import Plan, Reminder
from delayq.values.times import from_millis, timestamp

Late = Literal["now", "skip", "note"]
"""What to do with a reminder that was due already when its event was made or moved."""


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
    late: list[Reminder] = field(default_factory=list)
    """Of events made or moved when a reminder was due already: sent at once, or with `late="note"` only listed here."""
    at: dict[str, int] = field(default_factory=dict, repr=False)
    """When late reminders are sent, in milliseconds since 1970, by id: at once, or after the quiet hours."""
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
        late = [one for one in self.late if one.id not in gone]
        return replace(self, new=new, moved=moved, changed=changed, refused=refused, kept=kept, late=late)

    def __len__(self) -> int:
        """Return how many messages are sent or cancelled."""
        return len(self.new) + len(self.moved) + len(self.changed) + len(self.cancelled)


def compare_plans(
    stored: StoredPlan,
    plan: Plan,
    *,
    now: int,
    grace: int = 0,
    late: Late = "skip",
    unread: Collection[str] = (),
    delivered: Collection[str] = (),
) -> Changes:
    """Return the changes from the stored plan to a new one; times in milliseconds.

    An unchanged reminder is not sent again, whether or not it was delivered. A new or moved one is sent unless its time
    has passed by more than `grace`. If its event is new or moved too, the last one that has passed is late; it is sent
    unless `delivered` has it. Reminders of events that have started are left alone, and those of events that could not
    be read: `unread` has their uids, with '' if one is unknown. An occurrence whose recurrence is written in
    another way, as in UTC, keeps the ids it was planned with.
    """
    plan = _with_known_ids(stored, plan, now)
    # Cancellations of an interrupted import are in neither of the two plans.
    changes = Changes(cancelled=sorted(stored.unconfirmed - stored.reminders.keys() - plan.reminders.keys()))
    found = [] if late == "skip" else _late(stored, plan, now, now - grace, delivered)
    changes.late.extend(found)
    if late == "now":
        changes.at.update((one.id, _send_time(one, plan, now)) for one in found)
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
        elif reminder.due >= earliest or id in changes.at:
            (changes.new if before is None else changes.moved if moved else changes.changed).append(reminder)
        else:
            past += 1
            if moved or not certain:
                changes.cancelled.append(id)
            if moved or not certain or before is None:
                continue
        changes.kept[id] = reminder  # also a past one with other content but the same due time
    return unchanged, past


def _late(stored: StoredPlan, plan: Plan, now: int, earliest: int, delivered: Collection[str]) -> list[Reminder]:
    """Return the last passed reminder of each event that is new or has moved, unless it is sent anyhow."""
    passed: dict[tuple[str, str], Reminder] = {}
    for one in plan.reminders.values():
        if one.due <= now:
            key = _identity(one.event)
            passed[key] = max(passed.get(key, one), one, key=attrgetter("due"))
    if not passed:
        return []
    before = {_identity(one.event): one.event for one in stored.reminders.values()}

    def is_new(one: Reminder) -> bool:
        if one.id in stored.unconfirmed:  # also of an event that the interrupted import has planned
            return one.id not in delivered
        event = before.get(_identity(one.event))
        return event is None or start_of(event, plan.rules.tz).at != start_of(one.event, plan.rules.tz).at

    return [one for one in passed.values() if one.due < earliest and is_new(one)]


def _send_time(reminder: Reminder, plan: Plan, now: int) -> int:
    """Return when to send a late reminder: now, or after the quiet hours if the event starts later."""
    quiet, starts = plan.rules.quiet, start_of(reminder.event, plan.rules.tz)
    return now if quiet is None else max(now, timestamp(quiet.move(from_millis(now), starts.zone, starts.latest)))


def _with_known_ids(stored: StoredPlan, plan: Plan, now: int) -> Plan:
    """Return the plan with the stored ids of occurrences that start as before but have another recurrence."""
    new = [one for id, one in plan.reminders.items() if id not in stored.reminders]
    if not (new and stored.reminders):
        return plan
    planned = {_identity(one.event) for one in plan.reminders.values()}
    gone = {_place(one, plan): one for one in stored.reminders.values() if _identity(one.event) not in planned}
    reminders = dict(plan.reminders)
    for one in new if gone else ():
        if known := gone.pop(_place(one, plan), None):
            del reminders[one.id]
            event = replace(one.event, recurrence=known.event.recurrence)
            delivered = known.due == one.due <= now
            reminders[known.id] = known if delivered else replace(one, id=known.id, event=event)
    return Plan(plan.rules, reminders)


def _identity(event: Event) -> tuple[str, str]:
    return event.uid, event.recurrence


def _place(reminder: Reminder, plan: Plan) -> tuple[str, str, datetime]:
    event = reminder.event
    return event.uid, reminder.offset, start_of(event, plan.rules.tz).at
